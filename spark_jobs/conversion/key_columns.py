"""Columns that equality deletes compare: where a file has them, and their values in a type in which equal is equal.

Numbers are numbers whatever width they were written with; times count units since 1970. Fractions are compared by their
bits, as Java compares them: NaN equals NaN, and 0.0 is not -0.0. Null stays null, and is compared as a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cleantail.errors import TableError
from cleantail.lake.delete_entries import REWRITE
from spark_jobs.iceberg.file_columns import ColumnPath, layout_of

_UNITS = {"timestamp": "us", "timestamptz": "us", "timestamp_ns": "ns", "timestamptz_ns": "ns"}
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_FLOATS: dict[str, tuple[Any, Any]] = {"float": (np.float32, np.int32), "double": (np.float64, np.int64)}


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """Describes a column that deletes compare. `kind` is Iceberg's name of its type."""

    field_id: int
    path: ColumnPath
    kind: str


def key_columns(table: Any, field_ids: Iterable[int]) -> dict[int, KeyColumn]:
    """Returns the columns by their ids; one that was dropped as the newest schema that has it says. Raises TableError
    for a type that cannot be compared."""
    return {number: _key_column(table, number) for number in field_ids}


def _key_column(table: Any, number: int) -> KeyColumn:
    older = sorted(table.schemas().values(), key=lambda s: -int(s.schemaId()))
    schema = next((s for s in (table.schema(), *older) if s.findField(number) is not None), None)
    if schema is None:
        raise TableError(
            f"{table.name()} has equality deletes by a column (id {number}) that no schema knows. {REWRITE}"
        )
    name, kind = str(schema.findColumnName(number)), str(schema.findField(number).type().toString())
    path = layout_of(table, {name: name}, schema).get(name)
    if path is None or storage_type(kind) is None:
        raise TableError(f"{table.name()} has equality deletes by column {name} of type {kind}. {REWRITE}")
    return KeyColumn(number, path, kind)


def storage_type(kind: str) -> pa.DataType | None:
    """Returns the type in which values of an Iceberg type are compared; None where they cannot be."""
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
    """Returns the values of a column of a file in their storage type. Raises TableError, naming `where`, for what the
    file has instead."""
    try:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        return _comparable(array, kind)
    except pa.ArrowException as e:
        raise TableError(f"{where} has a column of type {array.type} that is to be {kind}: {e}") from None


def _comparable(array: pa.Array, kind: str) -> pa.Array:
    storage = storage_type(kind)
    if kind in _UNITS:
        zone = array.type.tz if pa.types.is_timestamp(array.type) else None
        return array.cast(pa.timestamp(_UNITS[kind], zone)).cast(pa.int64())
    if kind == "date":
        return array.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    if kind == "time":
        return array.cast(pa.time64("us")).cast(pa.int64())
    if kind in _FLOATS:
        return _bits(array, *_FLOATS[kind])
    return array.cast(storage)


def _bits(array: pa.Array, fraction: Any, bits: Any) -> pa.Array:
    values = array.cast(pa.from_numpy_dtype(fraction)).fill_null(0).to_numpy(zero_copy_only=False).astype(fraction)
    values[np.isnan(values)] = np.nan  # there are many NaN, and they are equal
    as_bits = values.view(bits).astype(np.int64)
    return pa.array(as_bits, mask=array.is_null().to_numpy(zero_copy_only=False))
