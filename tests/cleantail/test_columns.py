"""The mapping of an adopted table's columns: what may be written, and what the table keeps of it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from cleantail.config.columns import Columns, Deleted, columns_of_texts
from cleantail.lake.columns_property import PROPERTY_COLUMNS, columns_of_properties, property_of_columns

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


def test_the_texts_of_the_command_line_say_the_same():
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
        ({"value": ["a", "b"]}, "or `deleted` beside it"),
        ({"deleted": {"column": "op", "values": ["x' OR 1"]}}, "should match pattern"),
        ({"deleted": {"column": "op", "values": []}}, "at least 1 item"),
    ],
)
def test_what_cannot_be_meant_is_refused(changed, message):
    with pytest.raises(ValidationError, match=message):
        Columns.model_validate(PLAIN | changed)
