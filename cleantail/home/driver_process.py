"""Says what a Spark driver gets of the environment of the process that starts it: of Airflow's, only which task it runs
for.

1. A driver reads what others have written, and runs for hours. So it gets nothing of Airflow's own: the keys that sign
   every login, connections, variables, and the address of Airflow's database with its password. None of these is needed
   to read a table.
2. It gets the task's identity (AIRFLOW_CTX_…), which the evidence names.
3. It gets the secrets of the catalog and the store (CLEANTAIL_…), without which there is nothing to read, but for the
   token of the metrics.
4. It gets no login of Kafka (CLEANTAIL_KAFKA_…): the one job that reads from there gets its login in a file.
5. It gets whatever else Spark, Java or a cloud's library may look for.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cleantail.codec import digest_of
from cleantail.home.home_folder import holds_within, make_folder

TOKEN_VARIABLE = "CLEANTAIL_METRICS_TOKEN"
"""The variable of the token that opens the metrics, in the environment of the API server."""
_AIRFLOW_PREFIXES = ("AIRFLOW", "_AIRFLOW", "__AIRFLOW")
"""The beginnings of Airflow's variables: settings (AIRFLOW__…, also by _CMD and _SECRET), AIRFLOW_CONN_…,
AIRFLOW_VAR_…, passwords."""
_KAFKA_PREFIX, _KAFKA_JARS = "CLEANTAIL_KAFKA_", "CLEANTAIL_KAFKA_JARS"
"""The beginning of the variables of a Kafka client, and the one of that beginning that is none."""
_TASK_IDENTITY_PREFIX = "AIRFLOW_CTX_"
"""The beginning of the variables that say which task of which run this is."""


def of_driver(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a driver that a process with the environment `env` starts."""
    return {name: value for name, value in env.items() if not _is_kept_back(name)}


def with_own_python(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a script of Spark: it finds Spark by this Python, whether or not the environment that
    this Python belongs to is activated."""
    folders = [str(Path(sys.executable).parent), env.get("PATH", "")]
    return {
        **env,
        "PATH": os.pathsep.join(filter(None, folders)),
        "PYSPARK_PYTHON": env.get("PYSPARK_PYTHON") or sys.executable,
    }


def _is_kept_back(name: str) -> bool:
    upper = name.upper()
    return (
        name == TOKEN_VARIABLE
        or (name.startswith(_KAFKA_PREFIX) and name != _KAFKA_JARS)
        or (upper.startswith(_AIRFLOW_PREFIXES) and not upper.startswith(_TASK_IDENTITY_PREFIX))
    )


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
