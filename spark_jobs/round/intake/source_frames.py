"""The records that a plan names, in the columns of a topic table, as Spark plans that read them.

1. A snapshot that is read whole, or for the files it has added, is read as of itself: what it had deleted is left out.
   Spark then has the columns by their names of that time, and they get their names of now.
2. Of a snapshot that has written files anew, or has deletes beside its new files, it is only what was not there before.
3. What appends have brought is one incremental scan of Iceberg's, which opens their files alone.
4. A record that no topic's table can hold ends the plan, with column and offset (`guarded`).

What a record has to be (`guarded`):
1. A partition is a whole number from 0 to the largest of Kafka's, an offset one from 0 on, and neither is null.
2. A timestamp is none (null, or Kafka's -1), or one that a table can hold: `unheld` says of which records it is not.
3. The type of a timestamp is one of Kafka's numbers.
What comes back from a task names the column, and the record by partition and offset alone: never a key or a value.

How its columns are found (`columns_at`), by Iceberg's field ids, by their names of now:
1. A column, or a field of a struct, may have had another name at the snapshot, or may not have been there: then it is
   null. A struct that is mapped as a whole is put together from its fields likewise, so that its JSON has the names and
   the order of now, and a mapped field of it is found in it.
2. Every name in the metadata is whatever the source's writer chose. It becomes a name in Spark's plan, in which a dot
   and a backtick are letters as any, and never text that Spark reads as SQL.

Sinks deliver at least once. A copy, which is equal in all that is compared (semantics.md 3.5), is left out; a second
record that differs ends the plan (`once_each`).

Spark is told of the source's catalog when it is needed, and not before (`SessionTable`). So its login is in the
settings of a driver that reads from it, and neither on a command line nor in any other driver.
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
from spark_jobs.iceberg.iceberg_reads import added_by, iceberg_table
from spark_jobs.iceberg.jvm.java_collections import each
from spark_jobs.iceberg.snapshot_files import BYTE_BUFFERS
from spark_jobs.round.intake.record_batches import UNHELD_COLUMNS

MARK = "cleantail.source-table"
"""Stands around what a task says of a record, and between its parts."""
BAD, DIFFERS, UNHELD_TIME = "bad", "differs", "unheld"


def guarded(columns: Columns, kinds: Mapping[str, str]) -> list[str]:
    """Returns a select list of a topic table's columns over the stored ones. The first of them, which every plan needs,
    looks at all that may be wrong. `kinds` maps a path to Spark's name of its type."""
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
    """Returns (condition, SQL that raises) in their order."""
    paths = columns.partition_and_offset
    partition, offset = map(quoted, paths)

    def error(path: str, reason: str, kind: str = BAD) -> str:
        at = [f"coalesce(CAST({column} AS STRING), '')" for column in (partition, offset)]
        return f"raise_error(concat('{MARK}', '{kind}', '{MARK}', '{path}', '{MARK}', '{reason}', {_joined(at)}))"

    wrong = [
        (f"{partition} IS NULL", error(paths[0], "is null")),
        (f"{partition} < 0 OR {partition} > {INT_MAX}L", error(paths[0], "is no partition of Kafka")),
        (f"{offset} IS NULL", error(paths[1], "is null")),
        (f"{offset} < 0 OR {offset} = {LONG_MAX}L", error(paths[1], "is no offset of Kafka")),
    ]
    if columns.timestamp:
        ms = _milliseconds(columns.timestamp, kinds)
        reason = "is a timestamp beyond what the table can hold"
        wrong.append((_beyond(ms), error(columns.timestamp, reason, UNHELD_TIME)))
    if columns.timestamp_type:
        kind = quoted(columns.timestamp_type)
        wrong.append((f"{kind} NOT IN (-1, 0, 1)", error(columns.timestamp_type, "is no type of a timestamp")))
    return wrong


def _milliseconds(path: str, kinds: Mapping[str, str]) -> str:
    column = quoted(path)
    return column if kinds[path] == "bigint" else f"unix_millis(CAST({column} AS TIMESTAMP))"


def _beyond(ms: str) -> str:
    return f"{ms} < {TIMESTAMP_MIN_MS}L OR {ms} > {TIMESTAMP_MAX_MS}L"


def unheld(columns: Columns, kinds: Mapping[str, str]) -> str:
    """Returns SQL over the stored columns for records that no topic's table can hold. What has no partition or offset
    is not one of them: the guards tell of it."""
    if columns.timestamp is None:
        return "false"
    placed = " AND ".join(f"{quoted(path)} IS NOT NULL" for path in columns.partition_and_offset)
    return f"coalesce({placed} AND ({_beyond(_milliseconds(columns.timestamp, kinds))}), false)"


def unheld_columns(columns: Columns, kinds: Mapping[str, str]) -> list[str]:
    """Returns a select list of UNHELD_COLUMNS over the stored columns."""
    sql = expressions(columns, kinds)
    assert columns.timestamp is not None, "nothing else is unheld"
    sql["timestamp_ms"] = _milliseconds(columns.timestamp, kinds)
    sql[HEADERS] = f"CAST({sql[HEADERS]} AS {UNHELD_COLUMNS[HEADERS]})"
    sql["reason"] = f"'{UNHELD_TIMESTAMP}'"
    return [f"{sql[name]} AS `{name}`" for name in UNHELD_COLUMNS]


def _joined(parts: list[str]) -> str:
    return ", ".join(f"'{MARK}', {part}" for part in parts) + f", '{MARK}'"


def beyond(columns: Columns, next_offsets: Mapping[int, int]) -> str:
    """Returns SQL over the stored columns for records at or beyond these offsets, and those of other partitions. What
    has no partition or offset stays: the guards tell of it."""
    partition, offset = map(quoted, columns.partition_and_offset)
    below = " OR ".join(f"({partition} = {p:d} AND {offset} < {end:d})" for p, end in sorted(next_offsets.items()))
    return f"NOT coalesce({below or 'false'}, false)"


def differing(first: str) -> str:
    """Returns SQL that raises for a record that differs from the `first` one of its offset."""
    names = ", ".join(f"IF({name} <=> {first}.{name}, NULL, '{name}')" for name in COMPARED)
    at = [f"CAST({name} AS STRING)" for name in (f"`{PARTITION}`", f"`{OFFSET}`")]
    return f"raise_error(concat('{MARK}', '{DIFFERS}', '{MARK}', concat_ws(',', {names}), '{MARK}', '', {_joined(at)}))"


def raised(text: str, table: str) -> CleantailError | None:
    """Returns the error that a task has told, None where this text has none. `table`: the source, for people."""
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
"""Name of now -> the tree of what is mapped in it, empty where it is mapped itself."""


def columns_at(then: Any, now: Any, types: StructType, paths: Iterable[str]) -> list[Column]:
    """Returns the columns of these paths, each with its name of now. `then` and `now`: Iceberg's schemas of the
    snapshot and of the table; `types`: Spark's of the table."""
    tree = _tree(paths)
    return [_column(then, now.findField(name), types[name].dataType, inner, None) for name, inner in tree.items()]


def column_of(path: str) -> Column:
    """Returns a mapped column of what `columns_at` selects."""
    top, *fields = path.split(".")
    column = F.col(escaped(top))
    for field in fields:
        column = column.getField(field)
    return column


def escaped(name: str) -> str:
    """Returns what Spark reads as this one name, whatever it holds."""
    return f"`{name.replace('`', '``')}`"


def _tree(paths: Iterable[str]) -> Tree:
    """Returns the paths as a tree. What lies in a column that is mapped itself comes with it."""
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
    # of a struct that is only the way to its fields Spark sees through this, so that it reads and filters no others
    return (struct if tree else F.when(column.isNotNull(), struct)).alias(name)


_FIRST, _NUMBER = "ct_first", "ct_number"


def once_each(records: DataFrame) -> DataFrame:
    """Returns the records log by log, a log in one task and in the order of its offsets, each offset once."""
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
"""Which settings of a session Spark shows no value of: it would show those that are set while it runs with each query,
on its pages and in its event log."""


@dataclass(frozen=True, slots=True)
class SessionTable:
    """Is a source table in the session; `name` is quoted, `shown` is for people."""

    spark: SparkSession
    name: str
    shown: str

    @classmethod
    def of(cls, spark: SparkSession, source: TableSource, platform: Platform) -> SessionTable:
        """Tells Spark the source's catalog, unless it is the platform's own, which it knows."""
        if source.catalog is not None:
            _register(spark, platform.reading(source.catalog))
        catalog = source.catalog or platform.catalog.name
        name = ".".join(f"`{part}`" for part in (catalog, *source.name.split(".")))
        return cls(spark, name, source.named_in(platform.catalog.name))

    def load(self, uuid: str) -> Any:
        """Returns the Iceberg `Table`. Raises SourceError where it is not the one of this uuid, and OutsideError where
        Spark cannot have it."""
        try:
            table = iceberg_table(self.spark, self.name)
        except Py4JJavaError as e:
            raise OutsideError(f"{self.shown} cannot be loaded: {java_message(e)}; nothing was appended") from None
        if str(table.uuid()) != uuid:
            raise SourceError(f"{self.shown} was recreated while it was looked at; nothing was appended")
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
    """Reads a source table. `iceberg` is Iceberg's own object for it; `kinds`: path of a mapped column -> Spark's name
    of its type, as the table's schema is now, which `types` is."""

    table: SessionTable
    iceberg: Any
    columns: Columns
    kinds: Mapping[str, str]
    types: StructType

    @classmethod
    def of(cls, table: SessionTable, iceberg: Any, columns: Columns) -> SourceFrames:
        """Raises SourceError for a column of a type that cannot be what it is mapped to."""
        paths = list(dict.fromkeys(columns.paths.values()))
        now = table.spark.table(table.name)
        schema = now.select(*map(quoted, paths)).schema
        kinds = dict(zip(paths, (field.dataType.simpleString() for field in schema), strict=True))
        for name, path in columns.paths.items():
            if problem := problem_of(name.partition(".")[0], kinds[path]):
                raise SourceError(f"{table.shown}: column {path} is {kinds[path]}: {problem}; nothing was appended")
        return cls(table, iceberg, columns, kinds, now.schema)

    def records(self, plan: SnapshotPlan, known: Mapping[int, int], keep: Keep = ALL) -> DataFrame:
        """Returns the records of the plan, in no order, and as often as the source has them, in the columns of a topic
        table; those that it cannot hold in UNHELD_COLUMNS. `known`: the next offsets of what was read before."""
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
        """Returns the records of the files that a snapshot has added, without those that the snapshot before had where
        it has taken any away.

        Who deletes or changes a record by writing its file anew copies the others, and who marks one as deleted may
        write it again: such records came before, and it may be so long ago that a round has removed the deletion of
        their key since. Where the snapshot before is not kept, what lies below the known offsets counts as such.
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
        # a deletion may be in any file of the snapshot before, a removal is of the whole file
        whole = self._at(int(parent)).where(self._between(files)) if has_deletes else self._at(int(parent), removed)
        at = {name: column_of(path) for name, path in self.columns.paths.items() if name in (PARTITION, OFFSET)}
        before = whole.select(*(column.alias(f"ct_{name}") for name, column in at.items()))
        same = reduce(Column.__and__, (column == F.col(f"ct_{name}") for name, column in at.items()))
        return added.join(before, same, "left_anti")

    def _at(self, snapshot_id: int, files: Sequence[Any] | None = None) -> DataFrame:
        """Returns the mapped columns at a snapshot by their names of now; of these data files alone, where they are
        given."""
        stored = self.table.spark.read.option("versionAsOf", str(snapshot_id)).table(self.table.name)
        columns = columns_at(self._schema_at(snapshot_id), self.iceberg.schema(), self.types, self.kinds)
        if files is None:
            return stored.select(*columns)
        inside = stored["_file"].isin([str(file.location()) for file in files])
        return stored.where(inside).select(*columns).where(self._between(files))

    def _between(self, files: Sequence[Any]) -> Column:
        """Returns a condition by which Iceberg leaves most other files unopened: between which partitions and offsets
        these lie, where their metadata say so. A null is of any: the guards tell of it."""
        partition, offset = self.columns.partition_and_offset
        return self._inside(files, partition) & self._inside(files, offset)

    def _inside(self, files: Sequence[Any], path: str) -> Column:
        number = self.iceberg.schema().findField(path).fieldId()
        sides = [(file.lowerBounds(), file.upperBounds()) for file in files]
        bounds = [(self._bound(low, number), self._bound(high, number)) for low, high in sides]
        known = [(low, high) for low, high in bounds if low is not None and high is not None]
        if not known or len(known) < len(bounds):
            return F.lit(True)
        column = column_of(path)
        return column.isNull() | column.between(min(low for low, _ in known), max(high for _, high in known))

    def _bound(self, bounds: Any, field_id: int) -> int | None:
        """Returns a bound of a whole number, None where the metadata have none."""
        data = bounds.get(field_id) if bounds is not None else None
        if data is None:
            return None
        return int.from_bytes(getattr(self.table.spark._jvm, BYTE_BUFFERS).toByteArray(data), "little", signed=True)

    def _schema_at(self, snapshot_id: int) -> Any:
        util = self.table.spark._jvm.org.apache.iceberg.util.SnapshotUtil  # type: ignore[union-attr]
        return util.schemaFor(self.iceberg, snapshot_id)

    def _kept(self, stored: DataFrame, keep: Keep) -> DataFrame:
        if keep == UNHELD:
            is_unheld = stored.where(unheld(self.columns, self.kinds))
            return is_unheld.selectExpr(*unheld_columns(self.columns, self.kinds))
        held = stored if keep == ALL else stored.where(f"NOT {unheld(self.columns, self.kinds)}")
        return held.selectExpr(*guarded(self.columns, self.kinds))
