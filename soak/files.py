"""Points at files: before a machine opens a file of the warehouse or of its home, the kernel asks the soak (fanotify).

A file without bytes is about to be written. This needs root, and the soak's own small disks.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import struct
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from soak.gateway import FILE_FAULTS, PAUSED, Door, table_kind

SLOW_S = 0.5
EVENT = struct.Struct("=IBBHQii")  # of <linux/fanotify.h>: length, version, reserved, …, mask, file, process
INIT, ADD, OPEN_PERM, ALLOW, DENY = 0x4 | 0x1, 0x1 | 0x100, 0x10000, 1, 2
KINDS = {".parquet": "data", ".puffin": "vectors", ".stats": "statistics", ".avro": "manifest", ".json": "metadata"}


def kind_of(file: Path, size: int, warehouse: Path) -> str | None:
    """Return the purpose of opening a file, such as `write data` or `read evidence`. None: no point."""
    parts, what = file.relative_to(warehouse.parent).parts, KINDS.get(file.suffix, "")
    if not file.is_relative_to(warehouse):
        place = re.split("[.-]", parts[1])[0]
        return None if size or place == "airflow" else f"write home {place}"
    if not what or file.name.startswith("."):
        return None
    table = table_kind(parts[2])
    if size:
        return f"read {what if table == 'table' else table}"
    what = "manifest list" if file.name.startswith("snap-") else what
    return f"write {what if table == 'table' else f'{table} {what}'}"


def owner_of(pid: int) -> str:
    """Return the machine of a process, by the configuration that its environment names. Empty for any other process."""
    known = re.search(rb"\0CLEANTAIL_CONFIG=[^\0]*/config-(\d+)", Path(f"/proc/{pid}/environ").read_bytes())
    return known[1].decode() if known and pid != os.getpid() else ""


class Files:
    """Watches the file systems of these folders. `doors`: name of a machine -> its door."""

    def __init__(self, folders: list[Path], warehouse: Path, doors: Mapping[str, Door]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.warehouse, self.doors = warehouse, doors
        self.fd = libc.fanotify_init(INIT, os.O_RDONLY | os.O_LARGEFILE)
        self.is_there = self.fd >= 0 and not any(
            libc.fanotify_mark(self.fd, ADD, ctypes.c_uint64(OPEN_PERM), -1, str(folder).encode()) for folder in folders
        )
        if self.is_there:
            threading.Thread(target=self._listen, daemon=True).start()
        elif self.fd >= 0:
            os.close(self.fd)

    def _listen(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                for *_, fd, pid in EVENT.iter_unpack(os.read(self.fd, 1 << 14)):
                    self._ask(fd, pid)

    def _ask(self, fd: int, pid: int) -> None:
        door, fault = None, None
        with contextlib.suppress(OSError, ValueError, IndexError):  # a process that ended, a file of an unmounted disk
            door = self.doors.get(owner_of(pid))
            if door is not None and door.command:
                file = Path(os.readlink(f"/proc/self/fd/{fd}"))
                kind = kind_of(file, os.fstat(fd).st_size, self.warehouse)
                fault = door.fault_of(kind, FILE_FAULTS[0]) if kind else None
        if door is None or fault is None:
            self._answer(fd, ALLOW)
        else:
            threading.Thread(target=self._disturb, args=(fd, door, fault.how), daemon=True).start()

    def _disturb(self, fd: int, door: Door, how: str) -> None:
        try:
            if how == "slow":
                time.sleep(SLOW_S)
            elif how != "refused":
                door.act(how)
            if how.startswith(PAUSED):
                door.released.wait()
        finally:
            self._answer(fd, DENY if how == "refused" else ALLOW)

    def _answer(self, fd: int, answer: int) -> None:
        with contextlib.suppress(OSError):  # the process has died
            os.write(self.fd, struct.pack("=iI", fd, answer))
        os.close(fd)
