"""Spark's daemon of Python workers (`spark.python.daemon.module`), which imports the engine before it forks a worker.

1. All workers share the imported pages of memory, and begin their first task at once. PyIceberg would import its store
   when the first file is opened, which takes half a second in each worker.
2. PySpark is imported from its installation, not from the archive that Spark puts before it. Archives and jars leave
   the import path: before every task a worker invalidates Python's import caches. Up to Python 3.11 that reads the
   directory of each archive again. This takes 0.2 s a task, 0.06 s of it for the jar.
3. No task uses pandas, which PyArrow would import in a third of a second.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

ARCHIVES = (".zip", ".jar")


def until_let_go(worker: Callable[[Any, Any], int]) -> Callable[[Any, Any], int]:
    """Return PySpark's `worker(socket, authenticated)`, changed to end quietly when its connection is closed."""

    def quiet(sock: Any, authenticated: Any) -> int:
        try:
            return worker(sock, authenticated)
        except BrokenPipeError:
            return 1

    return quiet


if __name__ == "__main__":
    # before any other import: `copy` imports Jython's package `org` if it exists, and a jar seems to have it
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(ARCHIVES)]
    for entry in [p for p in sys.path_importer_cache if any(archive in p for archive in ARCHIVES)]:
        del sys.path_importer_cache[entry]
    import duckdb  # noqa: F401  # which a task imports with its database
    import pyiceberg.io.pyarrow  # noqa: F401
    from pyspark import daemon

    import spark_jobs.engine.expired_tombstones
    import spark_jobs.engine.removals
    import spark_jobs.engine.rewrite_task
    import spark_jobs.engine.shared_logs
    import spark_jobs.engine.violations  # noqa: F401

    # exclude the imported objects from the garbage collection that a worker runs after every task
    gc.freeze()
    daemon.worker = until_let_go(daemon.worker)
    daemon.manager()  # type: ignore[no-untyped-call]
