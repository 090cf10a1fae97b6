"""Delete old logs of the embedded Airflow. Airflow itself deletes none.

The folder `logs` has a file for each try of each task, and files of the DAG processor. Runs stay in Airflow's database
(docs/operations.md).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

KEPT_DAYS = 30
MOST_BYTES = 50 << 20
"""Size of `airflow.log`, the log of Airflow's own processes, above which it is emptied."""
DAY_S = 86_400


def delete_old_logs(home: Path, now_s: float) -> int:
    """Delete files that have not changed for KEPT_DAYS, and folders that are empty then. Return the number of files.
    Follows no link."""
    deleted = 0
    for folder, _, names in os.walk(home / "logs", topdown=False):
        unchanged = Path(folder).stat().st_mtime < now_s - DAY_S  # otherwise a task may be about to write to it
        for path in (Path(folder, name) for name in names):
            with contextlib.suppress(FileNotFoundError):
                if path.lstat().st_mtime < now_s - KEPT_DAYS * DAY_S:
                    path.unlink()
                    deleted += 1
        if unchanged and Path(folder) != home / "logs":
            with contextlib.suppress(OSError):  # the folder is not empty
                Path(folder).rmdir()
    with contextlib.suppress(FileNotFoundError):
        if (home / "airflow.log").stat().st_size > MOST_BYTES:
            os.truncate(home / "airflow.log", 0)
    return deleted
