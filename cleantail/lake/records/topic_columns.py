"""Arrow: an adopted table's columns as those of a topic table, by the rules of cleantail.log.adopted_table.

A table property holds the mapping of an adopted table's columns, from the adoption on. So every owner of the table has
the mapping. If the topic's YAML has another mapping, Cleantail does nothing until the table is adopted again.

Keys of adopted tables are bytes, from one column or several. They are the same in Arrow as in Spark. The docstring of
cleantail.log.adopted_table describes them, and the JSON of a value from several columns.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cleantail.codec import Codec
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

if TYPE_CHECKING:
    import pyarrow as pa


PROPERTY_COLUMNS = "cleantail.columns"
"""Table property: the mapping as JSON. A table that Cleantail made lacks it."""
_DATA_JSON: Codec[dict[str, Any]] = Codec(dict[str, Any])
_COLUMNS_JSON: Codec[Columns] = Codec(Columns)


def property_of_columns(columns: Columns) -> str:
    """Return the mapping as one line of JSON. Equal mappings give equal texts."""
    return _DATA_JSON.text(columns.as_data)


def columns_of_properties(properties: Mapping[str, str]) -> Columns | None:
    """Return the mapping of an adopted table. None for a table that Cleantail made.

    Raises TableError if the property cannot be read.
    """
    text = properties.get(PROPERTY_COLUMNS)
    return _COLUMNS_JSON.value(text, f"table property {PROPERTY_COLUMNS}") if text else None


PLAIN_SCALE = 6
"""Up to this scale Arrow writes a decimal without an exponent."""


def key_bytes(array: Any, kind: str) -> pa.Array:
    """Return a column's values as bytes. Null stays null.

    `kind`: Iceberg's name of the column's type, by which a file is read that was written before a promotion. Raises
    pyarrow.ArrowException for a type without bytes.
    """
    import pyarrow as pa

    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if kind == "uuid" and not pa.types.is_string(array.type):
        texts = (None if v is None else str(uuid.UUID(bytes=v)) for v in array.cast(pa.binary()).to_pylist())
        return pa.array(texts, pa.string()).cast(pa.binary())
    if kind.startswith("timestamp") or pa.types.is_timestamp(array.type):
        return _micros(array).cast(pa.string()).cast(pa.binary())
    if pa.types.is_floating(array.type):
        return _bits(array).cast(pa.string()).cast(pa.binary())
    if pa.types.is_decimal(array.type) and array.type.scale > PLAIN_SCALE:
        return pa.array((None if v is None else f"{v:f}" for v in array.to_pylist()), pa.string()).cast(pa.binary())
    if pa.types.is_binary(array.type):
        return array
    if pa.types.is_large_binary(array.type) or pa.types.is_fixed_size_binary(array.type):
        return array.cast(pa.binary())
    return array.cast(pa.string()).cast(pa.binary())


def _micros(array: pa.Array) -> pa.Array:
    import pyarrow as pa

    zone = array.type.tz if pa.types.is_timestamp(array.type) else None
    return array.cast(pa.timestamp("us", zone)).cast(pa.int64())


def _bits(array: pa.Array) -> pa.Array:
    """Return the bits of numbers as in Java: one NaN, and one zero."""
    import numpy as np
    import pyarrow as pa

    values = array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
    values = np.where(np.isnan(values), np.nan, values)
    return pa.array(values.view(np.int64), mask=array.is_null().to_numpy(zero_copy_only=False))


def joined_parts(parts: Sequence[pa.Array]) -> pa.Array:
    """Return the bytes of keys of several parts: for each its length, a colon and its bytes, or a hyphen if it is null.

    A key is null if all its parts are null.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    empty, colon, hyphen = (pa.scalar(text, pa.binary()) for text in (b"", b":", b"-"))
    whole, none = [], None
    for part in parts:
        length = pc.binary_length(part).cast(pa.string()).cast(pa.binary())
        whole.append(pc.fill_null(pc.binary_join_element_wise(length, colon, part, empty), hyphen))
        none = part.is_null() if none is None else pc.and_(none, part.is_null())
    return pc.if_else(none, pa.scalar(None, pa.binary()), pc.binary_join_element_wise(*whole, empty))


def marked(array: Any, values: Sequence[str]) -> pa.Array:
    """Return whether each record is marked as a delete of its key. Never null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.is_in(array.cast(pa.string()), pa.array(values, pa.string()))


def json_objects(paths: Sequence[str], parts: Sequence[pa.Array]) -> pa.Array:
    """Return JSON of several columns, without null ones, as Spark writes it."""
    import json

    import pyarrow as pa

    rows = zip(*(part.to_pylist() for part in parts), strict=True)
    present = ({p: v for p, v in zip(paths, row, strict=True) if v is not None} for row in rows)
    texts = (json.dumps(one, default=_text, separators=(",", ":"), ensure_ascii=False) for one in present)
    return pa.array([text.encode() for text in texts], pa.binary())


def _text(value: Any) -> Any:
    """Return the JSON value of a type that JSON lacks. Bytes are in Base64, as in Spark."""
    import base64
    from decimal import Decimal

    if isinstance(value, Decimal):
        return float(value)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


MADE_OFFSET = "_cleantail_offset"
"""The column of offsets that row lineage gives, in addition to the table's own."""
MOST_MS = LONG_MAX // 1000
"""Limit of Unix ms, positive or negative, that a timestamp in microseconds can hold."""
NO_KINDS: Mapping[str, str] = {}
"""For columns whose Arrow type is sufficient."""


def as_topic_columns(
    stored: pa.Table, columns: Columns, names: Sequence[str], kinds: Mapping[str, str] = NO_KINDS
) -> pa.Table:
    """Return the topic table's columns, with the same bytes per record as column_sql.expressions gives in Spark.

    `stored`: path -> column. `names` may include TOMBSTONE if a column marks deletes. Raises TableError for a value
    that a topic table's column cannot have.
    """
    import pyarrow as pa

    arrays = []
    for name in names:
        try:
            arrays.append(_topic_column(stored, columns, name, kinds))
        except pa.ArrowException:  # its message may quote a record
            paths = ", ".join(columns.of(name)) if name != TOMBSTONE else name
            raise TableError(f"column {paths} has a value that cannot be a {name}") from None
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
    """Return the values of an order: whole numbers, or the microseconds since 1970 of timestamps."""
    import pyarrow as pa

    times = pa.types.is_timestamp(stored.type)
    return (stored.cast(pa.timestamp("us", stored.type.tz)) if times else stored).cast(pa.int64())


def beyond_ms(path: str) -> str:
    """Return the error text for a column of whole numbers that cannot all be Unix ms."""
    return (
        f"column {path}, mapped to timestamp, has numbers beyond {MOST_MS}, the last Unix ms of a timestamp: its "
        "unit is different, or it is not a time. Map a column of timestamps, or of Unix ms"
    )


def micros(stored: pa.Array) -> pa.Array:
    """Return timestamps in microseconds. Whole numbers count as Unix ms.

    Raises pyarrow.ArrowInvalid for a time that is too far from 1970.
    """
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
    """Return the headers with text keys, as in a topic table. An adopted table has them as bytes."""
    if value is None:
        return None
    keys = (h["key"] for h in value)
    texts = [k.decode("utf-8", "replace") if isinstance(k, bytes) else k for k in keys]
    return [{"key": key, "value": h["value"]} for key, h in zip(texts, value, strict=True)]
