"""Says which process a task's earlier try has started, so that the next try ends it: a worker may die while Spark goes
on.

Only processes of this machine, of this boot, with the time of start that was noted, are ever ended: a number may be
given to another process. A driver on another machine is out of reach; what it commits, it commits once or not at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

from cleantail.codec import digest_of
from cleantail.home.conditions import holds_within
from cleantail.home.private_files import make_folder

FOLDER = "drivers"
ENDS_WITHIN_S = 20.0
"""How long a driver may take to end by itself before it is killed."""
_PAUSE_S = 0.05
_PROC = Path("/proc")


def note_of(home: Path, identity: Sequence[object]) -> Path:
    """Returns the file that keeps which process runs for a task, whatever its try. Makes its folder."""
    return make_folder(home, FOLDER) / f"{digest_of(map(str, identity))}.json"


def note(file: Path, pid: int) -> None:
    """Keeps which process runs for the task."""
    file.write_text(json.dumps({**_here(), "pid": pid, "started": _started(pid)}), encoding="utf-8")


def forget(file: Path) -> None:
    """Forgets the process: it has ended."""
    file.unlink(missing_ok=True)


def end_earlier(file: Path, within_s: float = ENDS_WITHIN_S) -> int | None:
    """Ends the process that an earlier try has left, with all that it has started, and returns its number; None where
    there is none here."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        pid, started = int(kept["pid"]), int(kept["started"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if {name: kept.get(name) for name in _here()} != _here() or _started(pid) != started:
        return None
    family = [(one, _started(one)) for one in [*_descendants(pid), pid]]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for one, since in family:
            if _started(one) == since:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, number)
        holds_within(lambda: all(_started(one) != since for one, since in family), every_s=_PAUSE_S, within_s=within_s)
    forget(file)
    return pid


def _here() -> dict[str, str]:
    """Returns which machine this is, and since which boot."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        boot = ""
    return {"host": socket.gethostname(), "boot": boot}


def _started(pid: int) -> int:
    """Returns when a process was started, in ticks since the boot; -1 where there is none, or only its remains."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in ("Z", "X") else -1


def _stat(pid: int) -> list[str]:
    """Returns the fields of a process after its name, which may have blanks in it: the state is the first."""
    try:
        return (_PROC / str(pid) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return []


def _descendants(pid: int) -> list[int]:
    """Returns the processes that it has started, and those that these have started, the youngest generation first."""
    parents: dict[int, list[int]] = {}
    for folder in _PROC.glob("[0-9]*"):
        if fields := _stat(int(folder.name)):
            parents.setdefault(int(fields[1]), []).append(int(folder.name))
    descendants, waiting = list[int](), [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        descendants += children
        waiting += children
    return descendants[::-1]
