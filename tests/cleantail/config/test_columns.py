"""The mapping of an adopted table's columns: what may be written, and what the table keeps of it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from cleantail.config.topic import Topic
from cleantail.config.topic_source import TableSource
from cleantail.config.topic_table import Columns, Deleted, columns_of_texts
from cleantail.lake.records.topic_columns import PROPERTY_COLUMNS, columns_of_properties, property_of_columns

ORDERED = {"order": "updated_at", "key": "k"}
PLAIN = {"partition": "p", "offset": "o", "key": "k", "value": "v"}
WIDE = {"partition": "p", "offset": "o", "key": ["s.a", "b"], "value": ["c", "d"],
        "deleted": {"column": "op", "values": ["d"]}}  # fmt: skip


def test_a_mapping_of_one_column_each_is_kept_as_earlier_versions_wrote_it():
    columns = Columns.model_validate(PLAIN)
    assert property_of_columns(columns) == '{"key":"k","offset":"o","partition":"p","value":"v"}'
    assert columns.paths == PLAIN


def test_a_mapping_of_several_columns_comes_back_from_the_table_as_it_was():
    columns = Columns.model_validate(WIDE)
    assert columns_of_properties({PROPERTY_COLUMNS: property_of_columns(columns)}) == columns
    assert columns.paths == {
        "partition": "p",
        "offset": "o",
        "key.0": "s.a",
        "key.1": "b",
        "value.0": "c",
        "value.1": "d",
        "tombstone": "op",
    }
    assert columns.names == ("partition", "offset", "key", "value")
    assert (columns.of("key"), columns.of("offset"), columns.of("headers")) == (("s.a", "b"), ("o",), ())


def test_a_mapping_is_read_back_from_its_command_line_arguments():
    columns = Columns.model_validate(WIDE)
    assert columns.texts == {"partition": "p", "offset": "o", "key": "s.a,b", "value": "c,d"}
    assert columns_of_texts(columns.texts, Deleted(column="op", values=("d",))) == columns


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"key": "a b"}, "neither a column nor a list of columns"),
        ({"key": ["a"]}, "neither a column nor a list of columns"),
        ({"key": ["a", "b;c"]}, "neither a column nor a list of columns"),
        ({"key": ["a"] * 17}, "neither a column nor a list of columns"),
        ({"key": ["a", "a"]}, "each column once"),
        ({"value": ["a", "b"]}, "or add `deleted`"),
        ({"deleted": {"column": "op", "values": ["x' OR 1"]}}, "should match pattern"),
        ({"deleted": {"column": "op", "values": []}}, "at least 1 item"),
    ],
)
def test_a_contradictory_column_mapping_is_refused(changed, message):
    with pytest.raises(ValidationError, match=message):
        Columns.model_validate(PLAIN | changed)


def test_a_column_may_decide_in_place_of_offsets():
    columns = Columns.model_validate(ORDERED)
    assert columns_of_properties({PROPERTY_COLUMNS: property_of_columns(columns)}) == columns
    assert columns.paths == {"order": "updated_at", "key": "k"}
    assert columns.texts == {"order": "updated_at", "key": "k"}
    assert not (columns.has_offsets or columns.is_of_kafka)
    # records have both nevertheless, for checks and for readers
    assert columns.shown == ("partition", "offset", "key")


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"key": "k"}, "the column of offset, or in a table without offsets that of order, not both"),
        (PLAIN | {"order": "o"}, "the column of offset, or in a table without offsets that of order, not both"),
        ({"offset": "o", "key": "k"}, "the column of the partition, required with offset"),
    ],
    ids=["neither", "both", "no partition"],
)
def test_a_mapping_has_one_order(mapping, message):
    with pytest.raises(ValidationError, match=message):
        Columns.model_validate(mapping)


def topic(columns, strategy=None):
    config = {"compaction.strategy": strategy} if strategy else {}
    return Topic.model_validate({"topic": "t", "table": "a.t", "columns": columns, "config": config})


def test_where_a_column_decides_it_is_the_strategy_and_the_only_one():
    assert topic(ORDERED).config.compaction_strategy == "order"
    assert topic(ORDERED, "order") == topic(ORDERED) == topic(ORDERED, "offset")
    assert Topic.model_validate(topic(ORDERED).model_dump()) == topic(ORDERED)
    assert topic(PLAIN, "timestamp").config.compaction_strategy == "timestamp"
    for columns, strategy in ((ORDERED, "timestamp"), (PLAIN, "order"), (None, "order")):
        with pytest.raises(ValidationError, match="with columns.order only order, or leave it out"):
            topic(columns, strategy)


def test_a_table_without_offsets_is_no_source_of_a_topic_s_own_table():
    with pytest.raises(ValidationError, match="a table with `order` can only be adopted"):
        TableSource.model_validate({"name": "a.t", "columns": ORDERED})
