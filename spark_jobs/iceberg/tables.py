"""A topic's table: read at a snapshot or a branch, and written to branches. Module `commits` changes `main`.

One commit creates a table with its partitions, its order and its properties. Spark's statements need two commits, and a
process that is killed between them leaves a table without an order. So Iceberg's own catalog creates tables.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cleantail.codec import FORMAT
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.config.topic_table import (
    COLUMNS,
    FILE_FORMAT,
    OFFSET,
    PARTITION,
    PROPERTY_FORMAT,
    PROPERTY_SIDE_OF,
    SMALL_METADATA,
    TOMBSTONE,
    VALUE,
    table_properties,
)
from cleantail.errors import CleantailError, ConflictError, OutsideError, OvertakenError, TableError
from cleantail.human import whole_number
from cleantail.lake.catalogs import OWNERS, kept_catalog, load_table, require_ours
from cleantail.lake.storage_locations import OwnFolders, keep_first_metadata
from cleantail.log.work_units import ROUND_BRANCH, PartitionWork
from spark_jobs.iceberg.commits import (
    UNKNOWN,
    change_properties,
    commit_branch,
    create_branch,
    delete_uncommitted,
    drop_branches,
    java_message,
    publish_branch,
    repeat,
    stage_deletes,
    void,
    with_uncommitted,
    write_onto,
)
from spark_jobs.iceberg.file_columns import KindsMet, kinds_met
from spark_jobs.iceberg.iceberg_reads import (
    BranchChange,
    added_by,
    asked_again,
    files_with_deletes,
    iceberg_table,
    kinds_of,
    partition_of,
    with_properties,
)
from spark_jobs.iceberg.java_calls import each, static, texts
from spark_jobs.iceberg.snapshot_files import SnapshotFiles, as_topic_table, topic_columns

ICEBERG = "org.apache.iceberg"
SPARK_UTIL = f"{ICEBERG}.spark.Spark3Util"


@dataclass(frozen=True, slots=True)
class NewTable:
    """Describes a table to create. `columns`: as in Spark's statements. The values of one column partition the table.
    The records of a file are in the order of another column."""

    columns: str
    partitioned_by: str
    ordered_by: str
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """The name of a table in a session's catalog, in parts."""

    spark: SparkSession
    catalog: str
    path: tuple[str, ...]

    def exists(self) -> bool:
        return bool(self._catalog().tableExists(self._identifier()))

    def namespace_exists(self) -> bool:
        """Return whether the catalog has the table's namespace.

        Call this before `create`: some catalogs create a table in a missing namespace. Others (Glue, servers of REST
        catalogs) refuse it with different errors.
        """
        return bool(self._catalog().namespaceExists(self._identifier().namespace()))

    def create(self, new: NewTable) -> bool:
        """Create the table in its existing namespace. Returns False if another process has just created it. Raises
        Py4JJavaError if the catalog refuses the table."""
        jvm = self.spark._jvm
        struct = static(jvm, "org.apache.spark.sql.types.StructType", "fromDDL")(new.columns)
        schema = static(jvm, f"{ICEBERG}.spark.SparkSchemaUtil", "convert")(struct)
        spec = static(jvm, f"{ICEBERG}.PartitionSpec", "builderFor")(schema).identity(new.partitioned_by).build()
        order = static(jvm, f"{ICEBERG}.SortOrder", "builderFor")(schema).asc(new.ordered_by).build()
        builder = self._catalog().buildTable(self._identifier(), schema)
        for name, value in new.properties.items():
            builder.withProperty(name, value)
        try:
            builder.withPartitionSpec(spec).withSortOrder(order).create()
        except Py4JJavaError as e:
            if e.java_exception.getClass().getSimpleName() != "AlreadyExistsException":
                raise
            return False
        return True

    def _catalog(self) -> Any:
        return static(self.spark._jvm, SPARK_UTIL, "loadIcebergCatalog")(self.spark._jsparkSession, self.catalog)

    def _identifier(self) -> Any:
        return static(self.spark._jvm, f"{ICEBERG}.catalog.TableIdentifier", "parse")(".".join(self.path))


Spans = Mapping[int, tuple[int, int]]
"""Partition -> [from, to) of offsets."""


def spans_read(works: Sequence[PartitionWork]) -> Spans:
    """Return the spans that a round reads: [log start, end) of each log."""
    return {work.partition: (work.log_start_offset, work.end_offset) for work in works}


def below_end(records: DataFrame, works: Sequence[PartitionWork]) -> DataFrame:
    return records.where(span_condition(spans_read(works)))


def span_condition(spans: Spans, table: str = "") -> str:
    """Return an SQL condition of plain comparisons of numbers, by which Iceberg can prune files. Ends are exclusive."""
    prefix = f"{table}." if table else ""
    parts = [
        f"({prefix}`{PARTITION}` = {p:d} AND {prefix}`{OFFSET}` >= {low:d} AND {prefix}`{OFFSET}` < {high:d})"
        for p, (low, high) in spans.items()
    ]
    return f"({' OR '.join(parts)})" if parts else "false"


def span_expression(jvm: Any, spans: Sequence[tuple[int, tuple[int, int]]]) -> Any:
    """Return Iceberg's expression for the spans, as a balanced tree because a chain of thousands would be too deep."""
    expressions = jvm.org.apache.iceberg.expressions.Expressions
    if not spans:
        return expressions.alwaysFalse()
    if len(spans) > 1:
        half = len(spans) // 2
        return getattr(expressions, "or")(span_expression(jvm, spans[:half]), span_expression(jvm, spans[half:]))
    ((partition, (low, end)),) = spans
    both = getattr(expressions, "and")
    span = both(expressions.greaterThanOrEqual(OFFSET, low), expressions.lessThan(OFFSET, end))
    return both(expressions.equal(PARTITION, partition), span)


POS = "_pos"


def with_position(records: DataFrame, *columns: str) -> DataFrame:
    """Return the columns and each record's place: (…, ct_file: hash of the file's name, _pos: position in the file)."""
    return records.select(*columns, F.xxhash64("_file").alias(FILE), POS)


BRANCH_PREFIXES = (ROUND_BRANCH, "in_", "rw_", "re_")
"""Cleantail's branches: a round, an ingestion, a rewrite, a restore."""
RESTORE_PREFIX, RESTORE_S = "re_", 6 * 86_400
"""A restore's branch becomes stale these seconds later than others: a user has a week to finish a restore."""


def branch_name(stem: str) -> str:
    """Return `stem` with the time of creation (ns), which shows whether a killed run left the branch behind.

    Two rounds of one table that were planned at the same time have the same stem, and must not share a branch.
    """
    return f"{stem}_{time.time_ns()}"


def created_at_s(branch: str) -> float:
    """Return the start of the branch's age in Unix seconds: its creation, plus RESTORE_S for a restore. Infinity for
    other branches, also a user's `in_20240101`, which has no time in ns: they are never stale."""
    created = whole_number(branch.rpartition("_")[2]) or 0
    if created < 10**18 or not branch.startswith(BRANCH_PREFIXES):
        return float("inf")
    return created / 1e9 + (RESTORE_S if branch.startswith(RESTORE_PREFIX) else 0)


logger = logging.getLogger("cleantail.tables")

DELETED = "_deleted"
"""Iceberg's hidden column. A read that selects it also gets the deleted records."""
AS_PARQUET = ("write-format", "parquet")
"""Option of Spark's writers: write Parquet even if write.format.default is another format."""
PLACE, MOST_PLACES = "ct_place", (1 << 33) - 1
"""Spark's increasing ids of records: the lower 33 bits number the records of a task."""
FILE = "ct_file"
STALE_BRANCH_S = 86_400
"""A day: a round may wait long between two of its tasks."""


@dataclass(slots=True)
class Uncommitted:
    """The branch of a round that only this process has.

    A process that makes, checks and publishes a round commits the branch only if a person may read it after a failed
    check. Most rounds of such a process are one commit.

    of_run    whether this process takes the rounds of the table to their ends
    may_wait  whether the branch that is made next may wait for such a person
    branch    its name, or empty
    table     the Iceberg `Table` with the branch, as it was when the round was made
    """

    of_run: bool = False
    may_wait: bool = False
    branch: str = ""
    table: Any = None


@dataclass(frozen=True, slots=True)
class TopicTable:
    """A topic's Iceberg table in the session's catalog. `name` is quoted, so that a keyword can be a topic.
    `met`: kinds of the data files that tasks have opened for it."""

    spark: SparkSession
    name: str
    topic: Topic
    in_catalog: CatalogTable
    met: KindsMet
    uncommitted: Uncommitted = field(default_factory=Uncommitted, compare=False)

    @classmethod
    def of(cls, spark: SparkSession, topic: Topic, uncommitted: Uncommitted | None = None) -> TopicTable:
        """`uncommitted`: what the objects of one run share about the table."""
        catalog, path = topic.platform.catalog.name, tuple(topic.table.split("."))
        name = ".".join(f"`{part}`" for part in (catalog, *path))
        in_catalog = CatalogTable(spark, catalog, path)
        return cls(spark, name, topic, in_catalog, kinds_met(spark.sparkContext), uncommitted or Uncommitted())

    @property
    def platform(self) -> Platform:
        return self.topic.platform

    def load(self) -> Any:
        """Load the Iceberg `Table`. Raises TableError if it is missing, not a table, or not the topic's, and
        OutsideError if the catalog does not answer."""
        try:
            table, properties = with_properties(self.spark, self.name)
        except (Py4JJavaError, AnalysisException) as e:
            said = java_message(e) if isinstance(e, Py4JJavaError) else str(e).splitlines()[0]
            is_outage = isinstance(e, Py4JJavaError) and kinds_of(e) & UNKNOWN
            error = OutsideError if is_outage else TableError
            raise error(f"table {self.topic.table} cannot be loaded: {said}") from None
        require_ours({name: properties.get(name) for name in OWNERS}, self.topic)
        return table

    def exists(self) -> bool:
        return self.in_catalog.exists()

    def ensure(self) -> Any:
        """Create the table if it does not exist, and load it. Raises TableError if it exists and is not the topic's."""
        if not self.exists():
            self._create()
        return self.load()

    def ensure_side_table(self, name: str, columns: str, properties: str) -> None:
        """Create a side table if it is missing. Raises TableError if it is not the topic's, or of unknown format."""
        number = {PROPERTY_FORMAT: str(FORMAT)}
        own = {PROPERTY_SIDE_OF: self.topic.topic, FILE_FORMAT: "parquet", **number, **SMALL_METADATA}
        owned = ", ".join(f"'{key}'='{value}'" for key, value in own.items())
        statement = (
            f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING iceberg PARTITIONED BY (`{PARTITION}`) "
            f"TBLPROPERTIES ({owned}, {properties})"
        )

        def there() -> Any:
            self.spark.sql(statement)
            try:
                return iceberg_table(self.spark, name)
            except AnalysisException:
                raise OvertakenError(f"the catalog reports that {name} exists, but cannot load it") from None

        side_table = repeat(there)
        if texts(side_table.properties()).get(PROPERTY_SIDE_OF) != self.topic.topic:
            raise TableError(f"table {name} is not of topic {self.topic.topic}, which needs one of that name")

    def _create(self) -> None:
        """Create the table, and its namespace if that does not exist. Another process may create either first."""
        if not self.in_catalog.namespace_exists():
            namespace = self.name.rpartition(".")[0]

            def namespace_made_or_there() -> None:
                self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
                if not self.in_catalog.namespace_exists():
                    raise OvertakenError(f"the catalog reports that namespace {namespace} exists, but does not list it")

            try:
                repeat(namespace_made_or_there)
            except Py4JJavaError:  # another process may have created it after the catalog's check: then it exists now
                namespace_made_or_there()
        columns = ", ".join(f"`{name}` {kind}" for name, kind in (COLUMNS | {TOMBSTONE: "boolean"}).items())
        new = NewTable(columns, PARTITION, OFFSET, table_properties(self.topic.topic, self.topic.config))

        def created_or_there() -> None:
            if not self.in_catalog.create(new) and not self.exists():
                raise OvertakenError(f"the catalog reports that {self.topic.table} exists, but does not list it")

        with contextlib.suppress(OvertakenError):  # a view may have the name: loading the table reports it
            repeat(created_or_there)
        if (created := load_table(kept_catalog(self.platform), self.topic)) is not None:
            keep_first_metadata(created)

    def current(self) -> DataFrame:
        """Return the records that readers see, in the columns of a topic table."""
        return self._as_topic_table(asked_again(lambda: self.spark.table(self.name)))

    def as_staged(self) -> Any:
        """Return the Iceberg `Table` with the branch of this process's round. It is as it was when the round was made,
        or, if the branch is committed, as it is now."""
        return self.uncommitted.table or self.load()

    def commit_staged(self) -> None:
        """Commit the branch that only this process has. Raises ConflictError if another commit came first."""
        staged, self.uncommitted.table = self.uncommitted.table, None
        if staged is not None:
            commit_branch(self, staged, self.uncommitted.branch)

    def begin_round(self, may_wait: bool) -> None:
        """Forget an earlier round that was withdrawn. `may_wait`: the round has one branch, which may wait."""
        self.forget_staged()
        self.uncommitted.may_wait = may_wait and self.uncommitted.of_run

    def forget_staged(self) -> None:
        """Delete the branch that only this process has, after its round has ended."""
        staged, self.uncommitted.table = self.uncommitted.table, None
        if staged is not None:
            delete_uncommitted(staged, self.uncommitted.branch)

    def stage_deletes(
        self,
        branch: str,
        base_snapshot_id: int,
        change: BranchChange,
        summary: Mapping[str, str],
        properties: Mapping[str, str],
    ) -> None:
        """Make the change on a new branch at the base, and set the properties. Commit at once, unless it may wait."""
        waits = self.uncommitted
        if waits.may_wait and not (change.kept or properties):
            waits.table = with_uncommitted(self, branch, base_snapshot_id, change, summary)
            waits.branch = branch
        else:
            stage_deletes(self.jvm, self, branch, base_snapshot_id, change, summary, properties)

    def at_branch(self, branch: str) -> DataFrame:
        self.commit_staged()
        return self._as_topic_table(asked_again(lambda: self.spark.table(f"{self.name}.`branch_{branch}`")))

    def at_snapshot(self, snapshot_id: int) -> DataFrame:
        return self._as_topic_table(self.stored_at(snapshot_id))

    def with_hidden_at(self, snapshot_id: int) -> DataFrame:
        """Return all records in the files of a snapshot. `_deleted` marks the deleted ones."""
        stored, columns = self.stored_at(snapshot_id), self.topic.columns
        if columns is None:
            return stored.select(*COLUMNS, "_file", DELETED)
        return as_topic_table(stored, columns, DELETED)

    def stored_at(self, snapshot_id: int) -> DataFrame:
        """Return the table's own columns at a snapshot, as a rewrite copies them."""
        reader = self.spark.read.option("versionAsOf", str(snapshot_id))
        return asked_again(lambda: reader.table(self.name))

    @contextmanager
    def reading(self, iceberg: Any, tasks: Iterable[Any], **options: str) -> Iterator[DataFrame]:
        """Yield the records of a scan's tasks in the table's own columns, as Spark's Iceberg reader sees them.

        The reader gets the tasks as Iceberg's own rewrites pass them, so their files may be in no commit yet. In format
        3 the records have neither `_file` nor `_pos`.
        """
        manager = static(self.jvm, "org.apache.iceberg.spark.ScanTaskSetManager", "get")()
        # SparkTableCache has two methods `get`, and Py4J finds only the one that is not static
        cache = manager.getClass().getClassLoader().loadClass("org.apache.iceberg.spark.SparkTableCache")
        gateway = SparkContext._gateway
        assert gateway is not None, "there is a session"
        tables = cache.getMethod("get", gateway.new_array(self.jvm.java.lang.Class, 0)).invoke(
            None, gateway.new_array(self.jvm.java.lang.Object, 0)
        )
        name, in_order = uuid.uuid4().hex, self.jvm.java.util.ArrayList()
        for task in tasks:
            in_order.add(task)
        if not in_order:  # Iceberg refuses to stage no tasks
            yield self.spark.table(self.name).where(F.lit(False))
            return
        try:
            manager.stageTasks(iceberg, name, in_order)
            tables.add(name, iceberg)
            yield self.spark.read.format("iceberg").options(**options).option("scan-task-set-id", name).load(name)
        finally:
            tables.remove(name)
            manager.removeTasks(iceberg, name)

    @contextmanager
    def reading_files(self, iceberg: Any, groups: Sequence[Sequence[Any]]) -> Iterator[list[DataFrame]]:
        """Yield the records of each group of a scan's tasks.

        Records have their FILE, and a number (PLACE) by their order in it. One task of Spark reads a file. A group is
        one file, or several that have one row group each: Iceberg would split others.
        """
        size, columns = str(1 << 50), self.topic.columns
        place = F.monotonically_increasing_id().bitwiseAND(MOST_PLACES).alias(PLACE)
        with contextlib.ExitStack() as readers:
            frames = []
            for group in groups:
                whole = {"split-size": size, "file-open-cost": size if len(group) > 1 else "0"}
                frame = readers.enter_context(self.reading(iceberg, group, **whole))
                shown = map(F.expr, topic_columns(frame, columns)) if columns else map(F.col, COLUMNS)
                frames.append(frame.select(*shown, place, F.input_file_name().alias(FILE)))
            yield frames

    @contextmanager
    def on_branch(self, branch: str, spans: Spans, files: Collection[str] | None = None) -> Iterator[DataFrame]:
        """Yield the records in the spans on a round's branch, also if only this process has it. `files`: only of these
        data files."""
        inside, staged = span_condition(spans), self.uncommitted.table
        if staged is None:
            records = self.at_branch(branch).where(inside)
            yield records if files is None else records.where(F.col("_file").isin(list(files)))
            return
        scan = staged.newScan().useRef(branch).filter(span_expression(self.jvm, sorted(spans.items()))).planFiles()
        try:
            tasks = [task for task in each(scan) if files is None or str(task.file().location()) in files]
        finally:
            scan.close()
        with self.reading(staged, tasks) as records:  # of a topic's own table: an adopted one has no such branch
            yield records.where(inside)

    def _as_topic_table(self, stored: DataFrame) -> DataFrame:
        return stored if self.topic.columns is None else as_topic_table(stored, self.topic.columns)

    def create_branch(self, branch: str, snapshot_id: int | None) -> None:
        """Create a branch at `snapshot_id` (None: at `main`), in place of one that a killed run left behind."""
        create_branch(self, branch, snapshot_id)

    def drop_branches(self, branches: Iterable[str]) -> None:
        """Drop the branches that still exist. If the catalog fails, log a warning: a later run drops them."""
        names = list(branches)
        if self.uncommitted.table is not None and self.uncommitted.branch in names:
            names.remove(self.uncommitted.branch)
            self.forget_staged()
        if names:
            try:
                drop_branches(self, names)
            except CleantailError as e:
                logger.warning("branches of %s are left for a later run: %s", self.topic.table, e)

    def is_stale(self, branch: str) -> bool:
        """Return whether a killed run left this branch of Cleantail: by the real clock no run can need it any more."""
        waits_s = self.topic.config.cleantail_approval_timeout_ms / 1000 if self.topic.waits_for_people else 0
        return created_at_s(branch) < time.time() - STALE_BRANCH_S - waits_s

    def drop_stale_branches(self) -> list[str]:
        stale = [name for name in each(self.load().refs().keySet()) if self.is_stale(name)]
        self.drop_branches(stale)
        return stale

    def head_of(self, branch: str, iceberg: Any = None) -> int:
        """Return the branch's head, by default the current one. Raises ConflictError if the branch was dropped."""
        snapshot = (iceberg or self.as_staged()).snapshot(branch)
        if snapshot is None:
            raise ConflictError(f"branch {branch} of table {self.topic.table} is gone: what was staged there is void")
        return int(snapshot.snapshotId())

    def files_at(self, snapshot_id: int, iceberg: Any = None) -> SnapshotFiles:
        """Return the data files of a snapshot, to delete positions in them. `iceberg`: as in head_of. Raises
        TableError if an adopted table names files outside its own folders, and ConflictError without the snapshot."""
        iceberg = iceberg or self.load()
        try:
            files = SnapshotFiles(self.jvm, iceberg, snapshot_id, self.topic.columns)
        except IllegalArgumentException as e:
            raise void(e) from None
        if self.topic.columns is not None:
            OwnFolders(self.topic.table, str(iceberg.location()), self.platform.imported_folders).require(files.paths)
        return files

    def summary_of(self, branch: str) -> dict[str, str]:
        """Return the summary of the branch's last commit. Raises ConflictError as head_of does."""
        return texts(self.load().snapshot(self.head_of(branch)).summary())

    def append_to(self, branch: str, frame: DataFrame, as_it_is: bool = False) -> None:
        """Append data files to the branch, one log to a file, in the table's write order. `as_it_is`: each task of the
        frame has one log, in that order. A topic's own table also gets `tombstone`."""
        if self.topic.columns is None and self.load().schema().findField(TOMBSTONE) is not None:
            frame = frame.withColumn(TOMBSTONE, F.col(VALUE).isNull())
        writer = frame.writeTo(f"{self.name}.`branch_{branch}`").option(*AS_PARQUET)
        if as_it_is:
            writer = writer.option("use-table-distribution-and-ordering", "false")
        write_onto(self.load, branch, writer.append)

    def append_rows(
        self, name: str, frame: DataFrame, check: Callable[[Mapping[str, str]], None] | None = None
    ) -> None:
        """Append to the side table with this quoted name. Spark writes only to a branch: if the catalog's answer is
        wrong, Spark may commit twice or delete its files. `check`: as in publish_branch."""
        load, branch = partial(iceberg_table, self.spark, name), branch_name("in_beside")
        create_branch(load, branch, None)
        try:
            empty = load().snapshot(branch).snapshotId()
            write_onto(load, branch, frame.writeTo(f"{name}.`branch_{branch}`").option(*AS_PARQUET).append)
            written = load()
            if written.snapshot(branch).snapshotId() != empty:
                publish_branch(load, branch, added_by(written, branch), check)
        finally:
            drop_branches(load, [branch])

    def call(self, procedure: str, arguments: str) -> list[Any]:
        """Call an Iceberg procedure for this table, and return its rows."""
        catalog = self.name.partition(".")[0]
        rows = self.spark.sql(f"CALL {catalog}.system.{procedure}(table => '{self.name}', {arguments})").collect()
        return list(rows)

    def set_properties(self, properties: Mapping[str, str]) -> None:
        change_properties(self, properties)

    def files_after(self, snapshot_id: int, partition: int, sequence_number: int) -> list[str]:
        """Return the data files of a log that were appended after a round, which read up to `sequence_number`.

        In an adopted table the files may be of any log. The file's data sequence number decides, because a rewrite
        keeps it. A row's own number (row lineage) does not survive a rewrite.
        """
        files = [file for file, _ in files_with_deletes(self.load(), snapshot_id)]
        if self.topic.columns is None:
            files = [file for file in files if partition_of(file) == partition]
        return [str(file.location()) for file in files if int(file.dataSequenceNumber()) > sequence_number]

    @property
    def jvm(self) -> Any:
        return self.spark._jvm
