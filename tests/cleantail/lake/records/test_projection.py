"""Iceberg's Column Projection, case by case, without Spark: what a column of a file is, and what it is if the file lacks
it."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest

from cleantail.errors import TableError
from cleantail.lake.records.projection import FIELD_ID, Field, Projection, layout_of_schema, scalar

A_UUID = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")


def column(number, name, kind="string", **more):
    return {"id": number, "name": name, "required": False, "type": kind} | more


def struct(*fields):
    return {"type": "struct", "fields": list(fields)}


def field(name, kind, number):
    return pa.field(name, kind, metadata={FIELD_ID: str(number).encode()})


def read(schema, path, table, mapping=None, constants=()):
    """What a column of a file is as the table has it."""
    layout = layout_of_schema(schema, None if mapping is None else json.dumps(mapping), {"c": path})
    [batch] = table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    return Projection(table.schema, layout, ["c"], constants, "f.parquet").arrays(batch)["c"]


def of(rows, *fields):
    return pa.table(rows, schema=pa.schema(list(fields)))


@pytest.mark.parametrize(
    ("kind", "in_json", "native", "expected"),
    [
        pytest.param("boolean", True, True, True, id="boolean"),
        pytest.param("int", 7, 7, 7, id="int"),
        pytest.param("long", 1 << 40, 1 << 40, 1 << 40, id="long"),
        pytest.param("double", 0.5, 0.5, 0.5, id="double"),
        pytest.param("decimal(9, 2)", "1.20", Decimal("1.20"), Decimal("1.20"), id="decimal"),
        pytest.param("string", "eu", "eu", "eu", id="string"),
        pytest.param("binary", "00ff", b"\x00\xff", b"\x00\xff", id="binary"),
        pytest.param("fixed[2]", "00ff", b"\x00\xff", b"\x00\xff", id="fixed"),
        pytest.param("uuid", str(A_UUID), A_UUID, A_UUID.bytes, id="uuid"),
        pytest.param("date", "1969-12-31", -1, date(1969, 12, 31), id="date"),
        pytest.param("time", "22:31:08.123456", 81068123456, time(22, 31, 8, 123456), id="time"),
        pytest.param("timestamp", "2024-02-29T01:02:03.000900", 1709168523000900,
                     datetime(2024, 2, 29, 1, 2, 3, 900), id="timestamp"),
        pytest.param("timestamptz", "2024-02-29T01:02:03+00:00", 1709168523000000,
                     datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC), id="timestamptz"),
        pytest.param("timestamptz", "1969-12-31T23:59:59.999900+00:00", -100,
                     datetime(1969, 12, 31, 23, 59, 59, 999900, tzinfo=UTC), id="before 1970"),
    ],
)  # fmt: skip
def test_a_default_and_a_partition_have_one_value_in_json_and_as_pyiceberg_has_it(kind, in_json, native, expected):
    place = Field(1, "c", (), kind)
    assert scalar(place, in_json).as_py() == scalar(place, native).as_py() == expected


def test_nanoseconds_keep_all_their_digits():
    value = scalar(Field(1, "c", (), "timestamp_ns"), "2024-02-29T01:02:03.123456789")
    assert value.value == 1709168523123456789


def test_a_value_that_is_not_of_its_type_is_named_and_not_quoted():
    with pytest.raises(TableError, match="f has a value for c that cannot be read as date$"):
        scalar(Field(1, "c", (), "date"), "secret", "f")


FILE = of({"x": [1, 2]}, field("x", pa.int64(), 9))
BARE = pa.table({"c": ["in the file", None]})


@pytest.mark.parametrize(
    ("schema", "table", "mapping", "constants", "expected"),
    [
        pytest.param(column(1, "c"), FILE, None, (), [None, None], id="null"),
        pytest.param(column(1, "c", **{"initial-default": "eu"}), FILE, None, (), ["eu", "eu"], id="its default"),
        pytest.param(column(1, "c", **{"initial-default": "eu"}), FILE, None, ((1, "us"),), ["us", "us"],
                     id="its partition before its default"),
        pytest.param(column(1, "c", **{"initial-default": "eu"}), FILE, None, ((1, None),), [None, None],
                     id="a partition that is null is a value"),
        pytest.param(column(1, "c"), FILE, None, ((2, "us"),), [None, None], id="the partition of another column"),
        pytest.param(column(1, "c"), of({"old": ["a", None]}, field("old", pa.string(), 1)), None, (), ["a", None],
                     id="renamed"),
        pytest.param(column(1, "c"), of({"c": ["a", "b"]}, field("c", pa.string(), 8)), None, (), [None, None],
                     id="of the same name and another id"),
        pytest.param(column(1, "c"), BARE, [{"field-id": 1, "names": ["c"]}], (), ["in the file", None],
                     id="by the name mapping"),
        pytest.param(column(1, "c"), BARE, [{"field-id": 1, "names": ["c"]}], ((1, "eu"),), ["eu", "eu"],
                     id="its partition before the name mapping"),
        pytest.param(column(1, "c"), BARE, [{"field-id": 2, "names": ["c"]}], (), [None, None],
                     id="a name that the mapping has for another id"),
        pytest.param(column(1, "c", **{"initial-default": "eu"}), BARE, [], (), ["eu", "eu"],
                     id="a name that the mapping has not"),
    ],
)  # fmt: skip
def test_a_column_is_found_by_its_id_or_has_what_stands_for_it(schema, table, mapping, constants, expected):
    assert read(struct(schema), "c", table, mapping, constants).to_pylist() == expected


def test_a_file_without_ids_needs_a_name_mapping():
    with pytest.raises(TableError, match=r"f.parquet has no field ids, and the table has no name mapping"):
        read(struct(column(1, "c")), "c", BARE)


@pytest.mark.parametrize(
    "mapping",
    ["", "null", "-1", "[1]", '[{"field-id": "x"}]', '[{"field-id": 1, "names": 5}]', "[" * 100_000],
    ids=["empty", "null", "number", "list of numbers", "id of text", "names of a number", "deep"],
)
def test_a_name_mapping_that_is_none_is_an_error_of_its_table(mapping):
    with pytest.raises(TableError, match=r"schema\.name-mapping\.default is not a name mapping"):
        layout_of_schema(struct(column(1, "c")), mapping, {"key": "c"})


INNER = struct(column(2, "a"), column(3, "b", **{"initial-default": "eu"}))


@pytest.mark.parametrize(
    ("outer", "path", "rows", "expected"),
    [
        pytest.param({}, "s.b", [{"a": "1"}, None], ["eu", None], id="the default, and null where the struct is"),
        pytest.param({}, "s.a", [{"a": "1"}, None], ["1", None], id="a field that the file has"),
        pytest.param({}, "s.b", None, [None, None], id="null in a file without the struct"),
        pytest.param({"initial-default": {}}, "s.b", None, ["eu", "eu"], id="of a struct that is there by default"),
        pytest.param({"initial-default": {"3": "us"}}, "s.b", None, ["us", "us"], id="of the struct's own default"),
        pytest.param({}, "s", [{"a": "1"}, None], [{"a": "1", "b": "eu"}, None], id="the whole struct"),
    ],
)
def test_a_field_of_a_struct_is_null_where_the_struct_is(outer, path, rows, expected):
    schema = struct(column(1, "s", INNER, **outer))
    kind = pa.struct([field("a", pa.string(), 2)])
    table = FILE if rows is None else of({"s": pa.array(rows, kind)}, field("s", kind, 1))
    assert read(schema, path, table).to_pylist() == expected


@pytest.mark.parametrize("part", [slice(0, 3), slice(1, 3)], ids=["whole", "a slice"])
def test_fields_of_structs_in_lists_and_maps_are_found_by_their_ids(part):
    pair = struct(column(3, "key"), column(4, "value", "binary"), column(5, "more", **{"initial-default": "x"}))
    headers = {"type": "list", "element-id": 2, "element": pair, "element-required": False}
    by_name = {"type": "map", "key-id": 7, "key": "string", "value-id": 8, "value": pair, "value-required": False}
    in_file = pa.struct([field("v", pa.binary(), 4), field("k", pa.string(), 3)])
    lists, maps = pa.list_(field("element", in_file, 2)), pa.map_(pa.string(), field("value", in_file, 8))
    one, expected = {"v": b"1", "k": "a"}, {"key": "a", "value": b"1", "more": "x"}
    table = of({"h": pa.array([[], None, [one, None]], lists)[part], "m": pa.array([[], None, [("n", one)]], maps)[part]},
               field("h", lists, 1), field("m", maps, 6))  # fmt: skip
    schema = struct(column(1, "h", headers), column(6, "m", by_name))
    assert read(schema, "h", table).to_pylist() == [[], None, [expected, None]][part]
    assert read(schema, "m", table).to_pylist() == [[], None, [("n", expected)]][part]


@pytest.mark.parametrize(
    ("kind", "stored", "expected"),
    [
        pytest.param("long", pa.array([7], pa.int32()), pa.array([7], pa.int64()), id="int to long"),
        pytest.param("double", pa.array([0.5], pa.float32()), pa.array([0.5], pa.float64()), id="float to double"),
        pytest.param("decimal(18, 2)", pa.array([Decimal("1.20")], pa.decimal128(9, 2)),
                     pa.array([Decimal("1.20")], pa.decimal128(18, 2)), id="a wider decimal"),
        pytest.param("timestamp", pa.array([1], pa.date32()), pa.array([86400 * 10**6], pa.timestamp("us")),
                     id="date to timestamp"),
        pytest.param("timestamptz", pa.array([1], pa.timestamp("ms", "UTC")), pa.array([1000], pa.timestamp("us", "UTC")),
                     id="milliseconds"),
        pytest.param("string", pa.array(["a"]).dictionary_encode(), pa.array(["a"]), id="a dictionary"),
    ],
)  # fmt: skip
def test_a_narrower_type_of_the_file_becomes_the_tables(kind, stored, expected):
    table = of({"c": stored}, field("c", stored.type, 1))
    assert read(struct(column(1, "c", kind)), "c", table).equals(expected)


def test_a_type_that_cannot_become_the_tables_is_named_and_no_value_is_quoted():
    stored = pa.array([1234567891], pa.timestamp("ns"))
    table = of({"c": stored}, field("c", stored.type, 1))
    with pytest.raises(TableError, match="f.parquet has a column c that cannot be read as timestamp, the table") as e:
        read(struct(column(1, "c", "timestamp")), "c", table)
    assert "123456789" not in str(e.value)
