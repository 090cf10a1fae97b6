"""The layout of a topic table's columns in the files of an Iceberg table, and their arrays in a topic table's types.

cleantail.lake.records.projection finds a file's columns, and fills missing columns. An adopted table may have a column
inside a struct, and other types than a topic table. Readers of whole records use Spark SQL for the same purpose
(cleantail.log.adopted_table).

A kind of data files is a short digest of everything that decides how records become columns of a topic table:

- the file's Parquet schema with its field ids
- the program that wrote it
- its partition spec
- the layout: places and names of the mapped columns in the table's schema

Tasks record the kind of each file that they open. An accumulator of Spark sends the kinds to the driver, which compares
a kind before a round first decides on it (spark_jobs.engine.compared_readers).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count as count_from
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam

from cleantail.config.topic_table import (
    HEADERS,
    KEY,
    OFFSET,
    ORDER,
    PARTITION,
    TIMESTAMP,
    TOMBSTONE,
    Columns,
    part_name,
)
from cleantail.errors import TableError
from cleantail.lake.records.projection import (
    FIELD_ID,
    NAME_MAPPING,
    ColumnPath,
    Constants,
    Field,
    Layout,
    Projection,
    layout_of_schema,
)
from cleantail.lake.records.topic_columns import joined_parts, key_bytes, marked, micros, whole_numbers
from cleantail.log.adopted_table import LINEAGE_IDS, ROW_ID
from spark_jobs.iceberg.file_facts import FileFacts
from spark_jobs.iceberg.java_calls import each, entries, schema_json

EXAMPLES = 3
"""Maximum number of files that represent a kind: the files with the most records."""
REMEMBERED = 64
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class MetKind:
    """Some files of a kind as (records, path), and the logs that have such files. Log None: several logs share it."""

    files: frozenset[tuple[int, str]]
    logs: frozenset[int | None]

    def __or__(self, other: MetKind) -> MetKind:
        files = sorted(self.files | other.files, reverse=True)
        return MetKind(frozenset(files[:EXAMPLES]), self.logs | other.logs)


Kinds = dict[str, MetKind]
KindsMet = Accumulator[Kinds]


class UnionByKey(AccumulatorParam[dict[str, Any]]):
    """Collects dicts in the driver, by the union of the values of a key. So a repeated task changes nothing."""

    def zero(self, value: dict[str, Any]) -> dict[str, Any]:
        return {}

    def addInPlace(self, value1: dict[str, Any], value2: dict[str, Any]) -> dict[str, Any]:  # noqa: N802  Spark's name
        return value1 | {key: value1[key] | value if key in value1 else value for key, value in value2.items()}


def kinds_met(context: Any) -> KindsMet:
    met: KindsMet = context.accumulator({}, UnionByKey())
    return met


_noted: Kinds | None = None
"""Kinds of the files that the running task has opened. None outside `noting`. A Python worker runs one task at a
time."""


@contextmanager
def noting(met: KindsMet | None) -> Iterator[None]:
    """Add the kinds of all files that are opened inside to `met`."""
    global _noted  # noqa: PLW0603  the files are opened deep below
    before, _noted = _noted, {}
    try:
        yield
    finally:
        noted, _noted = _noted, before
        if met is not None and noted:
            met.add(noted)


def each_noting(met: KindsMet, work: Callable[..., Iterator[R]], *arguments: Any) -> Iterator[R]:
    """Yield from a task's generator, and note the kinds of the files that it opens."""
    with noting(met):
        yield from work(*arguments)


def note_kind(parquet: Any, file: Any, layout: Mapping[str, Any]) -> None:
    """Note the kind of a file that was opened. `parquet`: pyarrow's ParquetFile; `file`: a LogFile."""
    if _noted is not None:
        # whether the partition has a value, or a null, for a column that the file may lack
        partition = (file.spec_id, *((number, value is None) for number, value in file.constants))
        met = MetKind(frozenset({(file.records, file.path)}), frozenset({file.log}))
        kind = _kind_of(parquet, partition, layout)
        _noted[kind] = _noted[kind] | met if kind in _noted else met


_recent: list[tuple[Any, str]] = []


def _kind_of(parquet: Any, partition: tuple[Any, ...], layout: Mapping[str, Any]) -> str:
    """Return the digest. Compares recent schemas first, because writing a schema as text takes long."""
    parts = (parquet.metadata.created_by, partition, parquet.schema, parquet.schema_arrow, layout)
    for known, kind in _recent:
        if _is_same(parts, known):
            return kind
    created_by, _, physical, arrow, _ = parts
    columns = str(physical).partition("\n")[2]  # the first line has a memory address
    ids = arrow.to_string(truncate_metadata=False, show_schema_metadata=False)
    kind = digest(created_by, partition, columns, ids, sorted(layout.items()))
    _recent.insert(0, (parts, kind))
    del _recent[REMEMBERED:]
    return kind


def _is_same(one: Any, other: Any) -> bool:
    return bool(
        one[:2] == other[:2]
        and one[2].equals(other[2])
        and one[3].equals(other[3], check_metadata=True)
        and one[4] == other[4]
    )


def digest(*parts: object) -> str:
    text = "\n".join(part if isinstance(part, str) else repr(part) for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


__all__ = ["FIELD_ID", "HEADER_LIST", "ColumnPath", "Constants", "Layout", "Projection"]
HEADER_LIST = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NO_PATH = ColumnPath(())
"""The path of a column without a place in a file's schema."""


def layout_of(table: Any, paths: Mapping[str, str], older: Any = None) -> Layout:
    """Return the layout of the columns at these paths, without paths that the schema lacks. `older`: the schema of the
    paths, if it is not the table's present one."""
    schema = table.schema() if older is None else older
    return layout_of_schema(json.loads(schema_json(schema)), table.properties().get(NAME_MAPPING), paths)


class PartitionConstants:
    """The columns of a table that have an identity partition, by partition spec."""

    def __init__(self, table: Any, ids: Iterable[int]) -> None:
        wanted, self._sources = set(ids), dict[int, list[tuple[int, str, int]]]()
        for spec in entries(table.specs()).values():
            fields = [(int(f.sourceId()), str(f.fieldId()), str(f.transform())) for f in each(spec.fields())]
            self._sources[int(spec.specId())] = [
                (at, number, source)
                for at, (source, number, transform) in enumerate(fields)
                if transform == "identity" and source in wanted
            ]

    def of(self, facts: FileFacts) -> Constants:
        """Return (field id, value of the partition) of each column with an identity partition. A null is a value."""
        partition = facts.partition
        return tuple(
            (source, partition.get(number) if isinstance(partition, Mapping) else partition[at])
            for at, number, source in self._sources[facts.spec_id]
        )


def adopted_layout(table: Any, columns: Columns) -> Layout:
    """Return the layout of an adopted table. A column with several parts has an entry for each, such as key.0."""
    layout = dict(layout_of(table, columns.paths))
    if columns.deleted is not None and TOMBSTONE in layout:
        layout[TOMBSTONE] = replace(layout[TOMBSTONE], marks=columns.deleted.values)
    if not columns.has_offsets:
        layout |= {name: ColumnPath((Field(number, name, (), "long"),)) for name, number in LINEAGE_IDS.items()}
    return layout


def has_offsets(layout: Layout) -> bool:
    """Return whether a column has the offset. Otherwise it is made from row lineage."""
    return ROW_ID not in layout


def parts_in(layout: Mapping[str, Any], column: str) -> list[str]:
    """Return the names of a column's parts in a layout. Empty if it is a single column."""
    count = next(n for n in count_from(0) if part_name(column, n) not in layout)
    return [part_name(column, n) for n in range(count)]


def null_keys(layout: Mapping[str, Any], nulls: Callable[[str], int | None]) -> int | None:
    """Return how many records have no key, or None if unknown. A key of several parts is null only if all parts are.
    `nulls`: number of a column's nulls, or None."""
    if parts := [nulls(name) for name in parts_in(layout, KEY)]:
        return 0 if 0 in parts else None
    return nulls(KEY)


def topic_arrays(arrays: Mapping[str, pa.Array], layout: Layout, where: str) -> dict[str, pa.Array]:
    """Return a file's columns as a topic table has them, with key parts joined. Raises as as_topic_column does."""
    columns = {name: as_topic_column(name.partition(".")[0], a, where, layout[name]) for name, a in arrays.items()}
    if parts := [name for name in parts_in(layout, KEY) if name in columns]:
        columns[KEY] = joined_parts([columns.pop(name) for name in parts])
    return columns


def as_topic_column(column: str, array: pa.Array, where: str, path: ColumnPath = NO_PATH) -> pa.Array:
    """Return the array in the topic table's type of the column. Raises TableError with `where`."""
    try:
        if column == KEY:
            return key_bytes(array, path.kind)
        if column == TOMBSTONE and path.marks is not None:
            return marked(array, path.marks)
        if column == TIMESTAMP:
            return micros(array)
        if column in (PARTITION, OFFSET):
            return array.cast(pa.int64())
        if column == ORDER:
            return whole_numbers(array)
        return array.cast(HEADER_LIST) if column == HEADERS else array
    except pa.ArrowException:  # its message may quote a record
        wanted = "Unix ms, or a timestamp" if column == TIMESTAMP else f"a {column}"
        raise TableError(
            f"{where} has a column {column} of the type {array.type}: it has values that cannot be {wanted}"
        ) from None
