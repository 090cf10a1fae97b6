"""The only module that reads and writes tables.

Everything that changes `main` works the same way: the change is written to a branch, then its files are replayed
onto `main` in one Iceberg transaction together with the table properties that go with it (design.md, decision 4). A
crash leaves all-old or all-new, and appends to `main` meanwhile neither block nor break it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession

from cleantail.approval import can_be_held
from cleantail.config import Platform, Topic
from cleantail.errors import ConflictError, TableError
from cleantail.rollback import Commit, own_entries
from cleantail.table_metadata import OWNERS, require_ours
from cleantail.topic_table import COLUMNS, OFFSET, PARTITION, table_properties
from spark_jobs.changes import (
    BranchChange,
    added_by,
    added_data_files,
    branch_change,
    each,
    files_with_deletes,
    history,
    partition_of,
    texts,
)
from spark_jobs.transforms.mapping import as_topic_table
from spark_jobs.vectors import FilesOf, Found

BRANCH_PREFIXES = ("ct_", "in_", "rw_")
"""Branches of ours: a round, an ingestion, a rewrite."""

PROPERTY_SIDE_OF = "cleantail.side-of"
"""Whose side table it is, so that none is taken for another topic's table."""
NOT_ANCESTOR = "is not an ancestor"
"""What Iceberg says of a commit whose base is not in main's history any more."""
REF_ATTEMPTS = 20
STALE_BRANCH_S = 86_400
"""A day: a round may wait long for its turn between two tasks."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """What `main` becomes: a snapshot of its history, an empty commit with `summary`, the appends again."""

    to_snapshot_id: int
    appends: tuple[int, ...]
    properties: Mapping[str, str]
    summary: Mapping[str, str]


def branch_name(stem: str) -> str:
    """`stem` with the time of making, by which a branch that was left behind is known."""
    return f"{stem}_{time.time_ns() // 1_000_000_000}"


def _made_at_s(branch: str) -> float:
    """Unix seconds; never stale where the branch is not ours."""
    made = branch.rpartition("_")[2]
    return int(made) if branch.startswith(BRANCH_PREFIXES) and made.isdigit() else float("inf")


@dataclass(frozen=True, slots=True)
class TopicTable:
    """A topic's Iceberg table in the session's catalog; `name` is quoted, so that a keyword can be a topic."""

    spark: SparkSession
    name: str
    topic: Topic

    @classmethod
    def of(cls, spark: SparkSession, topic: Topic, platform: Platform) -> TopicTable:
        parts = (platform.catalog.name, *topic.table.split("."))
        return cls(spark, ".".join(f"`{part}`" for part in parts), topic)

    def load(self) -> Any:
        """The Iceberg `Table`, freshly loaded. Raises TableError when it is missing or not the topic's."""
        try:
            table = self._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self.spark._jsparkSession, self.name)
        except Py4JJavaError as e:
            raise TableError(f"table {self.topic.table} cannot be loaded: {java_message(e)}") from None
        require_ours({name: table.properties().get(name) for name in OWNERS}, self.topic)
        return table

    def exists(self) -> bool:
        return bool(self.spark.catalog.tableExists(self.name))

    def ensure(self) -> None:
        """Creates the table where there is none. Raises TableError when there is one that is not the topic's."""
        if not self.exists():
            self._create()
        if self.load().sortOrder().isUnsorted():  # a killed run may have created the table and no more
            self.spark.sql(f"ALTER TABLE {self.name} WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY `{OFFSET}`")

    def drop(self) -> None:
        """Of a table that this very run has made, and that never got a record."""
        self.spark.sql(f"DROP TABLE IF EXISTS {self.name} PURGE")

    def ensure_side_table(self, name: str, columns: str, properties: str) -> None:
        """A table beside the topic's. Raises TableError where there is one of that name that is not its own."""
        own = f"'{PROPERTY_SIDE_OF}'='{self.topic.topic}'"
        self.spark.sql(
            f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING iceberg PARTITIONED BY (`{PARTITION}`) "
            f"TBLPROPERTIES ({own}, {properties})"
        )
        made = self._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self.spark._jsparkSession, name)
        if texts(made.properties()).get(PROPERTY_SIDE_OF) != self.topic.topic:
            raise TableError(f"table {name} is not of topic {self.topic.topic}, which needs one of that name")

    def _create(self) -> None:
        columns = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
        properties = ", ".join(f"'{k}'='{v}'" for k, v in table_properties(self.topic.topic, self.topic.config).items())
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.name.rpartition('.')[0]}")
        self.spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self.name} ({columns}) USING iceberg PARTITIONED BY (`{PARTITION}`) "
            f"TBLPROPERTIES ({properties})"
        )

    def current(self) -> DataFrame:
        """The records that readers see, in a topic table's columns, as the next two give theirs."""
        return self._as_topic_table(self.spark.table(self.name))

    def at_branch(self, branch: str) -> DataFrame:
        return self._as_topic_table(self.spark.table(f"{self.name}.`branch_{branch}`"))

    def at_snapshot(self, snapshot_id: int) -> DataFrame:
        return self._as_topic_table(self.stored_at(snapshot_id))

    def stored_at(self, snapshot_id: int) -> DataFrame:
        """The table's own columns: what a rewrite copies."""
        return self.spark.read.option("versionAsOf", str(snapshot_id)).table(self.name)

    def _as_topic_table(self, stored: DataFrame) -> DataFrame:
        return stored if self.topic.columns is None else as_topic_table(stored, self.topic.columns)

    def create_branch(self, branch: str, snapshot_id: int | None) -> None:
        """A branch at `snapshot_id` (at nothing when None), replacing one that a killed run left behind."""
        at = () if snapshot_id is None else (snapshot_id,)
        self.drop_branch(branch)
        self._change_refs(lambda table: table.manageSnapshots().createBranch(branch, *at))

    def drop_branch(self, branch: str) -> None:
        self._change_refs(
            lambda table: table.manageSnapshots().removeBranch(branch) if table.refs().containsKey(branch) else None
        )

    def _change_refs(self, change: Callable[[Any], Any | None]) -> None:
        """Commits what `change` makes of the table, if anything. Iceberg tries an append again that lost against
        another commit, but not a change of branches. Raises ConflictError when it lost every time."""
        for attempt in range(1, REF_ATTEMPTS + 1):
            update = change(self.load())
            if update is None:
                return
            try:
                update.commit()
            except Py4JJavaError as e:
                if attempt == REF_ATTEMPTS or not _lost(e):
                    raise _conflict(e) from None
            else:
                return
            time.sleep(random.uniform(0.02, 0.1) * attempt)

    def drop_stale_branches(self) -> list[str]:
        """Branches of ours that were made long ago, by the real clock: killed runs left them."""
        waits_s = self.topic.config.cleantail_approval_timeout_ms / 1000 if can_be_held(self.topic) else 0
        older_than_s = time.time() - STALE_BRANCH_S - waits_s
        stale = [name for name in each(self.load().refs().keySet()) if _made_at_s(name) < older_than_s]
        for name in stale:
            self.drop_branch(name)
        return stale

    def head_of(self, branch: str) -> int:
        """The snapshot that the branch is at. Raises ConflictError when it is gone: somebody dropped it."""
        snapshot = self.load().snapshot(branch)
        if snapshot is None:
            raise ConflictError(f"branch {branch} of table {self.topic.table} is gone: what was staged there is void")
        return int(snapshot.snapshotId())

    def require_head(self, branch: str, snapshot_id: int) -> None:
        """Raises ConflictError unless the branch is as it was checked."""
        if self.head_of(branch) != snapshot_id:
            raise ConflictError(f"branch {branch} of table {self.topic.table} was changed after its round was done")

    def files_at(self, snapshot_id: int) -> FilesOf:
        """The data files of a snapshot, for the positions that are to go."""
        return FilesOf(self._jvm, self.load(), snapshot_id, self.topic.columns)

    def delete_positions(self, branch: str, files: FilesOf, found: Found) -> None:
        """Commits deletion vectors onto the branch, which is at the snapshot of `files`, where anything is found."""
        if not found:
            return
        added, removed = files.write(found)
        delta = self.load().newRowDelta().toBranch(branch).validateFromSnapshot(files.snapshot_id)
        for file in removed:
            delta.removeDeletes(file)
        for file in added:
            delta.addDeletes(file)
        delta.commit()

    def append_to(self, branch: str, frame: DataFrame, as_it_is: bool = False) -> None:
        """Data files onto the branch, one log to a file, in offset order (the table's write order). `as_it_is`: the
        frame's tasks have one log each, in that order already."""
        writer = frame.writeTo(f"{self.name}.`branch_{branch}`")
        if as_it_is:
            writer = writer.option("use-table-distribution-and-ordering", "false")
        writer.append()

    def added_records(self, branch: str) -> int:
        """Records that the branch's last commit appended."""
        return int(self.load().snapshot(branch).summary().get("added-records") or 0)

    def freed_bytes(self, operation: str) -> int:
        """By how much the last commit of this `cleantail.operation` made the data files smaller; 0 where it did not."""
        summaries = [snapshot.summary() for snapshot in each(self.load().snapshots())]
        last = [s for s in summaries if s.get("cleantail.operation") == operation][-1]
        sizes = [int(last.get(name) or 0) for name in ("removed-files-size", "added-files-size")]
        return max(sizes[0] - sizes[1], 0)

    def append_files(self, branch: str, properties: Mapping[str, str], summary: Mapping[str, str]) -> None:
        """Replays the data files that were appended to the branch onto `main`, with the properties, in one commit."""
        table = self.load()
        transaction = table.newTransaction()
        append = transaction.newAppend()
        for file in added_data_files(table, branch):
            append.appendFile(file)
        _with_summary(append, summary).commit()
        self._commit(transaction, properties)

    def publish_deletes(
        self,
        changes: Iterable[BranchChange],
        partitions: set[int],
        base_snapshot_id: int,
        properties: Mapping[str, str],
        summary: Mapping[str, str],
    ) -> int:
        """Replays the deletion vectors of the given partitions onto `main`; returns the new snapshot's id.

        A deletion vector of an adopted table may be of several logs: there the partitions are all or none.

        A round that removes nothing makes a snapshot too: with its summary it can be undone. Raises ConflictError when
        a data file was rewritten, or got other deletes, since the base snapshot, or when that was rolled back.
        """
        if self.topic.columns is None:
            changes = [change.of_partitions(partitions) for change in changes]
        transaction = self.load().newTransaction()
        try:
            if partitions:
                delta = transaction.newRowDelta().validateFromSnapshot(base_snapshot_id).validateDeletedFiles()
                self._replay(delta, changes)
                _with_summary(delta, summary).commit()
            self._commit(transaction, properties)
        except Py4JJavaError as e:
            raise _conflict(e) from None
        except IllegalArgumentException as e:  # PySpark's word for the same of Java
            if NOT_ANCESTOR not in str(e):
                raise
            raise ConflictError(f"what the round read was rolled back, which makes its result void: {e}") from None
        return int(self.load().currentSnapshot().snapshotId())

    def _replay(self, delta: Any, changes: Iterable[BranchChange]) -> None:
        """A data file has one deletion vector: a new one takes the place of the one that the base had."""
        referenced = self._jvm.java.util.ArrayList()
        for change in changes:
            for file in change.removed:
                delta.removeDeletes(file)
            for file in change.added:
                delta.addDeletes(file)
                referenced.add(file.referencedDataFile())
        delta.validateDataFilesExist(referenced)

    def replace_files(
        self, branch: str, paths: set[str], base_snapshot_id: int, sequence_number: int, summary: Mapping[str, str]
    ) -> int:
        """Replaces data files by those on the branch; the new ones keep the sequence number by which a round knew
        the old. Returns how many files are new. Raises ConflictError when an old file has changed meanwhile."""
        table = self.load()
        added = added_data_files(table, branch)
        rewrite = table.newRewrite().validateFromSnapshot(base_snapshot_id).dataSequenceNumber(sequence_number)
        old = [pair for pair in files_with_deletes(table, base_snapshot_id) if str(pair[0].location()) in paths]
        for file, deletes in old:
            rewrite.deleteFile(file)
            for delete in deletes:
                rewrite.deleteFile(delete)
        for file in added:
            rewrite.addFile(file)
        try:
            _with_summary(rewrite, summary).commit()
        except Py4JJavaError as e:
            raise _conflict(e) from None
        return len(added)

    def call(self, procedure: str, arguments: str) -> list[Any]:
        """The rows that an Iceberg procedure returns for this table."""
        catalog = self.name.partition(".")[0]
        rows = self.spark.sql(f"CALL {catalog}.system.{procedure}(table => '{self.name}', {arguments})").collect()
        return list(rows)

    def set_properties(self, properties: Mapping[str, str]) -> None:
        update = self.load().updateProperties()
        for key, value in properties.items():
            update.set(key, value)
        update.commit()

    def files_after(self, snapshot_id: int, partition: int, sequence_number: int) -> list[str]:
        """Data files of a log whose records came after a round that had read up to `sequence_number`; of an adopted
        table, of any log.

        By the file's data sequence number, which a rewrite keeps: the one of a row (row lineage) does not survive it.
        """
        files = [file for file, _ in files_with_deletes(self.load(), snapshot_id)]
        return [
            str(file.location())
            for file in files
            if (self.topic.columns is not None or partition_of(file) == partition)
            and int(file.dataSequenceNumber()) > sequence_number
        ]

    def arrivals_at(self, snapshot_id: int) -> DataFrame:
        """(_file, arrived): the data sequence number of every data file of a snapshot."""
        files = [
            (str(f.location()), int(f.dataSequenceNumber())) for f, _ in files_with_deletes(self.load(), snapshot_id)
        ]
        return self.spark.createDataFrame(files, "_file string, arrived bigint")

    def changes_of(self, branch: str, base_snapshot_id: int) -> BranchChange:
        """What the branch changed since the base snapshot, net over its commits."""
        return branch_change(self.load(), branch, base_snapshot_id)

    def roll_back(self, plan: Callable[[Sequence[Commit], Mapping[str, str]], Rollback]) -> int:
        """Makes `main` the snapshot that `plan` names, with the appends that it keeps; returns the new snapshot's id.

        `plan` gets main's history, newest first, and the table's properties. One commit, and only onto the metadata
        that was planned on: with whatever another writer commits meanwhile it is planned anew. Raises ConflictError
        when others were faster every time.
        """
        for attempt in range(1, REF_ATTEMPTS + 1):
            transaction = self.load().newTransaction()
            table = transaction.table()
            wanted = plan(list(history(table)), texts(table.properties()))
            appends = [(table.snapshot(s), added_by(table, s)) for s in wanted.appends]
            transaction.manageSnapshots().setCurrentSnapshot(wanted.to_snapshot_id).commit()
            _with_summary(transaction.newFastAppend(), wanted.summary).commit()
            for snapshot, files in appends:
                append = transaction.newFastAppend()
                for file in files:
                    append.appendFile(file)
                _with_summary(append, own_entries(texts(snapshot.summary()))).commit()
            self._set(transaction, wanted.properties)
            try:
                # not commitTransaction: that would lay the change onto whatever came in between
                transaction.underlyingOps().commit(transaction.startMetadata(), transaction.currentMetadata())
            except Py4JJavaError as e:
                if attempt == REF_ATTEMPTS or not _lost(e):
                    raise _conflict(e) from None
            else:
                return int(transaction.currentMetadata().currentSnapshot().snapshotId())
            time.sleep(random.uniform(0.02, 0.1) * attempt)
        raise AssertionError("unreachable: the last attempt raises")

    def _commit(self, transaction: Any, properties: Mapping[str, str]) -> None:
        self._set(transaction, properties)
        transaction.commitTransaction()

    def _set(self, transaction: Any, properties: Mapping[str, str]) -> None:
        update = transaction.updateProperties()
        for key, value in properties.items():
            update.set(key, value)
        update.commit()

    @property
    def _jvm(self) -> Any:
        return self.spark._jvm


def _with_summary(update: Any, summary: Mapping[str, str]) -> Any:
    for key, value in summary.items():
        update.set(key, value)
    return update


def java_message(error: Py4JJavaError) -> str:
    """What the JVM said, without its stack."""
    exception = error.java_exception
    return f"{exception.getClass().getSimpleName()}: {str(exception.getMessage()).splitlines()[0]}"


def _lost(error: Py4JJavaError) -> bool:
    """Another commit came first; the same change can be tried again on the table as it is now."""
    return str(error.java_exception.getClass().getSimpleName()) == "CommitFailedException"


def _conflict(error: Py4JJavaError) -> Exception:
    """A ConflictError where Iceberg refused the commit because of what others committed, else the error itself."""
    name = str(error.java_exception.getClass().getSimpleName())
    if name == "ValidationException" or _lost(error):
        return ConflictError(f"the table changed in a way that makes this result void: {java_message(error)}")
    return error
