"""Which columns are guessed, what stands in the way of an adoption, and what is said of a table."""

from dataclasses import replace

import pytest

from cleantail.adopt.adoption import ForeignLog, ForeignTable, advice, changes, describe, guess_layout, problems
from cleantail.config.topic_table import Columns, quoted
from cleantail.errors import TableError
from cleantail.lake.records.topic_columns import columns_of_properties, property_of_columns
from cleantail.log.adopted_table import expressions, problem_of

COLUMNS = Columns(partition="m.partition", offset="m.offset", key="id", value="v", timestamp="m.timestamp")
FOUND = ForeignTable(
    table="sinks.orders",
    sink="a sink",
    format_version=3,
    partitioned_by="nothing",
    columns=(
        ("m.partition", "int"),
        ("m.offset", "long"),
        ("m", "struct"),
        ("id", "long"),
        ("v", "string"),
        ("x", "int"),
    ),
    topics=("orders",),
    files=2,
    logs=(ForeignLog(0, 10, 0, 9, 0), ForeignLog(1, 5, 3, 6, 1)),
    tombstones=2,
)


def red(found=FOUND, topic="orders", columns=COLUMNS, upgrade=False, **different):
    return problems(replace(found, **different), topic, columns, upgrade)


@pytest.mark.parametrize(
    ("names", "sink", "paths", "topic"),
    [
        pytest.param(
            "redpanda.partition redpanda.offset redpanda.timestamp redpanda.headers redpanda.key "
            "redpanda.timestamp_type redpanda value",
            "Redpanda's Iceberg topics",
            "redpanda.partition redpanda.offset redpanda.timestamp redpanda.timestamp_type redpanda.key value "
            "redpanda.headers",
            None,
            id="redpanda",
        ),
        pytest.param(
            "id _kafka_metadata.topic _kafka_metadata.partition _kafka_metadata.offset _kafka_metadata.timestamp "
            "_kafka_metadata",
            "Kafka Connect's Iceberg sink, metadata as a struct",
            "_kafka_metadata.partition _kafka_metadata.offset _kafka_metadata.timestamp",
            "_kafka_metadata.topic",
            id="connect nested",
        ),
        pytest.param(
            "key _kafka_metadata_topic _kafka_metadata_partition _kafka_metadata_offset _kafka_metadata_timestamp",
            "Kafka Connect's Iceberg sink, metadata as prefixed columns",
            "_kafka_metadata_partition _kafka_metadata_offset _kafka_metadata_timestamp key",
            "_kafka_metadata_topic",
            id="connect prefixed",
        ),
        pytest.param(
            "key value topic partition offset timestamp timestampType",
            "plain columns",
            "partition offset timestamp timestampType key value",
            "topic",
            id="spark",
        ),
        pytest.param(
            "_pos.partition _pos.offset _pos.record_timestamp key",
            "columns under _pos",
            "_pos.partition _pos.offset _pos.record_timestamp key",
            None,
            id="another name",
        ),
        pytest.param("a.partition a.offset b.partition b.offset key", "columns of its own", "", None, id="two of them"),
        pytest.param("source.offset id", "columns of its own", "", None, id="an offset alone"),
    ],
)
def test_a_sink_is_known_by_where_partition_and_offset_stand(names, sink, paths, topic):
    layout = guess_layout(names.split(), {})
    assert (layout.sink, set(layout.paths.values()), layout.topic_path) == (sink, set(paths.split()), topic)


def test_what_is_given_counts_before_what_is_guessed():
    names = ["a.partition", "a.offset", "b.partition", "b.offset", "b.topic", "key", "id"]
    layout = guess_layout(names, {"offset": "b.offset", "key": "id"})
    assert layout.paths == {"partition": "b.partition", "offset": "b.offset", "key": "id"}
    assert layout.topic_path == "b.topic"
    assert guess_layout(names, {"offset": "key"}).paths == {"offset": "key"}


def test_a_column_is_left_out_if_a_person_says_so_or_if_a_guess_does_not_fit():
    names = ["partition", "offset", "key", "value", "headers", "timestamp"]
    layout = guess_layout(names, {"headers": "", "value": "value"})
    assert layout.paths == {
        "partition": "partition",
        "offset": "offset",
        "key": "key",
        "timestamp": "timestamp",
        "value": "value",
    }
    optional = {name for name in names if layout.may_leave_out(name)}
    assert optional == {"timestamp"}  # records need the others, and a person has named the value
    without = layout.without("timestamp", "it is text")
    assert ("timestamp" in without.paths, without.left_out) == (False, ("timestamp is left out: it is text",))
    assert guess_layout(names, {"offset": "value"}).paths["partition"] == "partition"


def test_a_table_that_has_all_has_no_problem():
    assert red() == []


@pytest.mark.parametrize(
    ("different", "message"),
    [
        pytest.param(
            {"format_version": 1}, "version is 1, which has no deletes of rows: --upgrade makes it 3", id="v1"
        ),
        pytest.param({"owner": "other"}, "the table belongs to topic other", id="another topic's"),
        pytest.param({"owner": "orders"}, "was made by Cleantail for topic orders: there is nothing", id="ours"),
        pytest.param(
            {"owner": "orders", "adopted_columns": '{"key":"x"}'},
            'it was adopted with columns {"key":"x"}',
            id="remapped",
        ),
        pytest.param({"deletes": "it has 3 delete files"}, "it has 3 delete files", id="deletes"),
        pytest.param({"topics": ("a", "b")}, "it holds 2 topics (a, b)", id="two topics"),
        pytest.param({"unreadable_files": ("f.orc is ORC",)}, "f.orc is ORC", id="orc"),
        pytest.param({"unfit": {"timestamp": "t is no time"}}, "timestamp: t is no time", id="values"),
        pytest.param(
            {"logs": (ForeignLog(0, 2, -1, 0, 0),)},
            "partition 0 has offsets from -1 to 0, and 0 to 9223372036854775806 are allowed. Map another column with "
            "--column offset=COLUMN, or leave offsets to Iceberg with --column order=COLUMN",
            id="negative",
        ),
        pytest.param({"logs": (ForeignLog(-1, 2, 0, 1, 0),)}, "it has partition -1, and 0 to 2147483647", id="log -1"),
        pytest.param({"logs": (ForeignLog(2**31, 1, 0, 0, 0),)}, "it has partition 2147483648", id="log 2^31"),
        pytest.param(
            {"logs": (ForeignLog(0, 1, 5, 2**63 - 1, 0),)}, "and 0 to 9223372036854775806 are allowed", id="2^63-1"
        ),
        pytest.param({"wrong": ("key: no",)}, "key: no", id="mapping"),
    ],
)
def test_each_obstacle_to_an_adoption_is_reported_with_its_remedy(different, message):
    [said] = red(**different)
    assert message in said


def test_neither_a_requested_upgrade_nor_a_repeated_adoption_is_a_problem():
    assert red(upgrade=True, format_version=1) == []
    again = replace(FOUND, owner="orders", adopted_columns=property_of_columns(COLUMNS))
    assert (red(again), changes(again, "orders", COLUMNS, False)) == ([], [])


def test_an_adoption_says_what_it_changes():
    mark = "table properties cleantail.topic and cleantail.columns"
    assert changes(FOUND, "orders", COLUMNS, False) == [mark]
    retries = replace(FOUND, missing_retries=("commit.retry.num-retries",))
    assert changes(retries, "orders", COLUMNS, False) == [mark, "table property commit.retry.num-retries: 20"]
    assert changes(replace(FOUND, format_version=2), "orders", COLUMNS, True) == ["format version 2 -> 3", mark]


def test_a_table_of_version_2_stays_what_it_is_and_a_person_is_told_what_that_costs():
    old = replace(FOUND, format_version=2)
    assert red(old) == []
    assert changes(old, "orders", COLUMNS, False) == ["table properties cleantail.topic and cleantail.columns"]
    assert any("a small position delete file for every data file" in text for text in advice(old, COLUMNS, False))
    assert not any("position delete" in text for text in advice(old, COLUMNS, True))


@pytest.mark.parametrize(
    ("different", "message"),
    [
        pytest.param({"value_is_required": True}, "v can never be null: no record is a tombstone", id="required"),
        pytest.param({"files_of_several_logs": 2}, "files that hold several partitions: 2", id="shared files"),
        pytest.param(
            {"files_without_bounds": 4},
            "files without bounds of partition and offset in the metadata: 4",
            id="no metrics",
        ),
        pytest.param({"keyless": 3}, "records without a key: 3", id="keyless"),
        pytest.param(
            {"registered_twice": ("f/a", "f/b")}, "2 files are registered more than once: a, b. Readers", id="twice"
        ),
        pytest.param({"vectors_of_gone_files": 2}, "deletion vectors of data files that no longer exist: 2", id="gone"),
    ],
)
def test_advice_names_copies_and_each_further_fact_about_the_table(different, message):
    told = advice(replace(FOUND, **different), COLUMNS, False)
    assert "records that share their offset with another: 1. The first round keeps one of each" in told
    assert any(message in text for text in told)


def test_a_column_that_is_not_mapped_has_a_consequence():
    few = Columns(partition="m.partition", offset="m.offset", key="id")
    told = advice(FOUND, few, False)
    assert told[0].startswith("no column is mapped to value") and told[1].startswith("no timestamp")


def test_findings_are_described_line_by_line():
    assert describe(FOUND, COLUMNS.paths) == [
        "sinks.orders: a sink",
        "format version 3, partitioned by nothing, 2 files, 15 records",
        "columns:",
        "  partition: m.partition (int)",
        "  offset: m.offset (long)",
        "  key: id (long)",
        "  value: v (string)",
        "  timestamp: m.timestamp (no such column)",
        "  not mapped: m, x",
        "partition 0: 10 records, offsets 0 to 9, 0 duplicates",
        "partition 1: 5 records, offsets 3 to 6, 1 duplicate",
        "files in offset order: 2 of 2; tombstones: 2",
    ]


def test_records_that_were_not_read_are_not_counted():
    unread = replace(FOUND, files=None, logs=(), tombstones=None, wrong=("no column for the key was found",))
    lines = describe(unread, {"value": "v"})
    assert lines[1] == "format version 3, partitioned by nothing, records not read"
    assert lines[-1] == "  not mapped: m, id, x"


def test_a_mapping_is_read_back_from_its_table_property():
    assert columns_of_properties({"cleantail.columns": property_of_columns(COLUMNS)}) == COLUMNS
    assert columns_of_properties({}) is None
    assert quoted("a.b") == "`a`.`b`"


@pytest.mark.parametrize("text", ["[", "{}", '{"partition": "p", "offset": "o", "key": "k", "price": "x"}'])
def test_a_property_that_is_no_mapping_is_an_error_that_names_it(text):
    with pytest.raises(TableError, match="table property cleantail.columns cannot be read"):
        columns_of_properties({"cleantail.columns": text})


@pytest.mark.parametrize(
    ("column", "kind", "fine"),
    [
        pytest.param("partition", "int", True, id="partition"),
        pytest.param("offset", "string", False, id="offset as text"),
        pytest.param("key", "binary", True, id="bytes"),
        pytest.param("key", "bigint", True, id="a number"),
        pytest.param("key", "double", True, id="a fraction"),
        pytest.param("key", "struct<a:int>", False, id="a struct"),
        pytest.param("timestamp", "bigint", True, id="ms"),
        pytest.param("timestamp", "string", False, id="time as text"),
        pytest.param("headers", "array<struct<key:string,value:binary>>", True, id="headers"),
        pytest.param("headers", "map<string,binary>", False, id="headers as a map"),
        pytest.param("value", "struct<a:int>", True, id="any value"),
    ],
)
def test_a_type_fits_a_column_or_is_refused(column, kind, fine):
    assert (problem_of(column, kind) is None) == fine


def test_columns_that_are_not_there_are_in_no_record():
    few = Columns(partition="p", offset="o", key="k")
    sql = expressions(few, {"p": "int", "o": "bigint", "k": "string"})
    assert sql["key"] == "CAST(CAST(`k` AS STRING) AS BINARY)"
    assert sql["value"] == "CAST(X'' AS BINARY)"  # never null: no record is a tombstone
    assert sql["timestamp"] == "CAST(NULL AS timestamp)"
    assert list(sql) == ["partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"]
