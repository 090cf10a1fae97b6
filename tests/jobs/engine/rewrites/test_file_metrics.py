"""Bounds of a new file's columns: readers pass over a file by them, so that a wrong one would hide records."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from spark_jobs.engine.table_files import FileMetrics

KINDS = {
    "binary": (BinaryType(), pa.binary()),
    "string": (StringType(), pa.string()),
    "timestamptz": (TimestamptzType(), pa.timestamp("us", "UTC")),
    "boolean": (BooleanType(), pa.bool_()),
    "int": (IntegerType(), pa.int32()),
    "double": (DoubleType(), pa.float64()),
}
LONG = 5_000
"""Bytes of a value for which Parquet stores no bounds."""


def bounds_of(kind: str, groups: Sequence[Sequence[Any]], **properties: str) -> tuple[bytes | None, bytes | None]:
    """Lower and upper bound of a column whose row groups hold these values."""
    iceberg, arrow = KINDS[kind]
    footers: list[Any] = []
    schema = pa.schema([("c", arrow)])
    with pq.ParquetWriter(io.BytesIO(), schema, metadata_collector=footers) as writer:
        for values in groups:
            writer.write_table(pa.table({"c": pa.array(values, arrow)}))
    table = Schema(NestedField(1, "c", iceberg, required=False))
    metrics = FileMetrics.of(json.dumps(table.model_dump(mode="json", by_alias=True)), properties)
    told = metrics.of_footer(footers[0])
    assert told["record-count"] == sum(map(len, groups))
    assert told["null-value-counts"]["values"] == [sum(value is None for values in groups for value in values)]
    low, high = (dict(zip(told[n]["keys"], told[n]["values"], strict=True)) for n in ("lower-bounds", "upper-bounds"))
    return tuple(bytes.fromhex(end[1]) if 1 in end else None for end in (low, high))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("kind", "groups", "low", "high"),
    [
        ("binary", [[b"b", b"c"], [b"a", None]], b"a", b"c"),
        ("binary", [[None], [b"a"]], b"a", b"a"),
        ("binary", [[b"", b"\x80"]], b"", b"\x80"),
        ("binary", [[b"a" * 20, b"b" * 20]], b"a" * 16, b"b" * 15 + b"c"),
        ("binary", [[b"a", b"\xff" * 20]], b"a", None),
        ("string", [["a", "z\u00e9"]], b"a", "z\u00e9".encode()),
        ("string", [["a" * 20, "\u00e9" * 20]], b"a" * 16, ("\u00e9" * 15 + "\u00ea").encode()),
        ("string", [["a", "\ud7ff" * 17]], b"a", None),
        ("timestamptz", [[-5, 9_223_372_036_854_775_000]], *(struct.pack("<q", t) for t in (-5, 9223372036854775000))),
        ("boolean", [[True], [False]], b"\0", b"\1"),
        ("int", [[-1], [7, None]], struct.pack("<i", -1), struct.pack("<i", 7)),
        ("double", [[1.5, float("nan")], [-2.0]], struct.pack("<d", -2.0), struct.pack("<d", 1.5)),
    ],
)
def test_bounds_cover_all_row_groups_and_are_truncated_outwards(kind, groups, low, high):
    assert bounds_of(kind, groups) == (low, high)


@pytest.mark.parametrize("long_one", [b"\0" * LONG, b"z" * LONG])
@pytest.mark.parametrize("others", [[b"m", b"n"], [None]])
def test_a_column_has_no_bounds_if_one_row_group_has_none(long_one, others):
    assert bounds_of("binary", [others, [b"k", long_one]]) == (None, None)


def test_metrics_mode_counts_stores_no_bounds():
    assert bounds_of("int", [[1]], **{"write.metadata.metrics.default": "counts"}) == (None, None)


def test_a_field_of_a_struct_has_bounds_and_what_is_in_a_list_has_none():
    arrow = pa.schema([("s", pa.struct([("offset", pa.int64())])), ("l", pa.list_(pa.int64()))])
    footers = []
    with pq.ParquetWriter(io.BytesIO(), arrow, metadata_collector=footers) as writer:
        writer.write_table(pa.table({"s": [{"offset": 7}, {"offset": 9}], "l": [[1, 2, 3], None]}, arrow))
    table = Schema(
        NestedField(1, "s", StructType(NestedField(2, "offset", LongType(), required=False)), required=False),
        NestedField(3, "l", ListType(4, LongType(), element_required=False), required=False),
    )
    told = FileMetrics.of(json.dumps(table.model_dump(mode="json", by_alias=True)), {}).of_footer(footers[0])
    assert told["lower-bounds"] == {"keys": [2], "values": [struct.pack("<q", 7).hex()]}
    assert told["upper-bounds"] == {"keys": [2], "values": [struct.pack("<q", 9).hex()]}
    assert told["value-counts"] == {"keys": [2], "values": [2]}


@pytest.mark.parametrize(("sorted_by", "has_bounds"), [((1,), True), ((), False)])
def test_the_column_by_which_a_table_is_sorted_has_bounds_where_others_have_none(sorted_by, has_bounds):
    footers = []
    with pq.ParquetWriter(io.BytesIO(), pa.schema([("c", pa.int64())]), metadata_collector=footers) as writer:
        writer.write_table(pa.table({"c": [1, 2]}))
    table = Schema(NestedField(1, "c", LongType(), required=False))
    text = json.dumps(table.model_dump(mode="json", by_alias=True))
    told = FileMetrics.of(text, {"write.metadata.metrics.default": "counts"}, sorted_by).of_footer(footers[0])
    assert bool(told["lower-bounds"]["keys"]) is has_bounds
