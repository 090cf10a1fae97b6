"""Reads of Iceberg's metadata through the JVM: snapshots, and the files that a commit or a branch changed.

It also reads the history of `main`, and prepares the commit that takes note that others rewrote it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from cleantail.errors import ConflictError
from cleantail.lake.metadata_guards import require_data_alone
from cleantail.lake.records.topic_columns import PROPERTY_COLUMNS
from cleantail.lake.storage_locations import DELETES_OLD_METADATA, deletes_old_metadata, require_inner_log
from cleantail.rounds.commit_summaries import OPERATION, ROUNDS, Commit
from cleantail.rounds.rewritten_history import (
    GoneCommits,
    MainHistory,
    Mark,
    after_rewriting,
    changes,
    lost_marks,
    marks_of,
    may_be_rewritten,
    property_of_marks,
)
from spark_jobs.iceberg.jvm.java_collections import each, elements_of
from spark_jobs.iceberg.jvm.java_json import as_dict
from spark_jobs.iceberg.jvm.manifest_threads import scanning
from spark_jobs.iceberg.jvm.many_calls import answers, ask, facts_of
from spark_jobs.iceberg.jvm.static_members import static

SNAPSHOTS = "org.apache.iceberg.util.SnapshotUtil"


def main_history(jvm: Any, iceberg: Any) -> MainHistory:
    """Return the history of `main` of an Iceberg `Table`, also of one of a transaction."""
    current = iceberg.currentSnapshot()
    oldest = static(jvm, SNAPSHOTS, "oldestAncestor")(iceberg) if current is not None else None
    return MainHistory(
        table_uuid=str(iceberg.uuid()),
        current=mark_of(current),
        has=lambda snapshot_id: is_ancestor(jvm, iceberg, snapshot_id),
        oldest_sequence_number=int(oldest.sequenceNumber()) if oldest is not None else 0,
        is_whole=oldest is None or oldest.parentId() is None,
        last_round=lambda: _last_round(iceberg),
    )


def _last_round(iceberg: Any) -> Mark | None:
    snapshot = iceberg.currentSnapshot()
    while snapshot is not None and snapshot.summary().get(OPERATION) not in ROUNDS:
        snapshot = iceberg.snapshot(snapshot.parentId()) if snapshot.parentId() is not None else None
    return mark_of(snapshot)


def is_ancestor(jvm: Any, iceberg: Any, snapshot_id: int) -> bool:
    """Return whether a snapshot is in the ancestry of `main`."""
    if iceberg.currentSnapshot() is None:
        return False
    return bool(static(jvm, SNAPSHOTS, "isAncestorOf")(iceberg, snapshot_id))


def mark_of(snapshot: Any) -> Mark | None:
    """Return the mark of a snapshot; None if there is none."""
    return None if snapshot is None else Mark(int(snapshot.snapshotId()), int(snapshot.sequenceNumber()))


def require_history(jvm: Any, iceberg: Any, table: str) -> None:
    """Raise ConflictError if others rewrote the history of `main`, and no commit took note of it yet."""
    properties = texts(iceberg.properties())
    if may_be_rewritten(properties) and lost_marks(properties, main_history(jvm, iceberg), table):
        raise ConflictError(
            f"{table}: another program took the last round or the last ingestion out of the history of main (a "
            "rollback, or CREATE OR REPLACE TABLE): nothing was changed. The next run starts from what "
            "the table has now"
        )


def marked(transaction: Any, table: str, *, published: bool = False, ingested: bool = False) -> dict[str, str]:
    """Return the property with marks at the snapshot that a transaction has just made. The first one marks the last
    ingestion too: versions without marks made those before it."""
    now = transaction.table()
    marks, mark = marks_of(texts(now.properties()), table, str(now.uuid())), mark_of(now.currentSnapshot())
    marks = replace(marks, published=mark) if published else marks
    return property_of_marks(replace(marks, ingested=mark) if ingested or marks.ingested is None else marks)


def properties_after(jvm: Any, iceberg: Any, table: str, at_ms: int) -> tuple[dict[str, str], tuple[str, ...], bool]:
    """Return which properties to set and to remove if others rewrote the history, and whether a published round is
    gone with it."""
    properties = texts(iceberg.properties())
    if not may_be_rewritten(properties):
        return {}, (), False
    history = main_history(jvm, iceberg)
    if (lost := lost_marks(properties, history, table)) is None:
        return {}, (), False
    gone = GoneCommits((), True)
    if lost.ingested:
        gone = _gone(iceberg, history, lost.ingested.snapshot_id)
    after = after_rewriting(properties, history, lost, gone, table, at_ms)
    return *changes(properties, after), lost.published is not None


def _gone(iceberg: Any, history: MainHistory, snapshot_id: int) -> GoneCommits:
    """Return the commits from a lost one back to the ancestry of `main`."""
    summaries, parent = list[Mapping[str, str]](), snapshot_id
    while parent is not None and not history.has(parent) and (snapshot := iceberg.snapshot(parent)) is not None:
        summaries.append(texts(snapshot.summary()))
        parent = snapshot.parentId()
    return GoneCommits(tuple(summaries), parent is None or history.has(parent))


CONTENT_FILES = "org.apache.iceberg.util.ContentFileUtil"
SPARK_UTIL = "org.apache.iceberg.spark.Spark3Util"
T = TypeVar("T")
CHANGES = ("removedDeleteFiles", "addedDeleteFiles", "removedDataFiles", "addedDataFiles")
"""What a snapshot says that its own commit has changed."""
FACTS = ("snapshotId", "parentId", "timestampMillis", "operation", "summary")
"""What a Commit is made of."""


def iceberg_table(spark: SparkSession, name: str) -> Any:
    """Return the Iceberg `Table` of that name. Raises TableError if its properties name code: Iceberg would load it
    when the table is read or written, and they may have changed since the table was looked at. Also where a commit to
    an adopted one would delete metadata files outside its location."""
    table = static(spark._jvm, SPARK_UTIL, "loadIcebergTable")(spark._jsparkSession, name)
    properties = table.properties()
    if properties.containsKey(PROPERTY_COLUMNS) and deletes_old_metadata(properties.get(DELETES_OLD_METADATA)):
        log = ask(list(each(table.operations().current().previousFiles())), "file")
        require_inner_log(name, str(table.location()), [str(file) for file in log])
    require_data_alone(name, static(spark._jvm, "java.lang.String", "join")("\n", properties.keySet()).split("\n"))
    return table


@dataclass(frozen=True, slots=True)
class KeptFile:
    """Describes a data file that was registered more than once, and is once, with the sequence number of when it came
    first."""

    file: Any
    sequence_number: int


@dataclass(frozen=True, slots=True)
class BranchChange:
    """Holds delete files a branch added and removed, how many data files it added or removed (none, in a round), and
    which it keeps once."""

    added: tuple[Any, ...]
    removed: tuple[Any, ...]
    data_files_changed: int
    kept: tuple[KeptFile, ...] = ()

    def of_partitions(self, partitions: set[int]) -> BranchChange:
        """Return the change without the files of other logs."""
        added, removed = (_of_partitions(files, files, partitions) for files in (self.added, self.removed))
        kept = _of_partitions(self.kept, [k.file for k in self.kept], partitions)
        return BranchChange(added, removed, self.data_files_changed, kept)

    def deleted_records(self) -> dict[int, int]:
        """Return how many records were deleted, by partition."""
        counts: dict[int, int] = {}
        for files, sign in ((self.added, 1), (self.removed, -1)):
            for partition, count in zip(partitions_of(files), ask(files, "recordCount"), strict=True):
                counts[partition] = counts.get(partition, 0) + sign * int(count)
        return counts


def _of_partitions(those: Sequence[T], files: Sequence[Any], partitions: set[int]) -> tuple[T, ...]:
    """Return those whose file is of one of the logs."""
    return tuple(one for one, log in zip(those, partitions_of(files), strict=True) if log in partitions)


def branch_change(table: Any, branch: str, base_snapshot_id: int) -> BranchChange:
    """Walk the branch from the base on: a delete file replaced on the branch itself never shows."""
    added: dict[tuple[str, int], Any] = {}
    removed: dict[tuple[str, int], Any] = {}
    data_files: dict[str, list[tuple[bool, Any]]] = {}
    head = table.snapshot(branch)
    if head is None:
        raise ConflictError(f"branch {branch} is gone: somebody else has published the round, or dropped it")
    since, io = takewhile(lambda s: s.snapshotId() != base_snapshot_id, _ancestry(table, head)), table.io()
    for snapshot in reversed(list(since)):
        changes = answers((getattr(snapshot, change), (io,)) for change in CHANGES)
        removed_deletes, added_deletes, *of_data = elements_of(changes)
        for name, file in zip(identities(removed_deletes), removed_deletes, strict=True):
            if added.pop(name, None) is None:
                removed[name] = file
        added |= zip(identities(added_deletes), added_deletes, strict=True)
        for is_added, files in zip((False, True), of_data, strict=True):
            for path, file in zip(ask(files, "location"), files, strict=True):
                data_files.setdefault(str(path), []).append((is_added, file))
    kept = tuple(KeptFile(steps[-1][1], _arrived(steps[-1][1])) for steps in data_files.values() if _is_kept(steps))
    changed = sum(len(steps) for steps in data_files.values() if not _is_kept(steps))
    return BranchChange(tuple(added.values()), tuple(removed.values()), changed, kept)


def _is_kept(steps: Sequence[tuple[bool, Any]]) -> bool:
    """Return whether a data file was there more than once, and is there once, as it was when it came first. `steps`:
    each time that it was removed, or added (True), in their order."""
    *removed, (is_added, file) = steps
    if not is_added or len(removed) < 2 or any(is_new for is_new, _ in removed):
        return False
    facts = {(f.recordCount(), f.fileSizeInBytes(), f.specId(), str(f.format())) for _, f in steps}
    return len(facts) == 1 and _arrived(file) == min(_arrived(f) for _, f in removed)


def _arrived(file: Any) -> int:
    return int(file.dataSequenceNumber())


def _ancestry(table: Any, snapshot: Any | None) -> Iterator[Any]:
    """Yield the snapshot and its ancestors, newest first, as far as they are kept. Iceberg's own walk (SnapshotUtil)
    takes as many calls to the JVM, and an object of its class first."""
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parentId()
        snapshot = table.snapshot(parent) if parent is not None else None


def identity(file: Any) -> tuple[str, int]:
    """Return what tells delete files apart: one Puffin file holds the deletion vectors of many data files."""
    return identities([file])[0]


def identities(files: Sequence[Any]) -> list[tuple[str, int]]:
    """Return the identity of each."""
    return [(str(location), int(offset or 0)) for location, offset in facts_of(files, "location", "contentOffset")]


def partition_of(file: Any) -> int:
    """Return the log that a data or delete file belongs to: `partition` is the table's one partition field."""
    return partitions_of([file])[0]


def partitions_of(files: Iterable[Any]) -> list[int]:
    """Return the log of each."""
    return [int(log) for log in ask(ask(files, "partition"), "get", 0)]


def added_data_files(table: Any, branch: str) -> list[Any]:
    """Return the files of the branch's last commit, which is the one append that was staged there."""
    return list(each(table.snapshot(branch).addedDataFiles(table.io())))


def added_by(table: Any, snapshot_id: int) -> list[Any]:
    """Return the data files that a snapshot's own commit added."""
    return list(each(table.snapshot(snapshot_id).addedDataFiles(table.io())))


def history(table: Any) -> Iterator[Commit]:
    """Yield the ancestry of `main`, newest first, as far as it is kept."""
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        [(number, parent, at_ms, operation, summary)] = facts_of([snapshot], *FACTS)
        yield Commit(int(number), None if parent is None else int(parent), int(at_ms), str(operation), texts(summary))
        snapshot = table.snapshot(parent) if parent is not None else None


def files_with_deletes(table: Any, snapshot_id: int, of: Any = None) -> list[tuple[Any, list[Any]]]:
    """Return the data files of a snapshot, with the metrics of their columns, each with its delete files. `of`: an
    expression; only files that can have rows for which it holds."""
    scan = scanning(table).useSnapshot(snapshot_id).includeColumnStats()
    tasks = (scan if of is None else scan.filter(of)).planFiles()
    try:
        planned = list(each(tasks))
        return list(zip(ask(planned, "file"), elements_of(ask(planned, "deletes")), strict=True))
    finally:
        tasks.close()


def data_file_of(jvm: Any, delete: Any) -> str:
    """Return the data file that a delete file is of; of several it is none. A vector names it; position deletes may
    tell it by their bounds."""
    return data_files_of(jvm, [delete])[0]


def data_files_of(jvm: Any, deletes: Sequence[Any]) -> list[str]:
    """Return the data file of each delete file."""
    named = ask(deletes, "referencedDataFile")
    by_bounds = static(jvm, CONTENT_FILES, "referencedDataFileLocation")
    others = iter(answers((by_bounds, (d,)) for d, name in zip(deletes, named, strict=True) if not name))
    return [str(name or next(others)) for name in named]


def require_own_deletes(jvm: Any, deletes: Iterable[tuple[str, Sequence[Any]]]) -> None:
    """Raise ConflictError if a delete file is not of its data file alone: with it would go what it deletes of
    others. Such as these were not there when the round was planned (cleantail.lake.table_metadata.deletes_of).
    `deletes`: paths of data files, and the delete files of each."""
    of_file = [(path, delete) for path, some in deletes for delete in some]
    for (path, delete), data_file in zip(of_file, data_files_of(jvm, [d for _, d in of_file]), strict=True):
        if data_file != path:
            raise ConflictError(f"{delete.location()} came meanwhile, and deletes rows of more than one data file")


def listed_by_io(table: Any) -> bool:
    """Return whether Iceberg's own file IO lists the table's folder: Hadoop lists local files, and does not list an
    object store."""
    return not str(table.location()).startswith("file:")


def texts(java_map: Any) -> dict[str, str]:
    """Return a Java map of texts, such as properties or a summary, as a dict."""
    return {name: str(value) for name, value in as_dict(java_map).items()}
