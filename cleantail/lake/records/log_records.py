"""Records of a topic's table as Arrow, in the columns of a topic table, whatever the table's own columns are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cleantail.config.columns import Columns
from cleantail.config.topic_table import (
    COLUMNS,
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    TOMBSTONE,
    VALUE,
)
from cleantail.lake.columns_property import columns_of_properties
from cleantail.lake.records.key_bytes import joined_parts, json_objects, key_bytes, marked

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import DataScan, Table


NO_KINDS: Mapping[str, str] = {}
"""Where a type says all by itself."""


def log_records(
    table: Table,
    partition: int,
    snapshot_id: int | None = None,
    *,
    from_offset: int = 0,
    keyed: bool = False,
    arrivals: Mapping[str, int] | None = None,
) -> pa.Table:
    """Returns live records of one log at a snapshot: from an offset on, or only those with a key. They are in no order,
    or, with `arrivals` (data file -> data sequence number), file after file in the order in which they came.

    Of an adopted table all columns of the mapping are read and then chosen from, where they are fields of structs: no
    filter reaches the files.
    """
    from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, NotNull

    columns = columns_of_properties(table.properties)
    if columns is not None:
        return _chosen(adopted_records(table, columns, snapshot_id, partition, arrivals), partition, from_offset, keyed)
    condition: BooleanExpression = And(EqualTo(PARTITION, partition), GreaterThanOrEqual(OFFSET, from_offset))
    condition = And(condition, NotNull(KEY)) if keyed else condition
    return _scanned(table.scan(row_filter=condition, snapshot_id=snapshot_id), arrivals)


def records_at(table: Table, partition: int, offsets: Sequence[int], snapshot_id: int) -> pa.Table:
    """Returns live records of one log at a snapshot, of a few offsets. Of an adopted table whose offset is a field of a
    struct the whole log is read: no filter reaches its files."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyiceberg.expressions import And, EqualTo, In

    columns = columns_of_properties(table.properties)
    if columns is None:
        condition = And(EqualTo(PARTITION, partition), In(OFFSET, list(offsets)))
        return _scanned(table.scan(row_filter=condition, snapshot_id=snapshot_id), None)
    records = _chosen(adopted_records(table, columns, snapshot_id, partition), partition, min(offsets), False)
    return records.filter(pc.is_in(records[OFFSET], pa.array(offsets, pa.int64())))


def adopted_records(
    table: Table, columns: Columns, snapshot_id: int | None, partition: int, arrivals: Mapping[str, int] | None = None
) -> pa.Table:
    """Returns live records of an adopted table, at least those of a log."""
    from pyiceberg.expressions import AlwaysTrue, EqualTo

    plain = "." not in columns.partition
    condition = EqualTo(columns.partition, partition) if plain else AlwaysTrue()
    scan = table.scan(row_filter=condition, selected_fields=tuple(columns.paths.values()), snapshot_id=snapshot_id)
    return as_topic_columns(_scanned(scan, arrivals), columns, list(COLUMNS), _kinds(table, columns))


def _scanned(scan: DataScan, arrivals: Mapping[str, int] | None) -> pa.Table:
    """Returns the records of a scan; by arrival, of the same (partition, offset) twice the first is what a round
    keeps."""
    from pyiceberg.io.pyarrow import ArrowScan

    if arrivals is None:
        return scan.to_arrow()
    # of files that came together by name: so do rounds and the view
    files = sorted(scan.plan_files(), key=lambda task: (arrivals[task.file.file_path], task.file.file_path))
    return ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter).to_table(files)


def stored_records(table: Table, columns: Columns, names: Sequence[str], files: Iterable[Any]) -> pa.Table:
    """Returns the named columns of all records in some data files, deleted ones too."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan
    from pyiceberg.table import FileScanTask

    schema = table.schema().select(*(path for name in names for path in _read(columns, name)))
    scan = ArrowScan(table.metadata, table.io, schema, AlwaysTrue())
    stored = scan.to_table([FileScanTask(file) for file in files])
    return as_topic_columns(stored, columns, names, _kinds(table, columns))


def _read(columns: Columns, name: str) -> tuple[str, ...]:
    """Returns the paths that have to be read for a column of a topic table, or for TOMBSTONE."""
    if columns.deleted is None or name not in (VALUE, TOMBSTONE):
        return columns.of(name)
    return (*(columns.of(name) if name == VALUE else ()), columns.deleted.column)


def _kinds(table: Table, columns: Columns) -> dict[str, str]:
    """Returns path -> Iceberg's name of its type."""
    return {path: str(table.schema().find_field(path).field_type) for path in columns.paths.values()}


def _chosen(records: pa.Table, partition: int, from_offset: int, keyed: bool) -> pa.Table:
    import pyarrow.compute as pc

    in_log = pc.equal(records[PARTITION], partition)
    in_log = pc.and_(in_log, pc.greater_equal(records[OFFSET], from_offset))
    return records.filter(pc.and_(in_log, pc.is_valid(records[KEY])) if keyed else in_log)


def as_topic_columns(
    stored: pa.Table, columns: Columns, names: Sequence[str], kinds: Mapping[str, str] = NO_KINDS
) -> pa.Table:
    """Converts for Arrow as column_sql.expressions does for Spark: the same bytes for the same record. TOMBSTONE may be
    among the names where a column marks deletes."""
    import pyarrow as pa

    return pa.table([_topic_column(stored, columns, name, kinds) for name in names], names=list(names))


def _topic_column(stored: pa.Table, columns: Columns, name: str, kinds: Mapping[str, str]) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    deleted = columns.deleted
    gone = marked(field_of(stored, deleted.column), deleted.values) if deleted and name in (VALUE, TOMBSTONE) else None
    if name == TOMBSTONE:
        return gone
    parts = [field_of(stored, path) for path in columns.of(name)]
    if name == KEY:
        keys = [key_bytes(part, kinds.get(path, "")) for part, path in zip(parts, columns.of(KEY), strict=True)]
        return joined_parts(keys) if len(keys) > 1 else keys[0].cast(_types()[KEY])
    if len(parts) > 1:
        return pc.if_else(gone, pa.scalar(None, pa.binary()), json_objects(columns.of(name), parts))
    array = _converted(name, parts[0] if parts else None, len(stored))
    if gone is None:
        return array
    return pc.if_else(gone, pa.scalar(None, pa.binary()), pc.fill_null(array, b""))


def field_of(stored: pa.Table, path: str) -> pa.Array:
    """Returns a column, or a field of a struct; null where the struct is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column, *fields = path.split(".")
    chunks = stored[column]
    array = chunks.combine_chunks() if isinstance(chunks, pa.ChunkedArray) else chunks
    for field in fields:
        array = pc.struct_field(array, field)
    return array


def _converted(name: str, stored: pa.Array | None, records: int) -> pa.Array:
    import pyarrow as pa

    column_type = _types()[name]
    if stored is None:
        return pa.array([b""] * records, column_type) if name == VALUE else pa.nulls(records, column_type)
    if name == TIMESTAMP:
        return _stamps(stored, column_type)
    if name == VALUE:
        return _bytes(stored, column_type)
    if name == HEADERS:
        return pa.array([_headers(value) for value in stored.to_pylist()], column_type)
    return stored.cast(column_type)


def _types() -> dict[str, pa.DataType]:
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return {
        PARTITION: pa.int32(),
        OFFSET: pa.int64(),
        TIMESTAMP: pa.timestamp("us", tz="UTC"),
        TIMESTAMP_TYPE: pa.int32(),
        KEY: pa.binary(),
        VALUE: pa.binary(),
        HEADERS: pa.list_(header),
    }


def _stamps(stored: pa.Array, column_type: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_integer(stored.type):
        return stored.cast(pa.timestamp("ms")).cast(pa.timestamp("us")).cast(column_type)
    return stored.cast(column_type) if stored.type.tz else stored.cast(pa.timestamp("us")).cast(column_type)


def _bytes(stored: pa.Array, column_type: pa.DataType) -> pa.Array:
    import json

    import pyarrow as pa

    kind = stored.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return stored.cast(column_type)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return stored.cast(pa.string()).cast(column_type)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date(kind):
        return stored.cast(pa.string()).cast(column_type)
    texts = (
        None if v is None else json.dumps({"value": v}, default=str, separators=(",", ":")) for v in stored.to_pylist()
    )
    return pa.array([None if text is None else text.encode() for text in texts], column_type)


def _headers(value: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    """Returns the headers with keys that are text, as a topic table has them, where an adopted one has bytes."""
    if value is None:
        return None
    keys = (h["key"] for h in value)
    texts = [k.decode("utf-8", "replace") if isinstance(k, bytes) else k for k in keys]
    return [{"key": key, "value": h["value"]} for key, h in zip(texts, value, strict=True)]
