"""Points at files: before a machine opens a file of the warehouse or of its home, the kernel asks the soak (fanotify).

A file without bytes is about to be written. This needs root, and the soak's own small disks.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import threading
from collections.abc import Mapping
from pathlib import Path

from soak.gateway import FILE_FAULTS, PAUSED, Door, table_kind

SLOW_S = 0.5
EVENT = struct.Struct("=IBBHQii")  # of <linux/fanotify.h>: length, version, reserved, …, mask, file, process
INIT, ADD, OPEN_PERM, ALLOW, DENY = 0x4 | 0x1, 0x1 | 0x100, 0x10000, 1, 2
KINDS = {".parquet": "data", ".puffin": "vectors", ".stats": "statistics", ".avro": "manifest"}


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


class Files:
    """Watches the file systems of these folders. `doors`: name of a machine -> its door."""

    def __init__(self, folders: list[Path], warehouse: Path, doors: Mapping[str, Door]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.warehouse, self.doors = warehouse, doors
        self.fd = libc.fanotify_init(INIT, os.O_RDONLY | os.O_LARGEFILE)
        self.is_there = self.fd >= 0 and not any(
            libc.fanotify_mark(self.fd, ADD, ctypes.c_uint64(OPEN_PERM), -1, str(folder).encode()) for folder in folders
        )
        self._owners: dict[int, str] = {}  # process -> its machine
        if self.is_there:
            threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while data := os.read(self.fd, 1 << 14):
            for *_, fd, pid in EVENT.iter_unpack(data):
                door = self.doors.get(self._owner(pid))
                file = Path(os.readlink(f"/proc/self/fd/{fd}"))
                kind = door and door.command and kind_of(file, os.fstat(fd).st_size, self.warehouse)
                fault = door.fault_of(kind, FILE_FAULTS[0]) if door and kind else None
                if door and fault:
                    threading.Thread(target=self._disturb, args=(fd, door, fault.how), daemon=True).start()
                else:
                    self._answer(fd, ALLOW)

    def _owner(self, pid: int) -> str:
        """Return the machine of a process, by the configuration that its environment names."""
        if pid not in self._owners:
            try:
                known = re.search(rb"\0CLEANTAIL_CONFIG=[^\0]*/config-(\d+)", Path(f"/proc/{pid}/environ").read_bytes())
            except OSError:
                return ""
            self._owners[pid] = known[1].decode() if known and pid != os.getpid() else ""
        return self._owners[pid]

    def _disturb(self, fd: int, door: Door, how: str) -> None:
        try:
            if how == "slow":
                door.released.wait(SLOW_S)
            elif how != "refused":
                door.act(how)
            if how.startswith(PAUSED):
                door.released.wait()
        finally:
            self._answer(fd, DENY if how == "refused" else ALLOW)

    def _answer(self, fd: int, answer: int) -> None:
        os.write(self.fd, struct.pack("=iI", fd, answer))
        os.close(fd)
