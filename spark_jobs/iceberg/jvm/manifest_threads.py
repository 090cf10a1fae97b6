"""Choose the JVM's threads that read and write the manifests of a commit or a scan.

Iceberg passes each step to a thread pool, and polls every 10 ms whether it is done. A commit has about six such
steps. Each takes a millisecond if a small table is on a local disk, so the committing thread does them itself. For
an object store, or many files, the thread pool is faster.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from spark_jobs.iceberg.jvm.many_calls import facts_of
from spark_jobs.iceberg.jvm.static_members import of_class

EXECUTORS = "org.apache.iceberg.relocated.com.google.common.util.concurrent.MoreExecutors"
FEW_FILES = 10_000
"""Maximum number of data files of a small table. Above it there may be enough manifests to keep several threads
busy."""


def committing(update: Any, table: Any) -> Any:
    """Return the update of a table (an append, a row delta, a rewrite) with the faster kind of threads."""
    return update.scanManifestsWith(_this_thread(table._gateway_client)) if _is_small(table) else update


def scanning(table: Any) -> Any:
    """Return a new scan of a table with the faster kind of threads."""
    scan = table.newScan()
    return scan.planWith(_this_thread(table._gateway_client)) if _is_small(table) else scan


def is_small(location: str, data_files: int) -> bool:
    """Return whether one thread reads the manifests faster than Iceberg polls its thread pool."""
    return "://" not in location.removeprefix("file://") and data_files <= FEW_FILES


def _is_small(table: Any) -> bool:
    [(location, snapshot)] = facts_of([table], "location", "currentSnapshot")
    data_files = 0 if snapshot is None else snapshot.summary().get("total-data-files")
    return is_small(str(location), int(data_files or 0))


@cache
def _this_thread(client: Any) -> Any:
    """Return an executor that runs each task at once in the calling thread. Created once for each JVM."""
    return of_class(client, EXECUTORS, "newDirectExecutorService")()
