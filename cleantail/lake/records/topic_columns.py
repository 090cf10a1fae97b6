"""Columns of an adopted table as Arrow in those of a topic table, as cleantail.log.adopted_table says it for Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cleantail.config.config_model import LONG_MAX
from cleantail.config.topic_table import (
    HEADERS,
    KEY,
    OFFSET,
    ORDER,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    TOMBSTONE,
    VALUE,
    Columns,
)
from cleantail.errors import TableError
from cleantail.lake.records.key_bytes import joined_parts, json_objects, key_bytes, marked

if TYPE_CHECKING:
    import pyarrow as pa

MADE_OFFSET = "_cleantail_offset"
"""The column of offsets that row lineage gives, beside the table's own."""
MOST_MS = LONG_MAX // 1000
"""The last Unix ms, and the first with a minus, that a timestamp in microseconds can be."""
NO_KINDS: Mapping[str, str] = {}
"""Where a type says all by itself."""


def as_topic_columns(
    stored: pa.Table, columns: Columns, names: Sequence[str], kinds: Mapping[str, str] = NO_KINDS
) -> pa.Table:
    """Converts for Arrow as column_sql.expressions does for Spark: the same bytes for the same record. `stored`: path
    -> column. TOMBSTONE may be among the names where a column marks deletes. Raises TableError for a value that a topic
    table's column cannot have."""
    import pyarrow as pa

    arrays = []
    for name in names:
        try:
            arrays.append(_topic_column(stored, columns, name, kinds))
        except pa.ArrowException:  # its message may quote a record
            paths = ", ".join(columns.of(name)) if name != TOMBSTONE else name
            raise TableError(f"column {paths} has what cannot be a {name}") from None
    return pa.table(arrays, names=list(names))


def _topic_column(stored: pa.Table, columns: Columns, name: str, kinds: Mapping[str, str]) -> pa.Array:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    deleted = columns.deleted
    gone = marked(column_at(stored, deleted.column), deleted.values) if deleted and name in (VALUE, TOMBSTONE) else None
    if name == TOMBSTONE:
        return gone
    if name == OFFSET and not columns.has_offsets:
        return stored[MADE_OFFSET]
    if name == PARTITION and columns.partition is None:
        return pa.array(np.zeros(len(stored), np.int32))
    parts = [column_at(stored, path) for path in columns.of(name)]
    if name == KEY:
        keys = [key_bytes(part, kinds.get(path, "")) for part, path in zip(parts, columns.of(KEY), strict=True)]
        return joined_parts(keys) if len(keys) > 1 else keys[0].cast(_types()[KEY])
    if len(parts) > 1:
        return pc.if_else(gone, pa.scalar(None, pa.binary()), json_objects(columns.of(name), parts))
    array = _converted(name, parts[0] if parts else None, len(stored))
    if gone is None:
        return array
    return pc.if_else(gone, pa.scalar(None, pa.binary()), pc.fill_null(array, b""))


def column_at(stored: pa.Table, path: str) -> pa.Array:
    """Returns a column as one array."""
    import pyarrow as pa

    chunks = stored[path]
    return chunks.combine_chunks() if isinstance(chunks, pa.ChunkedArray) else chunks


def _converted(name: str, stored: pa.Array | None, records: int) -> pa.Array:
    import pyarrow as pa

    column_type = _types()[name]
    if stored is None:
        return pa.array([b""] * records, column_type) if name == VALUE else pa.nulls(records, column_type)
    if name == TIMESTAMP:
        return micros(stored).cast(column_type)
    if name == ORDER:
        return whole_numbers(stored)
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
        ORDER: pa.int64(),
    }


def whole_numbers(stored: pa.Array) -> pa.Array:
    """Returns what an order has: whole numbers, or the microseconds since 1970 of timestamps."""
    import pyarrow as pa

    times = pa.types.is_timestamp(stored.type)
    return (stored.cast(pa.timestamp("us", stored.type.tz)) if times else stored).cast(pa.int64())


def beyond_ms(path: str) -> str:
    """Returns what is wrong with a column of whole numbers that cannot all be Unix ms."""
    return (
        f"column {path}, mapped to timestamp, has numbers beyond {MOST_MS}, the last Unix ms of a timestamp: it counts "
        "in another unit, or is not a time. Map a column of timestamps, or of Unix ms"
    )


def micros(stored: pa.Array) -> pa.Array:
    """Returns timestamps in microseconds; whole numbers count Unix ms. Raises pyarrow.ArrowInvalid for one that is too
    far from 1970."""
    import pyarrow as pa

    if pa.types.is_integer(stored.type):
        return stored.cast(pa.timestamp("ms")).cast(pa.timestamp("us"))
    return stored.cast(pa.timestamp("us", "UTC") if getattr(stored.type, "tz", None) else pa.timestamp("us"))


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
