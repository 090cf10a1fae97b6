"""Spark plans that read the records of a snapshot plan, in the columns of a topic table.

1. A snapshot that is read whole, or only for its added files, is read by time travel, without its deleted records. Its
   columns get their current names.
2. If a snapshot rewrote files, or has deletes next to its new files, the plan reads only records that the previous
   snapshot lacks.
3. One incremental scan of Iceberg reads all appends, and opens only their files.
4. A record that no topic's table can hold ends the plan with an error that names column and offset (`guarded`).

Rules of a record (`guarded`):
1. The partition is a whole number from 0 to Kafka's largest. The offset is a whole number from 0. Neither is null.
2. The timestamp is missing (null, or Kafka's -1), or a table can hold it (`unheld`).
3. The type of the timestamp is one of Kafka's numbers.

Errors of a task have only column, partition and offset, never a key or a value.

Columns are found by Iceberg's field ids (`columns_at`):
1. A column, or a field of a struct, may have had another name at the snapshot. If it did not exist, it is null. A
   mapped struct is built from its fields, so that its JSON has the current names and order.
2. The source's writer chose all names in the metadata. They become quoted names in Spark's plan, with dots and
   backticks as letters, never text that Spark parses as SQL.

Sinks deliver at least once. A copy is dropped if it is equal in all compared columns (semantics.md 3.5). Any other
record at the same offset ends the plan (`once_each`).

The session has the source's catalog only for a read (`SessionTable`). So its login is only in the settings of a driver
that reads from it, never on a command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from cleantail.config.config_model import INT_MAX, LONG_MAX
from cleantail.config.platform import Platform
from cleantail.config.topic_source import TableSource
from cleantail.config.topic_table import COLUMNS, HEADERS, OFFSET, PARTITION, TIMESTAMP, TIMESTAMP_TYPE, Columns, quoted
from cleantail.config.unholdable import ALL, NO_TIMESTAMP_MS, TIMESTAMP_MAX_MS, TIMESTAMP_MIN_MS, UNHELD, WAY_OUT, Keep
from cleantail.config.unholdable import TIMESTAMP as UNHELD_TIMESTAMP
from cleantail.errors import CleantailError, ContradictionError, OutsideError, SourceError, UnholdableError
from cleantail.lake import client_properties
from cleantail.log.adopted_table import expressions, problem_of
from cleantail.log.rules import COMPARED, Contradiction
from cleantail.log.snapshot_plan import SnapshotPlan
from spark_jobs.iceberg.commits import java_message
from spark_jobs.iceberg.iceberg_reads import added_by, asked_again, iceberg_table
from spark_jobs.iceberg.java_calls import each
from spark_jobs.iceberg.snapshot_files import whole_bound
from spark_jobs.round.intake.record_batches import UNHELD_COLUMNS

MARK = "cleantail.source-table"
"""Encloses and separates the parts of a task's error."""
BAD, DIFFERS, UNHELD_TIME = "bad", "differs", "unheld"


def guarded(columns: Columns, kinds: Mapping[str, str]) -> list[str]:
    """Return a topic table's columns as a select list over the stored columns. Its first column, which every plan
    reads, checks all rules. `kinds`: path -> Spark's name of its type."""
    sql = expressions(columns, kinds)
    if columns.timestamp:
        ms = _milliseconds(columns.timestamp, kinds)
        sql[TIMESTAMP] = f"IF({ms} <> {NO_TIMESTAMP_MS} AND NOT ({_beyond(ms)}), {sql[TIMESTAMP]}, NULL)"
    if columns.timestamp_type:
        kind = quoted(columns.timestamp_type)
        sql[TIMESTAMP_TYPE] = f"IF({kind} IN (-1, 0, 1), {sql[TIMESTAMP_TYPE]}, NULL)"
    checks = " ".join(f"WHEN {condition} THEN {error}" for condition, error in _checks(columns, kinds))
    sql[PARTITION] = f"CASE {checks} ELSE {sql[PARTITION]} END"
    return [f"{text} AS `{name}`" for name, text in sql.items()]


def _checks(columns: Columns, kinds: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return (condition of a violation, SQL that raises), in the order of evaluation."""
    paths = columns.partition_and_offset
    partition, offset = map(quoted, paths)

    def error(path: str, reason: str, kind: str = BAD) -> str:
        at = [f"coalesce(CAST({column} AS STRING), '')" for column in (partition, offset)]
        return f"raise_error(concat('{MARK}', '{kind}', '{MARK}', '{path}', '{MARK}', '{reason}', {_joined(at)}))"

    wrong = [
        (f"{partition} IS NULL", error(paths[0], "is null")),
        (f"{partition} < 0 OR {partition} > {INT_MAX}L", error(paths[0], "is not a partition of Kafka")),
        (f"{offset} IS NULL", error(paths[1], "is null")),
        (f"{offset} < 0 OR {offset} = {LONG_MAX}L", error(paths[1], "is not an offset of Kafka")),
    ]
    if columns.timestamp:
        ms = _milliseconds(columns.timestamp, kinds)
        reason = "is a timestamp beyond what the table can hold"
        wrong.append((_beyond(ms), error(columns.timestamp, reason, UNHELD_TIME)))
    if columns.timestamp_type:
        kind = quoted(columns.timestamp_type)
        wrong.append((f"{kind} NOT IN (-1, 0, 1)", error(columns.timestamp_type, "is not a timestamp type of Kafka")))
    return wrong


def _milliseconds(path: str, kinds: Mapping[str, str]) -> str:
    column = quoted(path)
    return column if kinds[path] == "bigint" else f"unix_millis(CAST({column} AS TIMESTAMP))"


def _beyond(ms: str) -> str:
    return f"{ms} < {TIMESTAMP_MIN_MS}L OR {ms} > {TIMESTAMP_MAX_MS}L"


def unheld(columns: Columns, kinds: Mapping[str, str]) -> str:
    """Return an SQL condition over the stored columns for records that no topic's table can hold.

    Excludes records without partition or offset, because the guards report them."""
    if columns.timestamp is None:
        return "false"
    placed = " AND ".join(f"{quoted(path)} IS NOT NULL" for path in columns.partition_and_offset)
    return f"coalesce({placed} AND ({_beyond(_milliseconds(columns.timestamp, kinds))}), false)"


def unheld_columns(columns: Columns, kinds: Mapping[str, str]) -> list[str]:
    """Return a select list of UNHELD_COLUMNS over the stored columns."""
    sql = expressions(columns, kinds)
    assert columns.timestamp is not None, "nothing else is unheld"
    sql["timestamp_ms"] = _milliseconds(columns.timestamp, kinds)
    sql[HEADERS] = f"CAST({sql[HEADERS]} AS {UNHELD_COLUMNS[HEADERS]})"
    sql["reason"] = f"'{UNHELD_TIMESTAMP}'"
    return [f"{sql[name]} AS `{name}`" for name in UNHELD_COLUMNS]


def _joined(parts: list[str]) -> str:
    return ", ".join(f"'{MARK}', {part}" for part in parts) + f", '{MARK}'"


def beyond(columns: Columns, next_offsets: Mapping[int, int]) -> str:
    """Return an SQL condition for records at or above these offsets, or of other partitions. Includes records without
    partition or offset, which the guards report."""
    partition, offset = map(quoted, columns.partition_and_offset)
    below = " OR ".join(f"({partition} = {p:d} AND {offset} < {end:d})" for p, end in sorted(next_offsets.items()))
    return f"NOT coalesce({below or 'false'}, false)"


def differing(first: str) -> str:
    """Return SQL that raises for a record that differs from the `first` record of its offset."""
    names = ", ".join(f"IF({name} <=> {first}.{name}, NULL, '{name}')" for name in COMPARED)
    at = [f"CAST({name} AS STRING)" for name in (f"`{PARTITION}`", f"`{OFFSET}`")]
    return f"raise_error(concat('{MARK}', '{DIFFERS}', '{MARK}', concat_ws(',', {names}), '{MARK}', '', {_joined(at)}))"


def raised(text: str, table: str) -> CleantailError | None:
    """Return the error in a task's message, or None. `table`: name of the source for people."""
    parts = text.split(MARK)
    if len(parts) < 7:
        return None
    _, kind, names, reason, partition, offset, *_ = parts
    where = f"partition {partition or 'null'}, offset {offset or 'null'}"
    text = f"{table}: column {names} {reason}, in the record at {where}; nothing was appended"
    if kind == UNHELD_TIME:
        return UnholdableError(f"{text}. {WAY_OUT}")
    if kind == BAD:
        return SourceError(text)
    contradiction = Contradiction(int(partition), 1, int(offset), tuple(names.split(",")))
    return ContradictionError(
        f"{table}: {where}: two different records: {contradiction.difference}; nothing was appended. An offset has one "
        'record: does the table hold several topics? See "Two different records at one offset" in docs/operations.md',
        [contradiction],
    )


Tree = Mapping[str, Any]
"""Current name -> tree of its mapped fields. Empty if the column or field itself is mapped."""


def columns_at(then: Any, now: Any, types: StructType, paths: Iterable[str]) -> list[Column]:
    """Return the columns of these paths with their current names. `then`, `now`: Iceberg's schemas of the snapshot and
    of the table. `types`: Spark's schema of the table."""
    tree = _tree(paths)
    return [_column(then, now.findField(name), types[name].dataType, inner, None) for name, inner in tree.items()]


def column_of(path: str) -> Column:
    """Return the column at this path in a frame of `columns_at`."""
    top, *fields = path.split(".")
    column = F.col(escaped(top))
    for field in fields:
        column = column.getField(field)
    return column


def escaped(name: str) -> str:
    """Quote a name, with any content, for Spark."""
    return f"`{name.replace('`', '``')}`"


def _tree(paths: Iterable[str]) -> Tree:
    """Return the paths as a tree, without paths inside a mapped column."""
    mapped, tree = set(paths), dict[str, Any]()
    for path in mapped:
        parts = path.split(".")
        if any(".".join(parts[:n]) in mapped for n in range(1, len(parts))):
            continue
        node = tree
        for part in parts:
            node = node.setdefault(part, {})
    return tree


def _column(then: Any, field: Any, kind: DataType, tree: Tree, outer: Column | None) -> Column:
    name, then_field = str(field.name()), then.findField(int(field.fieldId()))
    if then_field is None:
        return F.lit(None).cast(kind).alias(name)
    column = F.col(escaped(str(then_field.name()))) if outer is None else outer.getField(str(then_field.name()))
    if not isinstance(kind, StructType):
        return column.alias(name)
    fields = {str(inner.name()): inner for inner in each(field.type().asStructType().fields())}
    struct = F.struct(*(_column(then, fields[n], kind[n].dataType, tree.get(n, {}), column) for n in tree or fields))
    # Without a null check Spark would prune fields of a struct of which only some are mapped.
    return (struct if tree else F.when(column.isNotNull(), struct)).alias(name)


_FIRST, _NUMBER = "ct_first", "ct_number"


def once_each(records: DataFrame) -> DataFrame:
    """Return each offset once. A task has a whole log, in the order of its offsets."""
    same_offset = Window.partitionBy(PARTITION, OFFSET).orderBy(OFFSET)
    up_to_here = same_offset.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    by_log = records.withColumn(HEADERS, F.coalesce(HEADERS, F.array())).repartition(PARTITION)
    numbered = by_log.select(
        *COLUMNS,
        F.row_number().over(up_to_here).alias(_NUMBER),
        F.first(F.struct(*COMPARED)).over(up_to_here).alias(_FIRST),
    )
    same = " AND ".join(f"{name} <=> {_FIRST}.{name}" for name in COMPARED)
    is_first = f"CASE WHEN {_NUMBER} = 1 THEN true WHEN {same} THEN false ELSE {differing(_FIRST)} END"
    return numbered.where(is_first).select(*COLUMNS)


REDACTION, HIDDEN = "spark.sql.redaction.options.regex", "(?i)url|spark[.]sql[.]catalog[.]"
"""Setting, and pattern of the settings whose values Spark hides. Otherwise Spark shows session settings with each
query, on its pages and in its event log."""


@dataclass(frozen=True, slots=True)
class SessionTable:
    """A source table in the session. `name` is quoted, `shown` is for people."""

    spark: SparkSession
    name: str
    shown: str

    @classmethod
    def of(cls, spark: SparkSession, source: TableSource, platform: Platform) -> SessionTable:
        """Return the table. Registers the source's catalog in the session, unless it is the platform's."""
        if source.catalog is not None:
            _register(spark, platform.reading(source.catalog))
        catalog = source.catalog or platform.catalog.name
        name = ".".join(f"`{part}`" for part in (catalog, *source.name.split(".")))
        return cls(spark, name, source.named_in(platform.catalog.name))

    def load(self, uuid: str) -> Any:
        """Return the Iceberg `Table`. Raises SourceError for another uuid, OutsideError if it cannot be loaded."""
        try:
            table = iceberg_table(self.spark, self.name)
        except Py4JJavaError as e:
            raise OutsideError(f"{self.shown} cannot be loaded: {java_message(e)}; nothing was appended") from None
        if str(table.uuid()) != uuid:
            raise SourceError(f"{self.shown} was recreated after the read was planned; nothing was appended")
        return table


def _register(spark: SparkSession, reading: Platform) -> None:
    prefix = f"spark.sql.catalog.{reading.catalog.name}"
    properties = client_properties.spark_catalog(reading) | client_properties.spark_secrets(reading)
    spark.conf.set(REDACTION, HIDDEN)
    spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
    for key, value in properties.items():
        spark.conf.set(f"{prefix}.{key}", value)


@dataclass(frozen=True, slots=True)
class SourceFrames:
    """Reads a source table.

    iceberg  Iceberg's object of the table
    kinds    path of a mapped column -> Spark's name of its type, by the current schema
    types    the current schema
    """

    table: SessionTable
    iceberg: Any
    columns: Columns
    kinds: Mapping[str, str]
    types: StructType

    @classmethod
    def of(cls, table: SessionTable, iceberg: Any, columns: Columns) -> SourceFrames:
        """Raise SourceError if the type of a column does not fit its mapping."""
        paths = list(dict.fromkeys(columns.paths.values()))
        now = asked_again(lambda: table.spark.table(table.name))
        schema = now.select(*map(quoted, paths)).schema
        kinds = dict(zip(paths, (field.dataType.simpleString() for field in schema), strict=True))
        for name, path in columns.paths.items():
            if problem := problem_of(name.partition(".")[0], kinds[path]):
                raise SourceError(f"{table.shown}: column {path} is {kinds[path]}: {problem}; nothing was appended")
        return cls(table, iceberg, columns, kinds, now.schema)

    def records(self, plan: SnapshotPlan, known: Mapping[int, int], keep: Keep = ALL) -> DataFrame:
        """Return the plan's records, unordered and with copies, in the columns of a topic table. `known`: next offsets
        before the read. keep=UNHELD: those that a table cannot hold, in UNHELD_COLUMNS."""
        if plan.start_id is None:
            whole = self._at(plan.end.snapshot_id)
            unread = whole.where(beyond(self.columns, plan.from_offsets)) if plan.from_offsets else whole
            return self._kept(unread, keep)
        stored = self._stored(plan, plan.start_id, known)
        return reduce(DataFrame.unionByName, (self._kept(frame, keep) for frame in stored))

    def _stored(self, plan: SnapshotPlan, start_id: int, known: Mapping[int, int]) -> Iterator[DataFrame]:
        read = self.table.spark.read
        if plan.appends:
            span = {"start-snapshot-id": str(start_id), "end-snapshot-id": str(plan.end.snapshot_id)}
            yield read.options(**span).table(self.table.name)
        for snapshot_id in plan.one_by_one:
            yield self._added(snapshot_id, known)

    def _added(self, snapshot_id: int, known: Mapping[int, int]) -> DataFrame:
        """Return the records of the files that a snapshot added. If it also removed files, omits records that the
        previous snapshot had.

        A rewrite that deletes or changes a record copies the other records of its file, and a writer may write a record
        again after a delete. Such records were read before, perhaps so long ago that a round has since removed the
        tombstone of their key. If the previous snapshot has expired, all records below the known offsets count as read.
        """
        snapshot, io = self.iceberg.snapshot(snapshot_id), self.iceberg.io()
        files = added_by(self.iceberg, snapshot_id)
        added = self._at(snapshot_id, files)
        removed, has_deletes = list(each(snapshot.removedDataFiles(io))), any(each(snapshot.addedDeleteFiles(io)))
        parent = snapshot.parentId()
        if not (removed or has_deletes):
            return added
        if parent is None or self.iceberg.snapshot(parent) is None:
            return added.where(beyond(self.columns, known))
        # A delete may apply to any file of the previous snapshot. A removal concerns whole files.
        whole = self._at(int(parent)).where(self._between(files)) if has_deletes else self._at(int(parent), removed)
        at = {name: column_of(path) for name, path in self.columns.paths.items() if name in (PARTITION, OFFSET)}
        before = whole.select(*(column.alias(f"ct_{name}") for name, column in at.items()))
        same = reduce(Column.__and__, (column == F.col(f"ct_{name}") for name, column in at.items()))
        return added.join(before, same, "left_anti")

    def _at(self, snapshot_id: int, files: Sequence[Any] | None = None) -> DataFrame:
        """Return the mapped columns at a snapshot with their current names. `files`: only these data files."""
        stored = self.table.spark.read.option("versionAsOf", str(snapshot_id)).table(self.table.name)
        util = self.table.spark._jvm.org.apache.iceberg.util.SnapshotUtil  # type: ignore[union-attr]
        then = util.schemaFor(self.iceberg, snapshot_id)
        columns = columns_at(then, self.iceberg.schema(), self.types, self.kinds)
        if files is None:
            return stored.select(*columns)
        inside = stored["_file"].isin([str(file.location()) for file in files])
        return stored.where(inside).select(*columns).where(self._between(files))

    def _between(self, files: Sequence[Any]) -> Column:
        """Return a condition on partition and offset by the files' bounds, so that Iceberg skips most other files.
        Includes null, which the guards report."""
        partition, offset = self.columns.partition_and_offset
        return self._inside(files, partition) & self._inside(files, offset)

    def _inside(self, files: Sequence[Any], path: str) -> Column:
        number = self.iceberg.schema().findField(path).fieldId()
        sides = [(file.lowerBounds(), file.upperBounds()) for file in files]
        jvm = self.table.spark._jvm
        bounds = [(whole_bound(jvm, low, number), whole_bound(jvm, high, number)) for low, high in sides]
        known = [(low, high) for low, high in bounds if low is not None and high is not None]
        if not known or len(known) < len(bounds):
            return F.lit(True)
        column = column_of(path)
        return column.isNull() | column.between(min(low for low, _ in known), max(high for _, high in known))

    def _kept(self, stored: DataFrame, keep: Keep) -> DataFrame:
        if keep == UNHELD:
            is_unheld = stored.where(unheld(self.columns, self.kinds))
            return is_unheld.selectExpr(*unheld_columns(self.columns, self.kinds))
        held = stored if keep == ALL else stored.where(f"NOT {unheld(self.columns, self.kinds)}")
        return held.selectExpr(*guarded(self.columns, self.kinds))
