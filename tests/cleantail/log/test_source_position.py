"""How far a table has read is one property: written and read back, and what it says of the log ends."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from cleantail.codec import FORMAT
from cleantail.errors import TableError
from cleantail.log.partition_state import PartitionState
from cleantail.log.source_position import (
    GAPS_KEPT,
    PROPERTY_POSITION,
    Gap,
    SourcePosition,
    parse_position,
    position_of,
    with_source_ends,
)

POSITION = SourcePosition(
    "c", "orders", "id", {10: 7, 2: 0}, "read_committed", "r", 5, (Gap(2, 0, 3, 4),), {10: 6}, version=FORMAT
)


def test_a_position_is_read_back_as_it_was_written():
    assert position_of({PROPERTY_POSITION: POSITION.as_json()}, "t") == POSITION
    assert position_of({}, "t") is None


def test_only_the_newest_gaps_are_kept():
    gaps = tuple(Gap(0, n, n + 1, n) for n in range(GAPS_KEPT + 5))
    assert parse_position(replace(POSITION, gaps=gaps).as_json(), "t").gaps == gaps[5:]


def test_a_position_of_another_format_names_the_number_before_fields_that_this_version_misses():
    with pytest.raises(
        TableError, match=r"^t: property cleantail\.source\.kafka cannot be read: version: 2 is not allowed"
    ):
        parse_position('{"version":2}', "t")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"version":2}',
        "[]",
        POSITION.as_json().replace('"id"', '"id","x":1'),
        re.sub(r',?"version": ?1', "", POSITION.as_json()),
    ],
)
def test_an_invalid_source_position_is_an_error_that_names_table_and_property(text):
    with pytest.raises(TableError, match=r"^t: property cleantail\.source\.kafka cannot be read"):
        parse_position(text.replace('"x":1', '"unknown":1'), "t")


def test_the_log_end_is_what_was_read_also_where_no_record_is():
    states = {10: PartitionState(log_end_offset=3, checkpoint=2), 11: PartitionState(log_end_offset=9)}
    found = with_source_ends(states, POSITION)
    assert found == {10: PartitionState(log_end_offset=7, checkpoint=2), 11: PartitionState(log_end_offset=9)}
    assert with_source_ends(states, None) == states
