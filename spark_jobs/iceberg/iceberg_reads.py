"""Reads of Iceberg's metadata through the JVM: snapshots, and the files that a commit or a branch changed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.errors import UnsupportedOperationException
from pyspark.sql import SparkSession

from cleantail.errors import ConflictError, TableError
from cleantail.rounds.rollback import Commit
from spark_jobs.iceberg.jvm.java_json import as_dict
from spark_jobs.iceberg.jvm.manifest_threads import scanning

CONTENT_FILES = "org.apache.iceberg.util.ContentFileUtil"
JAVA_LISTS = "org.apache.iceberg.relocated.com.google.common.collect.Lists"
UNKNOWN_TYPE = "Type: unknown"
"""What Iceberg says of a partition field whose source column was dropped."""
REPARTITION = (
    "Iceberg writes them anew by the present columns: CALL system.rewrite_data_files(table => …, options => "
    "map('rewrite-all', 'true'))"
)
SPARK_UTIL = "org.apache.iceberg.spark.Spark3Util"


def iceberg_table(spark: SparkSession, name: str) -> Any:
    """Returns the Iceberg `Table` of that name. The Java class goes by its whole name: name by name, as
    `jvm.org.apache…`, the JVM would look for each package in every jar first."""
    return getattr(spark._jvm, SPARK_UTIL).loadIcebergTable(spark._jsparkSession, name)


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
        """Returns the change without the files of other logs."""
        added = tuple(f for f in self.added if partition_of(f) in partitions)
        removed = tuple(f for f in self.removed if partition_of(f) in partitions)
        kept = tuple(k for k in self.kept if partition_of(k.file) in partitions)
        return BranchChange(added, removed, self.data_files_changed, kept)

    def deleted_records(self) -> dict[int, int]:
        """Returns how many records were deleted, by partition."""
        counts: dict[int, int] = {}
        for files, sign in ((self.added, 1), (self.removed, -1)):
            for file in files:
                partition = partition_of(file)
                counts[partition] = counts.get(partition, 0) + sign * int(file.recordCount())
        return counts


def branch_change(table: Any, branch: str, base_snapshot_id: int) -> BranchChange:
    """Walks the branch from the base on: a delete file replaced on the branch itself never shows."""
    added: dict[tuple[str, int], Any] = {}
    removed: dict[tuple[str, int], Any] = {}
    data_files: dict[str, list[tuple[bool, Any]]] = {}
    head = table.snapshot(branch)
    if head is None:
        raise ConflictError(f"branch {branch} is gone: somebody else has published the round, or dropped it")
    since = takewhile(lambda s: s.snapshotId() != base_snapshot_id, _ancestry(table, head))
    for snapshot in reversed(list(since)):
        for file in each(snapshot.removedDeleteFiles(table.io())):
            if added.pop(identity(file), None) is None:
                removed[identity(file)] = file
        for file in each(snapshot.addedDeleteFiles(table.io())):
            added[identity(file)] = file
        for file in each(snapshot.removedDataFiles(table.io())):
            data_files.setdefault(str(file.location()), []).append((False, file))
        for file in each(snapshot.addedDataFiles(table.io())):
            data_files.setdefault(str(file.location()), []).append((True, file))
    kept = tuple(KeptFile(steps[-1][1], _arrived(steps[-1][1])) for steps in data_files.values() if _is_kept(steps))
    changed = sum(len(steps) for steps in data_files.values() if not _is_kept(steps))
    return BranchChange(tuple(added.values()), tuple(removed.values()), changed, kept)


def _is_kept(steps: Sequence[tuple[bool, Any]]) -> bool:
    """Returns whether a data file was there more than once, and is there once, as it was when it came first. `steps`:
    each time that it was removed, or added (True), in their order."""
    *removed, (is_added, file) = steps
    if not is_added or len(removed) < 2 or any(is_new for is_new, _ in removed):
        return False
    facts = {(f.recordCount(), f.fileSizeInBytes(), f.specId(), str(f.format())) for _, f in steps}
    return len(facts) == 1 and _arrived(file) == min(_arrived(f) for _, f in removed)


def _arrived(file: Any) -> int:
    return int(file.dataSequenceNumber())


def _ancestry(table: Any, snapshot: Any | None) -> Iterator[Any]:
    """Yields the snapshot and its ancestors, newest first, as far as they are kept. Iceberg's own walk (SnapshotUtil)
    takes as many calls to the JVM, and an object of its class first."""
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parentId()
        snapshot = table.snapshot(parent) if parent is not None else None


def identity(file: Any) -> tuple[str, int]:
    """Returns what tells delete files apart: one Puffin file holds the deletion vectors of many data files."""
    return str(file.location()), int(file.contentOffset() or 0)


def partition_of(file: Any) -> int:
    """Returns the log that a data or delete file belongs to: `partition` is the table's one partition field."""
    return int(file.partition().get(0))


def added_data_files(table: Any, branch: str) -> list[Any]:
    """Returns the files of the branch's last commit, which is the one append that was staged there."""
    return list(each(table.snapshot(branch).addedDataFiles(table.io())))


def added_by(table: Any, snapshot_id: int) -> list[Any]:
    """Returns the data files that a snapshot's own commit added."""
    return list(each(table.snapshot(snapshot_id).addedDataFiles(table.io())))


def history(table: Any) -> Iterator[Commit]:
    """Yields the ancestry of `main`, newest first, as far as it is kept."""
    for snapshot in _ancestry(table, table.currentSnapshot()):
        parent = snapshot.parentId()
        summary = texts(snapshot.summary())
        at_ms, operation = int(snapshot.timestampMillis()), str(snapshot.operation())
        yield Commit(int(snapshot.snapshotId()), None if parent is None else int(parent), at_ms, operation, summary)


def files_with_deletes(table: Any, snapshot_id: int) -> list[tuple[Any, list[Any]]]:
    """Returns the data files of a snapshot, with the metrics of their columns, each with its delete files."""
    tasks = scanning(table).useSnapshot(snapshot_id).includeColumnStats().planFiles()
    try:
        return [(t.file(), list(each(t.deletes()))) for t in each(tasks)]
    finally:
        tasks.close()


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """Describes a data file of a snapshot and its delete files: Iceberg's own object for them, and what its metadata
    say, as Iceberg writes it in JSON. One call for a file, where asking for each number takes thirty."""

    task: Any
    data_file: Mapping[str, Any]
    delete_files: Sequence[Mapping[str, Any]]

    @property
    def path(self) -> str:
        return str(self.data_file["file-path"])

    @property
    def arrived(self) -> int:
        """Returns the data sequence number."""
        return int(self.task.file().dataSequenceNumber())

    @property
    def updated(self) -> int:
        """Returns the file sequence number, which records inherit as that of their last change."""
        return int(self.task.file().fileSequenceNumber())

    @property
    def bounds(self) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """Returns the lower and the upper bounds of the columns, by field id."""
        lower, upper = self.counts("lower-bounds"), self.counts("upper-bounds")
        return ({n: bytes.fromhex(b) for n, b in lower.items()}, {n: bytes.fromhex(b) for n, b in upper.items()})

    def counts(self, name: str) -> dict[int, Any]:
        """Returns a mapping by field id, such as null-value-counts or lower-bounds; empty where there is none."""
        pairs = self.data_file.get(name) or {"keys": (), "values": ()}
        return dict(zip(pairs["keys"], pairs["values"], strict=True))


def planned_files(table: Any, jvm: Any, snapshot_id: int) -> list[PlannedFile]:
    """Returns the data files of a snapshot, each with its delete files. Raises TableError where a file is partitioned
    by a column that the table has no more."""
    to_json = jvm.org.apache.iceberg.ScanTaskParser.toJson
    tasks = scanning(table).useSnapshot(snapshot_id).includeColumnStats().planFiles()
    try:
        planned = []
        for task in each(tasks):
            described = json.loads(to_json(task))
            planned.append(PlannedFile(task, described["data-file"], described.get("delete-files", ())))
        return planned
    except UnsupportedOperationException as e:
        if UNKNOWN_TYPE not in str(e):
            raise
        raise TableError(f"{table.name()} has files that are partitioned by a dropped column. {REPARTITION}") from None
    finally:
        tasks.close()


def by_path(files: Iterable[PlannedFile]) -> dict[str, list[PlannedFile]]:
    """Returns the registrations of each file by its name: one, unless a sink has registered it again."""
    registrations: dict[str, list[PlannedFile]] = {}
    for file in files:
        registrations.setdefault(file.path, []).append(file)
    return registrations


def data_file_of(jvm: Any, delete: Any) -> str:
    """Returns the data file that a delete file is of; of several it is none. A vector names it; position deletes may
    tell it by their bounds."""
    return str(delete.referencedDataFile() or getattr(jvm, CONTENT_FILES).referencedDataFileLocation(delete))


def require_own_deletes(jvm: Any, file: Any, deletes: Iterable[Any]) -> None:
    """Raises ConflictError where a delete file is not of this data file alone: with it would go what it deletes of
    others. Such as these were not there when the round was planned (cleantail.lake.table_metadata.deletes_of)."""
    for delete in deletes:
        if data_file_of(jvm, delete) != str(file.location()):
            raise ConflictError(f"{delete.location()} came meanwhile, and deletes rows of more than one data file")


def listed_by_io(table: Any) -> bool:
    """Returns whether Iceberg's own file IO lists the table's folder: Hadoop lists local files, and does not list an
    object store."""
    return not str(table.location()).startswith("file:")


def texts(java_map: Any) -> dict[str, str]:
    """Returns a Java map of texts, such as properties or a summary, as a dict."""
    return {name: str(value) for name, value in as_dict(java_map).items()}


def each(iterable: Any) -> Iterator[Any]:
    """Yields the elements of a Java collection, each by one call. Python's own loop over one ends by an exception in
    the JVM, which costs tens of milliseconds."""
    elements = JavaClass(JAVA_LISTS, iterable._gateway_client).newArrayList(iterable)
    for number in range(elements.size()):
        yield elements.get(number)
