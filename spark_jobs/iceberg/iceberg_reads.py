"""Read Iceberg's metadata through the JVM: snapshots, history, and the files that a commit or a branch changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from cleantail.config.topic_table import require_known_format
from cleantail.errors import ConflictError
from cleantail.lake.metadata_guards import require_data_alone
from cleantail.lake.records.topic_columns import PROPERTY_COLUMNS
from cleantail.lake.storage_locations import DELETES_OLD_METADATA, deletes_old_metadata, require_inner_log
from cleantail.rounds.commit_summaries import BEFORE, OPERATION, ROUNDS, Commit
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
from spark_jobs.iceberg.java_calls import each, schema_json, static, texts

SNAPSHOTS = "org.apache.iceberg.util.SnapshotUtil"


def main_history(jvm: Any, iceberg: Any) -> MainHistory:
    """Return the history of `main` of an Iceberg `Table`. The table of a transaction is allowed."""
    current = iceberg.currentSnapshot()
    oldest = static(jvm, SNAPSHOTS, "oldestAncestor")(iceberg) if current is not None else None
    return MainHistory(
        table_uuid=str(iceberg.uuid()),
        current=mark_of(current),
        has=lambda snapshot_id: is_ancestor(jvm, iceberg, snapshot_id),
        oldest_sequence_number=int(oldest.sequenceNumber()) if oldest is not None else 0,
        is_whole=oldest is None or oldest.parentId() is None,
        last_round=lambda: mark_of(
            next((s for s in _ancestry(iceberg, current) if s.summary().get(OPERATION) in ROUNDS), None)
        ),
    )


def is_ancestor(jvm: Any, iceberg: Any, snapshot_id: int) -> bool:
    if iceberg.currentSnapshot() is None:
        return False
    return bool(static(jvm, SNAPSHOTS, "isAncestorOf")(iceberg, snapshot_id))


def mark_of(snapshot: Any) -> Mark | None:
    return None if snapshot is None else Mark(int(snapshot.snapshotId()), int(snapshot.sequenceNumber()))


def require_history(jvm: Any, iceberg: Any, table: str) -> None:
    """Raise ConflictError if others rewrote the history of `main`, and no commit has recorded this yet."""
    properties = texts(iceberg.properties())
    if may_be_rewritten(properties) and lost_marks(properties, main_history(jvm, iceberg), table):
        raise ConflictError(
            f"{table}: another program removed the last round or the last ingestion from the history of main (a "
            "rollback, or CREATE OR REPLACE TABLE): nothing was changed. The next run starts from the "
            "present table"
        )


def marked(transaction: Any, table: str, *, published: bool = False, ingested: bool = False) -> dict[str, str]:
    """Return the property with marks at the snapshot that a transaction has just made. Without such a property before,
    it also marks the last ingestion."""
    now = transaction.table()
    marks, mark = marks_of(texts(now.properties()), table, str(now.uuid())), mark_of(now.currentSnapshot())
    marks = replace(marks, published=mark) if published else marks
    return property_of_marks(replace(marks, ingested=mark) if ingested or marks.ingested is None else marks)


def properties_after(jvm: Any, iceberg: Any, table: str, at_ms: int) -> tuple[dict[str, str], tuple[str, ...], bool]:
    """Return the properties to set and remove after others rewrote history, and whether a published round is lost."""
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
    """Return the commits from a lost commit back to the ancestry of `main`."""
    summaries, parent = list[Mapping[str, str]](), snapshot_id
    while parent is not None and not history.has(parent) and (snapshot := iceberg.snapshot(parent)) is not None:
        summaries.append(texts(snapshot.summary()))
        parent = snapshot.parentId()
    return GoneCommits(tuple(summaries), parent is None or history.has(parent))


SPARK_UTIL = "org.apache.iceberg.spark.Spark3Util"
T = TypeVar("T")
CHANGES = ("removedDeleteFiles", "addedDeleteFiles", "removedDataFiles", "addedDataFiles")
"""Methods of a snapshot that return the changes of its commit."""


def kinds_of(error: Py4JJavaError) -> set[str]:
    """Return the class names of the exception and its causes, because Iceberg's actions wrap exceptions of a commit."""
    kinds, cause = set(), error.java_exception
    while cause is not None:
        kinds.add(str(cause.getClass().getSimpleName()))
        cause = cause.getCause()
    return kinds


UNANSWERED = {"SocketTimeoutException", "ConnectionClosedException"}
"""Exceptions of Java for an answer of the catalog that did not come, or that ended too early."""


def asked_again(read: Callable[[], T]) -> T:
    """Return the result of a read of the catalog, by a second read if the first answer was not complete. Iceberg's REST
    client itself repeats other failed reads."""
    try:
        return read()
    except Py4JJavaError as e:
        if not kinds_of(e) & UNANSWERED:
            raise
    return read()


def iceberg_table(spark: SparkSession, name: str) -> Any:
    """Return the Iceberg `Table` of that name.

    Raises TableError if its format is unknown, or if its properties name code, which Iceberg would load at a read or
    write. Properties may change at any time, so each load checks them. Also raises TableError if a commit to an adopted
    table would delete metadata files outside its location.
    """
    return with_properties(spark, name)[0]


def with_properties(spark: SparkSession, name: str) -> tuple[Any, dict[str, str]]:
    """Load a table as iceberg_table does, and return it with its properties."""
    load = static(spark._jvm, SPARK_UTIL, "loadIcebergTable")
    table = asked_again(lambda: load(spark._jsparkSession, name))
    properties = texts(table.properties())
    require_known_format(name, properties)
    if PROPERTY_COLUMNS in properties and deletes_old_metadata(properties.get(DELETES_OLD_METADATA)):
        log = [entry.file() for entry in each(table.operations().current().previousFiles())]
        require_inner_log(name, str(table.location()), [str(file) for file in log])
    require_data_alone(name, properties)
    return table, properties


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A data file that had several registrations and now has one, with its first sequence number."""

    file: Any
    sequence_number: int


@dataclass(frozen=True, slots=True)
class BranchChange:
    """The changes of a branch. `added`, `removed`: delete files. `kept`: data files that now have one registration.
    `data_files_changed`: number of added or removed data files, 0 in a round."""

    added: tuple[Any, ...]
    removed: tuple[Any, ...]
    data_files_changed: int
    kept: tuple[KeptFile, ...] = ()

    def of_partitions(self, partitions: set[int]) -> BranchChange:
        added, removed = (
            tuple(file for file in files if partition_of(file) in partitions) for files in (self.added, self.removed)
        )
        kept = tuple(k for k in self.kept if partition_of(k.file) in partitions)
        return BranchChange(added, removed, self.data_files_changed, kept)


def branch_change(table: Any, branch: str, base_snapshot_id: int) -> BranchChange:
    """Return the changes of the branch since the base, without delete files that the branch both added and replaced."""
    added: dict[tuple[str, int], Any] = {}
    removed: dict[tuple[str, int], Any] = {}
    data_files: dict[str, list[tuple[bool, Any]]] = {}
    head = table.snapshot(branch)
    if head is None:
        raise ConflictError(f"branch {branch} is gone: another process has published the round, or dropped it")
    since, io = takewhile(lambda s: s.snapshotId() != base_snapshot_id, _ancestry(table, head)), table.io()
    for snapshot in reversed(list(since)):
        removed_deletes, added_deletes, *of_data = (list(each(getattr(snapshot, change)(io))) for change in CHANGES)
        for file in removed_deletes:
            if added.pop(name := identity(file), None) is None:
                removed[name] = file
        added |= {identity(file): file for file in added_deletes}
        for is_added, files in zip((False, True), of_data, strict=True):
            for file in files:
                data_files.setdefault(str(file.location()), []).append((is_added, file))
    kept = tuple(KeptFile(steps[-1][1], _arrived(steps[-1][1])) for steps in data_files.values() if _is_kept(steps))
    changed = sum(len(steps) for steps in data_files.values() if not _is_kept(steps))
    return BranchChange(tuple(added.values()), tuple(removed.values()), changed, kept)


def _is_kept(steps: Sequence[tuple[bool, Any]]) -> bool:
    """Return whether a data file had several registrations and now has one, equal to the first. `steps`: its removals
    and additions (True), in order."""
    *removed, (is_added, file) = steps
    if not is_added or len(removed) < 2 or any(is_new for is_new, _ in removed):
        return False
    facts = {(f.recordCount(), f.fileSizeInBytes(), f.specId(), str(f.format())) for _, f in steps}
    return len(facts) == 1 and _arrived(file) == min(_arrived(f) for _, f in removed)


def _arrived(file: Any) -> int:
    return int(file.dataSequenceNumber())


def _ancestry(table: Any, snapshot: Any | None) -> Iterator[Any]:
    """Yield the snapshot and its ancestors, newest first, until one has expired."""
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parentId()
        snapshot = table.snapshot(parent) if parent is not None else None


def identity(file: Any) -> tuple[str, int]:
    """Return (path, offset in the file), because one Puffin file has the deletion vectors of many data files."""
    return str(file.location()), int(file.contentOffset() or 0)


def partition_of(file: Any) -> int:
    """Return the log of a data or delete file: the table's one partition field is `partition`."""
    return int(file.partition().get(0))


def added_by(table: Any, snapshot: int | str) -> list[Any]:
    """Return the data files that a snapshot added. `snapshot`: its id, or the name of a branch."""
    return list(each(table.snapshot(snapshot).addedDataFiles(table.io())))


def tasks_of(jvm: Any, table: Any, files: Iterable[Any]) -> list[Any]:
    """Return scan tasks of whole data files of the table's current partition spec, which may be in no commit yet."""
    schema = schema_json(table.schema())
    spec = static(jvm, "org.apache.iceberg.PartitionSpecParser", "toJson")(table.spec())
    everything = static(jvm, "org.apache.iceberg.expressions.Expressions", "alwaysTrue")()
    residual = static(jvm, "org.apache.iceberg.expressions.ResidualEvaluator", "unpartitioned")(everything)
    task = getattr(jvm, "org.apache.iceberg.BaseFileScanTask")
    return [task(file, None, schema, spec, residual) for file in files]


def history(table: Any) -> Iterator[Commit]:
    """Yield the ancestry of `main`, newest first, until a snapshot has expired."""
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        parent = snapshot.parentId()
        yield Commit(
            int(snapshot.snapshotId()),
            None if parent is None else int(parent),
            int(snapshot.timestampMillis()),
            str(snapshot.operation()),
            texts(snapshot.summary()),
        )
        snapshot = table.snapshot(parent) if parent is not None else None


def rounds_since(table: Any, snapshot_id: int) -> dict[int, str]:
    """Return snapshot -> its BEFORE, for the rounds of `main` after a snapshot, newest first. Empty if that snapshot is
    not in the history of `main`."""
    rounds = dict[int, str]()
    for snapshot in _ancestry(table, table.currentSnapshot()):
        if (later := int(snapshot.snapshotId())) == snapshot_id:
            return rounds
        summary = texts(snapshot.summary())
        if summary.get(OPERATION) in ROUNDS and BEFORE in summary:
            rounds[later] = summary[BEFORE]
    return {}


def files_with_deletes(table: Any, snapshot_id: int, of: Any = None) -> list[tuple[Any, list[Any]]]:
    """Return a snapshot's data files with column metrics, each with its delete files. `of`: a pruning expression."""
    scan = table.newScan().useSnapshot(snapshot_id).includeColumnStats()
    tasks = (scan if of is None else scan.filter(of)).planFiles()
    try:
        return [(task.file(), list(each(task.deletes()))) for task in each(tasks)]
    finally:
        tasks.close()


def data_file_of(jvm: Any, delete: Any) -> str:
    """Return the one data file of a delete file: a vector names it, position deletes may have it in their bounds. The
    text `None` stands for several data files."""
    return data_files_of(jvm, [delete])[0]


def data_files_of(jvm: Any, deletes: Sequence[Any]) -> list[str]:
    by_bounds = static(jvm, "org.apache.iceberg.util.ContentFileUtil", "referencedDataFileLocation")
    return [str(delete.referencedDataFile() or by_bounds(delete)) for delete in deletes]


def require_own_deletes(jvm: Any, deletes: Iterable[tuple[str, Sequence[Any]]]) -> None:
    """Raise ConflictError if a delete file has rows of several data files, because its removal would restore rows.

    When the round was planned, no such file existed (cleantail.lake.table_metadata.deletes_of). `deletes`: path of each
    data file, and its delete files.
    """
    of_file = [(path, delete) for path, some in deletes for delete in some]
    for (path, delete), data_file in zip(of_file, data_files_of(jvm, [d for _, d in of_file]), strict=True):
        if data_file != path:
            raise ConflictError(f"{delete.location()} was added meanwhile, and deletes rows of several data files")


def on_local_disk(table: Any) -> bool:
    return str(table.location()).startswith("file:")
