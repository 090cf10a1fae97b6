"""Which threads of the JVM read and write the manifests of a commit, or of a scan.

Iceberg hands each step to threads of its own, and looks every 10 ms whether they have done it. A commit has about six
such steps, each of which takes a millisecond where a small table is on a local disk: there the thread that commits
does them itself. An object store, or many files, are worth the threads.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from spark_jobs.iceberg.jvm.many_calls import facts_of
from spark_jobs.iceberg.jvm.static_members import of_class

EXECUTORS = "org.apache.iceberg.relocated.com.google.common.util.concurrent.MoreExecutors"
FEW_FILES = 10_000
"""A table of more data files may have manifests enough to keep several threads busy."""


def committing(update: Any, table: Any) -> Any:
    """Return the update of a table (an append, a row delta, a rewrite) with the threads that are worth it."""
    return update.scanManifestsWith(_this_thread(table._gateway_client)) if _is_small(table) else update


def scanning(table: Any) -> Any:
    """Return a new scan of a table with the threads that are worth it."""
    scan = table.newScan()
    return scan.planWith(_this_thread(table._gateway_client)) if _is_small(table) else scan


def is_small(location: str, data_files: int) -> bool:
    """Return whether one thread has read the manifests before Iceberg would have looked at its own threads."""
    return "://" not in location.removeprefix("file://") and data_files <= FEW_FILES


def _is_small(table: Any) -> bool:
    [(location, snapshot)] = facts_of([table], "location", "currentSnapshot")
    data_files = 0 if snapshot is None else snapshot.summary().get("total-data-files")
    return is_small(str(location), int(data_files or 0))


@cache
def _this_thread(client: Any) -> Any:
    """Return what runs each task at once, in the thread that hands it in. There is one for each JVM."""
    return of_class(client, EXECUTORS, "newDirectExecutorService")()
