"""Says where a Parquet file has the columns of a topic table, and what they are there: by Iceberg's field ids.

An adopted table may have a column inside of a struct, and other types than a topic table: cleantail.log.column_sql says
the same as Spark SQL, for what reads whole records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count as count_from
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cleantail.config.columns import Columns, part_name
from cleantail.config.topic_table import HEADERS, KEY, OFFSET, ORDER, PARTITION, TIMESTAMP, TOMBSTONE
from cleantail.errors import TableError
from cleantail.lake.records.key_bytes import joined_parts, key_bytes, marked
from cleantail.lake.records.topic_columns import whole_numbers
from cleantail.log.ranks.row_offsets import LINEAGE_IDS, ROW_ID
from spark_jobs.iceberg.jvm.many_calls import answers, ask, facts_of

FIELD_ID = b"PARQUET:field_id"
"""Where pyarrow keeps a column's Iceberg id."""
HEADER_LIST = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""The type of a record's headers."""


@dataclass(frozen=True, slots=True)
class ColumnPath:
    """Names a column by the fields on the way to it, from the outermost struct inward. `names` gives for each of them
    the names that it may have in a file that carries no field ids. `kind` is Iceberg's name of its type; `marks`, of a
    column that marks deletes, what it says then."""

    ids: tuple[int, ...]
    names: tuple[tuple[str, ...], ...]
    kind: str = ""
    marks: tuple[str, ...] | None = None


NO_PATH = ColumnPath((), ())
"""Of a column of which nothing more is known than its array."""
Layout = Mapping[str, ColumnPath]
"""Column of a topic table -> its path. A column that no record has is not in it."""


def layout_of(table: Any, paths: Mapping[str, str], older: Any = None) -> Layout:
    """Returns the layout of an Iceberg table whose columns lie at these paths; a path that its schema has not is left
    out. A file without field ids goes by the table's name mapping (schema.name-mapping.default), else by names.
    `older`: the schema by which the paths go, where it is not the table's present one."""
    schema = table.schema() if older is None else older
    mapping = table.properties().get("schema.name-mapping.default")
    known_as = _names_by_id(json.loads(mapping)) if mapping else {}
    known = _known_fields(schema, paths.values())
    layout = {}
    for column, path in paths.items():
        fields = [known.get(step) for step in _steps(path)]
        if all(field is not None for field in fields):
            ids = tuple(field[0] for field in fields if field is not None)
            names = tuple(known_as.get(number, (name,)) for number, name in zip(ids, path.split("."), strict=True))
            layout[column] = ColumnPath(ids, names, known[path][1])
    return layout


def _steps(path: str) -> list[str]:
    """Returns the paths of the structs that a column is in, from the outermost inward, and its own."""
    parts = path.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def _known_fields(schema: Any, paths: Iterable[str]) -> dict[str, tuple[int, str]]:
    """Returns (field id, Iceberg's name of the type) of each step of the paths that the schema has."""
    steps = list(dict.fromkeys(step for path in paths for step in _steps(path)))
    found = zip(steps, answers((schema.findField, (step,)) for step in steps), strict=True)
    fields = {step: field for step, field in found if field is not None}
    facts = facts_of(fields.values(), "fieldId", "type")
    kinds = ask([kind for _, kind in facts], "toString")
    return {step: (int(number), str(kind)) for step, (number, _), kind in zip(fields, facts, kinds, strict=True)}


def adopted_layout(table: Any, columns: Columns) -> Layout:
    """Returns the layout of an adopted table; of a column with several parts each is in it, as key.0."""
    layout = dict(layout_of(table, columns.paths))
    if columns.deleted is not None and TOMBSTONE in layout:
        layout[TOMBSTONE] = replace(layout[TOMBSTONE], marks=columns.deleted.values)
    if not columns.has_offsets:
        layout |= {name: ColumnPath((number,), ((name,),), "long") for name, number in LINEAGE_IDS.items()}
    return layout


def has_offsets(layout: Layout) -> bool:
    """Returns whether a column holds the offset; else row lineage gives it."""
    return ROW_ID not in layout


def parts_in(layout: Mapping[str, Any], column: str) -> list[str]:
    """Returns the names that the parts of a column have in a layout; none where it is one column."""
    count = next(n for n in count_from(0) if part_name(column, n) not in layout)
    return [part_name(column, n) for n in range(count)]


def _names_by_id(mapping: Sequence[Mapping[str, Any]]) -> dict[int, tuple[str, ...]]:
    """Returns what Iceberg's name mapping says, those of the fields inside of a struct, too."""
    names: dict[int, tuple[str, ...]] = {}
    for entry in mapping:
        if "field-id" in entry:
            names[int(entry["field-id"])] = tuple(entry.get("names", ()))
        names |= _names_by_id(entry.get("fields", ()))
    return names


def paths_in(schema: pa.Schema, layout: Layout, columns: Sequence[str]) -> dict[str, str]:
    """Returns, for each wanted column that a file has, its name there, as pyarrow takes it: a.b for a field of a
    struct."""
    carries_ids = any(FIELD_ID in (field.metadata or {}) for field in schema)
    paths = {}
    for column in columns:
        names = _names(list(schema), layout[column], carries_ids) if column in layout else None
        if names is not None:
            paths[column] = ".".join(names)
    return paths


def _names(fields: Sequence[pa.Field], path: ColumnPath, carries_ids: bool) -> list[str] | None:
    names: list[str] = []
    for number, known_as in zip(path.ids, path.names, strict=True):
        field = next((f for f in fields if _is(f, number, known_as, carries_ids)), None)
        if field is None:
            return None
        names.append(field.name)
        fields = list(field.type) if pa.types.is_struct(field.type) else []
    return names


def _is(field: pa.Field, number: int, known_as: Sequence[str], carries_ids: bool) -> bool:
    if carries_ids:
        return int((field.metadata or {}).get(FIELD_ID, -1)) == number
    return field.name in known_as


def column_of(batch: pa.RecordBatch, path: str) -> pa.Array:
    """Returns a column of a batch, out of its structs; null where a struct on the way is."""
    first, *inner = path.split(".")
    array = batch.column(first)
    for name in inner:
        array = pc.struct_field(array, name)
    return array


def topic_arrays(batch: pa.RecordBatch, paths: Mapping[str, str], layout: Layout, where: str) -> dict[str, pa.Array]:
    """Returns the columns of a batch as a topic table has them. `paths`: column, or part of one -> its name in the
    file. A part that the file has not is null in it. Raises TableError as as_topic_column does."""
    arrays = {
        name: as_topic_column(name.partition(".")[0], column_of(batch, path), where, layout[name])
        for name, path in paths.items()
    }
    if parts := [name for name in parts_in(layout, KEY) if name in arrays]:
        nothing = pa.nulls(batch.num_rows, pa.binary())
        whole = joined_parts([arrays.pop(name, nothing) for name in parts_in(layout, KEY)])
        return arrays | {KEY: whole} if parts else arrays
    return arrays


def as_topic_column(column: str, array: pa.Array, where: str, path: ColumnPath = NO_PATH) -> pa.Array:
    """Returns the array in the type that a topic table has for the column. Raises TableError, naming `where`, for a
    type that cannot be one."""
    try:
        if column == KEY:
            return key_bytes(array, path.kind)
        if column == TOMBSTONE and path.marks is not None:
            return marked(array, path.marks)
        if column == TIMESTAMP:
            return _micros(array)
        if column in (PARTITION, OFFSET):
            return array.cast(pa.int64())
        if column == ORDER:
            return whole_numbers(array)
        return array.cast(HEADER_LIST) if column == HEADERS else array
    except pa.ArrowException as e:
        raise TableError(f"{where} has a column {column} of the type {array.type}: {e}") from None


def _micros(array: pa.Array) -> pa.Array:
    """Returns timestamps in microseconds; whole numbers count Unix ms."""
    if pa.types.is_integer(array.type):
        return array.cast(pa.timestamp("ms")).cast(pa.timestamp("us"))
    return array.cast(pa.timestamp("us", "UTC") if array.type.tz else pa.timestamp("us"))
