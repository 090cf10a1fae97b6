"""Spark's daemon of Python workers, with the engine's imports made before it forks one: `spark.python.daemon.module`.

1. A worker begins its first task at once, and all of them share these pages of memory. PyIceberg imports its store
   where the first file is opened: half a second for each worker, if it is not done here.
2. PySpark is imported from where it is installed, and not from the archive that Spark puts before it, and a jar of
   Spark's is no place of modules: before every task a worker asks Python to look at all places of modules again, and up
   to Python 3.11 that reads the directory of each archive again, which takes 0.2 s a task, 0.06 s of it for the jar.
3. No task has a use for pandas, which PyArrow would import: a third of a second.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

ARCHIVES = (".zip", ".jar")


def leave_archives() -> None:
    """Take archives out of the places where Python looks for modules."""
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(ARCHIVES)]
    for entry in [p for p in sys.path_importer_cache if any(archive in p for archive in ARCHIVES)]:
        del sys.path_importer_cache[entry]


def until_let_go(worker: Callable[[Any, Any], int]) -> Callable[[Any, Any], int]:
    """Return PySpark's `worker(socket, authenticated)` as one that ends quietly once its connection is closed."""

    def quiet(sock: Any, authenticated: Any) -> int:
        try:
            return worker(sock, authenticated)
        except BrokenPipeError:
            return 1

    return quiet


if __name__ == "__main__":
    leave_archives()  # before any other import: `copy` looks for Jython's package `org`, which a jar seems to have
    from cleantail.home.process import leave_out

    leave_out("pandas")

    import duckdb  # noqa: F401  # which a task imports with its database
    import pyiceberg.io.pyarrow  # noqa: F401
    from pyspark import daemon

    import spark_jobs.engine.expiry
    import spark_jobs.engine.judgement
    import spark_jobs.engine.key_buckets
    import spark_jobs.engine.removals
    import spark_jobs.engine.rewrite_task  # noqa: F401

    # workers collect garbage after every task: these objects are none, and are passed over
    gc.freeze()
    daemon.worker = until_let_go(daemon.worker)
    daemon.manager()  # type: ignore[no-untyped-call]
