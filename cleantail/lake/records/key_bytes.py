"""Keys of adopted tables as bytes, in Arrow: the same bytes as cleantail.log.adopted_table gives in Spark, for one
column or for several. Its docstring says what they are, and what JSON several columns of a value become.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

PLAIN_SCALE = 6
"""Up to this scale Arrow writes a decimal without an exponent."""


def key_bytes(array: Any, kind: str) -> pa.Array:
    """Returns the bytes of a column; null stays null. `kind`: Iceberg's name of the column's type, by which a file that
    was written before a promotion is read. Raises pyarrow.ArrowException for a type that has none."""
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
    """Returns the bits of numbers as Java has them: one NaN, and one zero."""
    import numpy as np
    import pyarrow as pa

    values = array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
    values = np.where(np.isnan(values), np.nan, values)
    return pa.array(values.view(np.int64), mask=array.is_null().to_numpy(zero_copy_only=False))


def joined_parts(parts: Sequence[pa.Array]) -> pa.Array:
    """Returns the bytes of keys of several parts: of each its length, a colon and its bytes, or a hyphen where it is
    null. A key all of whose parts are null is null."""
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
    """Returns whether each record is marked as one that deletes its key: never null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.is_in(array.cast(pa.string()), pa.array(values, pa.string()))


def json_objects(paths: Sequence[str], parts: Sequence[pa.Array]) -> pa.Array:
    """Returns JSON of several columns, without those that are null, as Spark writes it."""
    import json

    import pyarrow as pa

    rows = zip(*(part.to_pylist() for part in parts), strict=True)
    present = ({p: v for p, v in zip(paths, row, strict=True) if v is not None} for row in rows)
    texts = (json.dumps(one, default=_text, separators=(",", ":"), ensure_ascii=False) for one in present)
    return pa.array([text.encode() for text in texts], pa.binary())


def _text(value: Any) -> Any:
    """Returns what JSON has for a value that it has no type for; bytes in Base64, as Spark."""
    import base64
    from decimal import Decimal

    if isinstance(value, Decimal):
        return float(value)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
