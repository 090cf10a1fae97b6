"""The process of a Spark driver: its environment, and its end by the next try of a task.

The environment:

1. A driver reads data that others wrote, and runs for hours. So it gets no secrets of Airflow: no signing keys,
   connections, variables, or database login.
2. It gets the task's identity (AIRFLOW_CTX_…), which the evidence names.
3. It gets the secrets of the catalog and the store (CLEANTAIL_…), and the secret of erasures. It gets neither the token
   of the metrics nor the key that signs certificates.
4. It gets no Kafka login (CLEANTAIL_KAFKA_…). The one job that reads from Kafka gets its login in a file.
5. It gets all other variables, because Spark, Java or a cloud's library may need them.

A worker may die while its driver continues. The next try ends that driver. Process ids are reused, so the try ends
only a process of this machine and boot with the noted start time. A driver on another machine cannot be ended. Its
commit happens once or not at all.
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

CERTIFICATE_KEY = "CLEANTAIL_CERTIFICATE_KEY"
"""Variable with the key that signs certificates of erasures. Drivers of Airflow's tasks do not sign."""
TOKEN_VARIABLE = "CLEANTAIL_METRICS_TOKEN"
"""Token of the metrics, set in the environment of the API server."""
_AIRFLOW_PREFIXES = ("AIRFLOW", "_AIRFLOW", "__AIRFLOW")
"""Prefixes of Airflow's variables: settings (AIRFLOW__…, also with _CMD and _SECRET), AIRFLOW_CONN_…, AIRFLOW_VAR_…,
passwords."""
_KAFKA_PREFIX, _KAFKA_JARS = "CLEANTAIL_KAFKA_", "CLEANTAIL_KAFKA_JARS"
"""Prefix of the variables of a Kafka client, and the one variable with that prefix that is not a client setting."""
_TASK_IDENTITY_PREFIX = "AIRFLOW_CTX_"
"""Prefix of the variables that name the task and its run."""
FOLDER = "drivers"
ENDS_WITHIN_S = 20.0
"""Seconds from SIGTERM to SIGKILL of a driver."""
_PAUSE_S = 0.05
_PROC = Path("/proc")


def of_driver(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a driver, from the environment of its starter."""
    return {name: value for name, value in env.items() if not _is_withheld(name)}


def with_own_python(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a Spark script, with this Python, even if its virtual environment is not active."""
    folders = [str(Path(sys.executable).parent), env.get("PATH", "")]
    return {
        **env,
        "PATH": os.pathsep.join(filter(None, folders)),
        "PYSPARK_PYTHON": env.get("PYSPARK_PYTHON") or sys.executable,
    }


def _is_withheld(name: str) -> bool:
    upper = name.upper()
    return (
        name in (TOKEN_VARIABLE, CERTIFICATE_KEY)
        or (name.startswith(_KAFKA_PREFIX) and name != _KAFKA_JARS)
        or (upper.startswith(_AIRFLOW_PREFIXES) and not upper.startswith(_TASK_IDENTITY_PREFIX))
    )


def note_of(home: Path, identity: Sequence[object]) -> Path:
    """Return the file that notes the process of a task, the same for all its tries. Makes its folder."""
    return make_folder(home, FOLDER) / f"{digest_of(map(str, identity))}.json"


def note(file: Path, pid: int) -> None:
    file.write_text(json.dumps({**_here(), "pid": pid, "started": _started(pid)}), encoding="utf-8")


def forget(file: Path) -> None:
    file.unlink(missing_ok=True)


def end_earlier(file: Path, within_s: float = ENDS_WITHIN_S) -> int | None:
    """End the process that an earlier try left, with its descendants. Return its id, None if it does not run here."""
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
    """Identify this machine and its boot."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        boot = ""
    return {"host": socket.gethostname(), "boot": boot}


def _started(pid: int) -> int:
    """Return the start time of a process in ticks since boot, or -1 if it does not run or is a zombie."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in ("Z", "X") else -1


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, which may contain blanks. The first field is the state."""
    try:
        return (_PROC / str(pid) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return []


def _descendants(pid: int) -> list[int]:
    """Return all descendants of a process, the youngest generation first."""
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
