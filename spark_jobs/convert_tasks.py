"""The tasks of a conversion: find the records that equality deletes remove, and list the records that Spark reads.

A task loads the keys of its delete files into its database, each with the highest sequence number of its deletes. Then
it reads only the compared columns of its data files.

Values are compared in a common type. Integers of all widths are 64-bit, times are units since 1970. Fractions are
compared by their bits, as in Java: NaN equals NaN, and 0.0 differs from -0.0. Null equals null.

A conversion is checked against Iceberg's own reader in Spark (`alive_records`). A conversion does not change data
files, so file and position identify a record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io
from pyroaring import BitMap64
from pyspark.sql import DataFrame

from cleantail.adopt.equality_deletes import EVERYWHERE, TableFile, applies
from cleantail.errors import TableError
from cleantail.lake.manifest_entries import REWRITE
from cleantail.lake.metadata_guards import most_delete_bytes
from cleantail.lake.position_deletes import shared_positions
from spark_jobs.engine.task_records import reading, task_database
from spark_jobs.iceberg.file_columns import ColumnPath, layout_of
from spark_jobs.iceberg.log_files import BATCH_RECORDS, LogFile, column_batches

_UNITS = {"timestamp": "us", "timestamptz": "us", "timestamp_ns": "ns", "timestamptz_ns": "ns"}
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_FLOATS: dict[str, tuple[Any, Any]] = {"float": (np.float32, np.int32), "double": (np.float64, np.int64)}


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column that deletes compare. `kind` is Iceberg's name of its type."""

    field_id: int
    path: ColumnPath
    kind: str


def key_columns(table: Any, field_ids: Iterable[int]) -> dict[int, KeyColumn]:
    """Return the columns by id, dropped ones by the newest schema that has them. Raises TableError."""
    return {number: _key_column(table, number) for number in field_ids}


def _key_column(table: Any, number: int) -> KeyColumn:
    older = sorted(table.schemas().values(), key=lambda s: -int(s.schemaId()))
    schema = next((s for s in (table.schema(), *older) if s.findField(number) is not None), None)
    if schema is None:
        raise TableError(f"{table.name()} has equality deletes by column id {number}, which no schema has. {REWRITE}")
    name, kind = str(schema.findColumnName(number)), str(schema.findField(number).type().toString())
    path = layout_of(table, {name: name}, schema).get(name)
    if path is None or storage_type(kind) is None:
        raise TableError(f"{table.name()} has equality deletes by column {name} of type {kind}. {REWRITE}")
    return KeyColumn(number, path, kind)


def storage_type(kind: str) -> pa.DataType | None:
    """Return the type in which values of an Iceberg type are compared. None if they cannot be compared."""
    if decimal := _DECIMAL.fullmatch(kind):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if kind == "boolean":
        return pa.bool_()
    if kind in ("int", "long", "date", "time", *_UNITS, *_FLOATS):
        return pa.int64()
    if kind == "string":
        return pa.string()
    return pa.binary() if kind in ("binary", "uuid") or kind.startswith("fixed[") else None


def comparable(array: pa.Array, kind: str, where: str) -> pa.Array:
    """Return the values of a file's column in their storage type. Raises TableError if they do not convert."""
    try:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        return _comparable(array, kind)
    except pa.ArrowException as e:
        raise TableError(f"{where} has a column of type {array.type} where the table has {kind}: {e}") from None


def _comparable(array: pa.Array, kind: str) -> pa.Array:
    if kind in _UNITS:
        zone = array.type.tz if pa.types.is_timestamp(array.type) else None
        return array.cast(pa.timestamp(_UNITS[kind], zone)).cast(pa.int64())
    if kind == "date":
        return array.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    if kind == "time":
        return array.cast(pa.time64("us")).cast(pa.int64())
    if kind in _FLOATS:
        return _bits(array, *_FLOATS[kind])
    return array.cast(storage_type(kind))


def _bits(array: pa.Array, fraction: Any, bits: Any) -> pa.Array:
    values = array.cast(pa.from_numpy_dtype(fraction)).fill_null(0).to_numpy(zero_copy_only=False).astype(fraction)
    values[np.isnan(values)] = np.nan  # NaN has many bit patterns, and all are equal
    as_bits = values.view(bits).astype(np.int64)
    return pa.array(as_bits, mask=array.is_null().to_numpy(zero_copy_only=False))


@dataclass(frozen=True, slots=True)
class SearchTask:
    """Data files with their numbers, and the equality delete files that apply to any of them."""

    files: tuple[tuple[int, TableFile], ...]
    deletes: tuple[TableFile, ...]
    columns: Mapping[int, KeyColumn]
    threads: int
    memory_bytes: int
    location: str


def search(store: Mapping[str, str], task: SearchTask) -> dict[int, BitMap64]:
    """Return number of a data file -> positions that equality deletes remove, also if other deletes hide them."""
    io, hidden = load_file_io(dict(store), task.location), dict[int, BitMap64]()
    for field_ids in sorted({delete.field_ids for delete in task.deletes}):
        deletes = [delete for delete in task.deletes if delete.field_ids == field_ids]
        with task_database(task.threads, task.memory_bytes) as database:
            _collect(database, io, task, deletes, field_ids)
            for number, positions in _removed(database, io, task, deletes, field_ids):
                hidden.setdefault(number, BitMap64()).update(positions)
    return hidden


def _collect(
    database: Any, io: FileIO, task: SearchTask, deletes: Sequence[TableFile], field_ids: Sequence[int]
) -> None:
    """Create the database table `gone`, with each deleted key once for each scope."""
    with reading(database, "deletes", _schema(task, field_ids), _rows(io, task, list(enumerate(deletes)), field_ids)):
        keys = ", ".join(f"c{number}" for number in field_ids)
        database.execute(
            f"CREATE TEMP TABLE gone AS SELECT {keys}, scope, max(sequence_number) AS sequence_number FROM deletes "
            f"GROUP BY {keys}, scope"
        )


def _removed(
    database: Any, io: FileIO, task: SearchTask, deletes: Sequence[TableFile], field_ids: Sequence[int]
) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    """Yield (number of a data file, deleted positions in it), batch by batch."""
    files = [(number, file) for number, file in task.files if any(applies(delete, file) for delete in deletes)]
    same = " AND ".join(f"r.c{number} IS NOT DISTINCT FROM g.c{number}" for number in field_ids)
    joined = (
        f"SELECT r.file, r.pos FROM record r JOIN gone g ON {same} "
        f"AND g.sequence_number > r.sequence_number AND (g.scope = r.scope OR g.scope = {EVERYWHERE})"
    )
    with reading(database, "record", _schema(task, field_ids), _rows(io, task, files, field_ids)):
        for batch in database.sql(joined).to_arrow_reader(BATCH_RECORDS):
            of_file, pos = (batch.column(name).to_numpy(zero_copy_only=False) for name in ("file", "pos"))
            for number in np.unique(of_file).tolist():
                yield number, pos[of_file == number].astype(np.uint64)


def _schema(task: SearchTask, field_ids: Sequence[int]) -> pa.Schema:
    keys = [(f"c{number}", storage_type(task.columns[number].kind)) for number in field_ids]
    return pa.schema([("file", pa.int64()), ("pos", pa.int64()), ("scope", pa.int64()),
                      ("sequence_number", pa.int64()), *keys])  # fmt: skip


def _rows(
    io: FileIO, task: SearchTask, files: Sequence[tuple[int, TableFile]], field_ids: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Yield the compared columns of all rows of data files, or of delete files, with file number and position."""
    schema = _schema(task, field_ids)
    columns = {f"c{number}": task.columns[number] for number in field_ids}
    layout = {name: column.path for name, column in columns.items()}
    for number, file in files:
        log_file = LogFile.without_log(file.path, file.records, constants=file.constants)
        for at, arrays in column_batches(io, log_file, layout, list(columns)):
            length = len(next(iter(arrays.values())))
            of_file, scope, sequence_number = (
                pa.array(np.full(length, value, np.int64)) for value in (number, file.scope, file.sequence_number)
            )
            pos = pa.array(np.arange(at, at + length, dtype=np.int64))
            keys = [comparable(arrays[name], column.kind, file.path) for name, column in columns.items()]
            yield pa.RecordBatch.from_arrays([of_file, pos, scope, sequence_number, *keys], schema=schema)


@dataclass(frozen=True, slots=True)
class PositionsTask:
    """Shared position delete files, each with its number."""

    deletes: tuple[tuple[int, str], ...]
    location: str


def read_positions(store: Mapping[str, str], task: PositionsTask) -> list[tuple[int, dict[str, BitMap64]]]:
    """Return, for each delete file: its number, and data file -> deleted positions. Raises TableError."""
    io, read = load_file_io(dict(store), task.location), list[tuple[int, dict[str, BitMap64]]]()
    for number, path in task.deletes:
        with io.new_input(path).open() as stream:
            read.append((number, shared_positions(stream, path, most_delete_bytes(io))))
    return read


_SEEN = pa.schema([("file", pa.string()), ("positions", pa.binary()), ("records", pa.int64())])


@dataclass(frozen=True, slots=True)
class Alive:
    """The live records of a data file. `records` counts a position once for each registration of the file."""

    positions: BitMap64
    records: int


def alive_records(frame: DataFrame) -> dict[str, Alive]:
    """Return data file -> its live records, as Spark reads the table. Omits files without live records."""
    alive: dict[str, Alive] = {}
    schema = "file string, positions binary, records bigint"
    for row in frame.select("_file", "_pos").mapInArrow(_by_file, schema).collect():
        before = alive.get(row.file, Alive(BitMap64(), 0))
        positions = before.positions | BitMap64.deserialize(bytes(row.positions))
        alive[row.file] = Alive(positions, before.records + row.records)
    return alive


def _by_file(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    bitmaps, counts = dict[str, BitMap64](), dict[str, int]()
    for batch in batches:
        names = batch.column(0).dictionary_encode()
        numbers, positions = names.indices.to_numpy(zero_copy_only=False), batch.column(1).to_numpy()
        for number, name in enumerate(names.dictionary.to_pylist()):
            of_file = positions[numbers == number].astype(np.uint64)
            bitmaps.setdefault(name, BitMap64()).update(of_file)
            counts[name] = counts.get(name, 0) + len(of_file)
    columns = [list(bitmaps), [bitmap.serialize() for bitmap in bitmaps.values()], list(counts.values())]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SEEN, strict=True)]
    yield pa.RecordBatch.from_arrays(arrays, schema=_SEEN)
