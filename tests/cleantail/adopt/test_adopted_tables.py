"""Adopted tables through PyIceberg, without Spark: which logs are in a file, how records are read, what is refused."""

import json
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cleantail.config.loading import find_topic, load_platform
from cleantail.config.topic_table import Columns
from cleantail.errors import TableError
from cleantail.lake import data_files
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.data_files import data_files_of
from cleantail.lake.evaluate import plan_run
from cleantail.lake.position_deletes import DeleteFile
from cleantail.lake.records import log_records
from cleantail.lake.records.shown_records import read_records
from cleantail.lake.records.topic_columns import as_topic_columns, property_of_columns
from cleantail.lake.table_metadata import table_facts
from cleantail_cli import main

FLAT = Columns(partition="p", offset="o", key="k", value="v", timestamp="ms")
NESTED = Columns(partition="m.partition", offset="m.offset", key="k", value="v", timestamp="m.at")
META = pa.struct([("partition", pa.int64()), ("offset", pa.int64()), ("at", pa.timestamp("us"))])


@pytest.fixture
def adopted(project):
    """Makes the table of `orders` as a sink would: adopted(columns, schema, appends, properties)."""

    def make(columns, schema, *appends, **properties):
        (project / "config" / "topics" / "orders.yaml").write_text(
            json.dumps({"topic": "orders", "config": {"segment.ms": 1}, "columns": columns.paths})
        )
        catalog = open_catalog(load_platform(project / "config", {"CLEANTAIL_HOME": str(project / "home")}))
        catalog.create_namespace_if_not_exists("cleantail")
        own = {"cleantail.topic": "orders", "cleantail.columns": property_of_columns(columns)}
        table = catalog.create_table("cleantail.orders", schema, properties=own | properties)
        for rows in appends:
            table.append(pa.Table.from_pylist(rows, schema=schema))
        return table

    return make


def flat(*rows):
    return [dict(zip(("p", "o", "ms", "k", "v"), row, strict=True)) for row in rows]


FLAT_SCHEMA = pa.schema(
    [("p", pa.int32()), ("o", pa.int64()), ("ms", pa.int64()), ("k", pa.int64()), ("v", pa.string())]
)
MIXED = flat((0, 5, 100, 1, "a"), (1, 0, 50, 2, None), (0, 7, 300, 1, "b"), (1, 2, 70, 2, "c"), (0, 6, 200, 3, None))
WITHOUT_METRICS = {"write.metadata.metrics.default": "none"}


@pytest.mark.parametrize("properties", [{}, WITHOUT_METRICS], ids=["with metrics", "without metrics"])
def test_a_file_of_several_logs_is_a_file_of_each(adopted, properties):
    facts = table_facts(adopted(FLAT, FLAT_SCHEMA, MIXED, **properties))
    first, second = facts.files
    assert [(f.partition, f.lower_offset, f.upper_offset, f.records) for f in facts.files] == [
        (0, 5, 7, 3),
        (1, 0, 2, 2),
    ]
    assert [(f.min_timestamp_ms, f.max_timestamp_ms) for f in facts.files] == [(100, 300), (50, 70)]
    assert first.path == second.path
    assert first.null_values + second.null_values == 2


def entry_of(table):
    [task] = table.scan().plan_files()
    return SimpleNamespace(data_file=task.file, sequence_number=1, snapshot_id=1)


@pytest.mark.parametrize("batch", [1, 2, 3, 100])
def test_a_file_is_measured_the_same_in_any_batches(adopted, monkeypatch, tmp_path, batch):
    monkeypatch.setattr(log_records, "BATCH_RECORDS", batch)
    table = adopted(FLAT, FLAT_SCHEMA, MIXED, **WITHOUT_METRICS)
    first, second = table_facts(table).files
    assert (first.partition, first.lower_offset, first.upper_offset, first.records) == (0, 5, 7, 3)
    assert (second.min_timestamp_ms, second.max_timestamp_ms, second.records) == (50, 70, 2)
    entry = entry_of(table)
    path = entry.data_file.file_path
    pq.write_table(pa.table({"file_path": [path] * 3, "pos": pa.array([0, 3, 4], pa.int64())}), tmp_path / "d.parquet")
    delete = DeleteFile(path, f"file:{tmp_path}/d.parquet", "PARQUET", 3, 2)
    assert [file.deleted_records for file in data_files_of(table, entry, [delete])] == [2, 1]


def test_a_small_file_of_many_records_is_measured_batch_by_batch(adopted, monkeypatch):
    """A sink's owner can write a file of a few kilobytes with millions of records."""
    table = adopted(FLAT, FLAT_SCHEMA, MIXED, **WITHOUT_METRICS)
    file, records = entry_of(table).data_file, 4_000_000
    many = np.zeros(records, np.int64)
    many[-1] = 1
    columns = {"p": pa.array(many, pa.int32()), "o": pa.array(many), "ms": pa.array(many), "k": pa.array(many)}
    place = Path(file.file_path.removeprefix("file://").removeprefix("file:"))
    metadata = pq.read_schema(place)
    rows = pa.table({**columns, "v": pa.nulls(records, pa.large_string())})
    rows = rows.select(metadata.names).cast(pa.schema([f.with_nullable(True) for f in metadata]))
    pq.write_table(rows, place, compression="zstd", row_group_size=100_000)
    del columns, rows
    assert place.stat().st_size < 300_000
    told = {name: getattr(file, name) for name in ("file_path", "file_format", "spec_id", "partition")}
    bounds = dict.fromkeys(("null_value_counts", "lower_bounds", "upper_bounds"))
    file = SimpleNamespace(**told, **bounds, record_count=records, file_size_in_bytes=place.stat().st_size)
    usual = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(pool)
    try:
        logs = data_files_of(table, SimpleNamespace(data_file=file, sequence_number=1, snapshot_id=1), [])
    finally:
        pa.set_memory_pool(usual)
    assert [(log.partition, log.records) for log in logs] == [(0, records - 1), (1, 1)]
    assert pool.max_memory() < 32 << 20


@pytest.mark.parametrize("properties", [{}, WITHOUT_METRICS], ids=["with metrics", "without metrics"])
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(
            flat((0, 5, 100, None, "a"), (1, 0, 50, 2, "b"), (0, 7, 300, None, "c"), (1, 2, 70, None, "d")),
            [2, 1],
            id="several logs",
        ),
        pytest.param(flat((4, 8, 100, None, "a"), (4, 9, 90, 1, "b")), [1], id="one log"),
        pytest.param(flat((4, 8, 100, 2, "a"), (4, 9, 90, 1, None)), [0], id="none"),
    ],
)
def test_records_without_a_key_are_counted_for_each_log(adopted, properties, rows, expected):
    facts = table_facts(adopted(FLAT, FLAT_SCHEMA, rows, **properties))
    assert [file.null_keys for file in facts.files] == expected


@pytest.mark.parametrize("properties", [{}, WITHOUT_METRICS], ids=["manifest", "footer"])
def test_a_file_of_one_log_is_known_without_reading_a_record(adopted, properties, monkeypatch):
    monkeypatch.setattr(data_files, "_from_records", lambda *_: pytest.fail("records were read"))
    rows = flat((4, 8, 100, 1, "a"), (4, 9, 90, 1, None))
    [file] = table_facts(adopted(FLAT, FLAT_SCHEMA, rows, **properties)).files
    assert (file.partition, file.lower_offset, file.upper_offset) == (4, 8, 9)
    assert (file.min_timestamp_ms, file.max_timestamp_ms, file.records, file.null_values) == (90, 100, 2, 1)


@pytest.mark.parametrize("properties", [{}, WITHOUT_METRICS], ids=["with metrics", "without metrics"])
def test_columns_may_be_fields_of_a_struct(adopted, properties):
    at = datetime(2024, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    rows = [{"m": {"partition": p, "offset": o, "at": at}, "k": b"k", "v": b"v"} for p, o in ((2, 1), (2, 2), (3, 1))]
    schema = pa.schema([("m", META), ("k", pa.binary()), ("v", pa.binary())])
    table = adopted(NESTED, schema, rows[:2], rows, **properties)
    found = sorted((f.partition, f.lower_offset, f.upper_offset, f.records) for f in table_facts(table).files)
    assert found == [(2, 1, 2, 2), (2, 1, 2, 2), (3, 1, 1, 1)]
    assert {f.min_timestamp_ms for f in table_facts(table).files} == {1_704_067_200_000}
    assert [(r.partition, r.offset, r.timestamp_ms) for r in read_records(table, [3])] == [(3, 1, 1_704_067_200_000)]


def test_the_content_of_a_file_is_read_once(adopted, monkeypatch):
    table = adopted(FLAT, FLAT_SCHEMA, MIXED)
    once = table_facts(table).files
    monkeypatch.setattr(data_files, "_from_records", lambda *_: pytest.fail("read again"))
    assert table_facts(table).files == once


def test_records_without_a_partition_belong_to_no_log(adopted):
    rows = flat((None, 5, 100, 1, "a"), (0, 6, 100, 1, "a"))
    with pytest.raises(TableError, match="has records without a partition or an offset: they belong to no log"):
        table_facts(adopted(FLAT, FLAT_SCHEMA, rows, **WITHOUT_METRICS))


def test_all_logs_of_an_adopted_table_are_one_unit(adopted, project):
    table = adopted(FLAT, FLAT_SCHEMA, MIXED)
    plan = plan_run(find_topic("orders", project / "config"), table_facts(table), now_ms=10**12)
    assert [[w.partition for w in unit.partitions] for unit in plan.units] == [[0, 1]]
    assert [len(unit.partitions) for unit in plan.with_works(plan.units[0].partitions).units] == [2]


def test_files_that_several_logs_share_are_left_by_reclaim(adopted, project):
    table = adopted(FLAT, FLAT_SCHEMA, *([MIXED] * 9))
    topic = find_topic("orders", project / "config")
    with table.transaction() as transaction:
        transaction.set_properties({f"cleantail.partition.{p}": STATE for p in (0, 1)})
    assert plan_run(topic, table_facts(table), now_ms=10**12).reclaim.groups == ()


STATE = json.dumps(
    {
        "version": 1, "checkpoint": 9, "log_start_offset": 0, "log_end_offset": 9, "horizons": [],
        "known_sequence_number": 99, "head_tombstones": 0, "last_round_ms": 1, "proven_ms": 1, "quarantine": None,
    }
)  # fmt: skip


def test_records_are_read_in_offset_order_as_a_topic_tables_are(adopted, project, capsys):
    adopted(FLAT, FLAT_SCHEMA, MIXED)
    assert main(["read", "orders", "--partition", "0", "--from-offset", "6", "--config", str(project / "config")]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(r["offset"], r["ts"], r["key"], r["payload"]) for r in lines] == [(6, 200, "3", None), (7, 300, "1", "b")]
    assert main(["latest", "orders", "--config", str(project / "config")]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(r["partition"], r["offset"], r["key"], r["payload"]) for r in lines] == [
        (0, 7, "1", "b"),
        (1, 2, "2", "c"),
    ]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        pytest.param(pa.array([b"x", None]), [b"x", None], id="bytes"),
        pytest.param(pa.array(["é", None]), ["é".encode(), None], id="text"),
        pytest.param(pa.array([-7, None], pa.int64()), [b"-7", None], id="a number"),
        pytest.param(pa.array([True, None]), [b"true", None], id="a boolean"),
        pytest.param(pa.array([date(2024, 2, 29), None]), [b"2024-02-29", None], id="a date"),
        pytest.param(pa.array([{"a": 1}, None]), [b'{"value":{"a":1}}', None], id="a struct"),
    ],
)
def test_keys_and_values_are_the_bytes_that_spark_makes_of_them(array, expected):
    stored = pa.table({"k": array})
    columns = Columns(partition="p", offset="o", key="k", value="k")
    assert as_topic_columns(stored, columns, ["value"])["value"].to_pylist() == expected


def test_headers_with_keys_of_bytes_get_keys_of_text():
    kind = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    stored = pa.table({"h": pa.array([[{"key": b"a", "value": b"\x01"}], None], kind)})
    columns = Columns(partition="p", offset="o", key="k", headers="h")
    found = as_topic_columns(stored, columns, ["headers", "value", "timestamp_type"])
    assert found["headers"].to_pylist() == [[{"key": "a", "value": b"\x01"}], None]
    assert found["value"].to_pylist() == [b"", b""]
    assert found["timestamp_type"].to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        pytest.param(
            {"partition": "p", "offset": "o", "key": "v"},
            "Make the YAML equal to the table, or run `cleantail adopt",
            id="other",
        ),
        pytest.param(None, "was adopted with columns .* but the YAML of topic orders has none", id="none"),
    ],
)
def test_a_yaml_that_maps_otherwise_than_the_table_is_refused(adopted, project, columns, message):
    adopted(FLAT, FLAT_SCHEMA, MIXED)
    text = {"topic": "orders"} | ({"columns": columns} if columns else {})
    (project / "config" / "topics" / "orders.yaml").write_text(json.dumps(text))
    platform = load_platform(project / "config", {"CLEANTAIL_HOME": str(project / "home")})
    with pytest.raises(TableError, match=message):
        load_table(open_catalog(platform), find_topic("orders", project / "config"))


# ---- adopt, up to the commit that Spark makes


@pytest.fixture
def sinks(project, capsys):
    """A table `sinks.orders` of a sink, and the command: (exit code, stdout, stderr)."""
    (project / "config" / "topics" / "orders.yaml").unlink()
    catalog = open_catalog(load_platform(project / "config", {"CLEANTAIL_HOME": str(project / "home")}))
    catalog.create_namespace("sinks")

    def make(schema, rows, **properties):
        table = catalog.create_table("sinks.orders", schema, properties=properties)
        table.append(pa.Table.from_pylist(rows, schema=schema))
        return table

    def run(*arguments):
        code = main(["adopt", *arguments, "--config", str(project / "config")])
        return (code, *capsys.readouterr())

    return make, run


KAFKA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.string()),
        ("value", pa.string()),
    ]
)


def kafka(*offsets, topic="orders"):
    return [{"topic": topic, "partition": 0, "offset": o, "key": "k", "value": "v"} for o in offsets]


def test_an_adoption_describes_the_table_and_asks_for_an_upgrade(sinks, project):
    make, run = sinks
    make(KAFKA, kafka(3, 1, 1), **{"format-version": "1"})
    code, out, err = run("sinks.orders")
    assert code == 2
    assert "sinks.orders: plain columns" in out
    assert "partition 0: 3 records, offsets 1 to 3, 1 duplicate" in out
    assert "files in offset order: 0 of 1" in out
    assert "note: no timestamp: for segments, lags and retention a record has the time of its append" in out
    assert "sinks.orders cannot be adopted; nothing was changed:\n- its format version is 1" in err
    assert list((project / "config" / "topics").iterdir()) == []


def test_for_machines_a_refusal_is_one_document_with_what_was_found(sinks, project):
    make, run = sinks
    make(KAFKA, kafka(1), **{"format-version": "1"})
    code, out, err = run("sinks.orders", "--json")
    document = json.loads(out)
    assert (code, document["ok"], document["format_version"]) == (2, False, 1)
    assert document["problems"][0].startswith("its format version is 1")
    assert err == f"error: {document['error']}\n"


def test_records_are_not_counted_if_a_column_is_not_known(sinks):
    make, run = sinks
    make(pa.schema([("id", pa.string()), ("lsn", pa.int64())]), [{"id": "a", "lsn": 1}])
    code, out, err = run("sinks.orders")
    assert (code, "records not read" in out, "0 files" in out) == (2, True, False), out
    assert "no column for the partition was found: name it with --column partition=COLUMN" in err
    document = json.loads(run("sinks.orders", "--json")[1])
    assert (document["files"], document["records"]) == (None, None)


def test_a_dry_run_shows_the_yaml_and_writes_none(sinks, project):
    make, run = sinks
    make(KAFKA, kafka(1, 2))
    code, out, _ = run("sinks.orders", "--upgrade", "--dry-run")
    assert code == 0
    assert "topic orders; would be changed: format version 2 -> 3; table properties cleantail.topic" in out
    assert "topic: orders\ntable: sinks.orders\ncolumns:\n  partition: partition\n" in out
    assert list((project / "config" / "topics").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["sinks.nothing"], "catalog cleantail has no table sinks.nothing", id="no table"),
        pytest.param(["orders"], "'orders' is not a table: namespace.name", id="no namespace"),
        pytest.param(["sinks.orders", "--column", "id=key"], "NAME is one of partition, offset", id="unknown name"),
        pytest.param(
            ["sinks.orders", "--column", "key=nope"], "key: the table has no column nope; it has", id="no column"
        ),
        pytest.param(
            ["sinks.orders", "--column", "offset=key"], "offset: key is string: a whole number", id="wrong type"
        ),
        pytest.param(
            ["sinks.orders", "--topic", "a/b", "--upgrade"], 'topic: "a/b" is not allowed', id="no topic's name"
        ),
    ],
)
def test_impossible_arguments_are_refused_before_any_change(sinks, project, arguments, message):
    make, run = sinks
    make(KAFKA, kafka(1, 2))
    code, _, err = run(*arguments)
    assert (code, message in err) == (2, True), err
    assert list((project / "config" / "topics").iterdir()) == []


def test_a_table_of_two_topics_is_refused(sinks):
    make, run = sinks
    make(KAFKA, kafka(1) + kafka(1, topic="payments"))
    assert "it holds 2 topics (orders, payments), but a table belongs to one topic" in run("sinks.orders")[2]


def test_a_topic_of_that_name_with_another_table_is_left_alone(sinks, project):
    make, run = sinks
    make(KAFKA, kafka(1))
    file = project / "config" / "topics" / "orders.yaml"
    file.write_text("topic: orders\n")
    code, _, err = run("sinks.orders", "--upgrade")
    assert (code, "orders.yaml has topic orders with another table; nothing was changed" in err) == (2, True)
    file.write_text("topic: orders\ntable: sinks.orders\n")
    assert (
        "orders.yaml maps other columns; nothing was changed. Write into it:\ncolumns:\n"
        in run("sinks.orders", "--upgrade")[2]
    )
    assert "already names table sinks.orders, for topic orders" in run("sinks.orders", "--topic", "x")[2]


def test_a_table_of_cleantails_own_is_not_adopted(sinks):
    make, run = sinks
    make(KAFKA, kafka(1), **{"cleantail.topic": "orders"})
    assert "made by Cleantail for topic orders: there is nothing to adopt" in run("sinks.orders")[2]
