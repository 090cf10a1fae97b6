"""Offsets that are made of row lineage: one number for each record, ordered by commit and then by place."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from cleantail.errors import TableError
from cleantail.log.adopted_table import (
    LINEAGE_IDS,
    MOST_COMMITS,
    ROW_ID_BITS,
    Lineage,
    Span,
    offset_of,
    offset_range,
    record_offsets,
    spans_of_metrics,
)

PATH = "s3://bucket/a.parquet"


def made(updated, row_id):
    """The offset, written a second time."""
    return updated * 2**39 + row_id


def test_what_is_committed_later_has_the_higher_offset_whatever_its_row_id():
    assert offset_of(3, 0, PATH) > offset_of(2, (1 << ROW_ID_BITS) - 1, PATH)
    assert offset_of(2, 8, PATH) > offset_of(2, 7, PATH)


def test_records_inherit_from_their_file_what_they_do_not_carry_themselves():
    lineage = Lineage(100, 7)
    plain = record_offsets(range(2, 5), lineage, PATH)
    assert plain.to_pylist() == [made(7, 102), made(7, 103), made(7, 104)]
    own, updated = pa.array([5, None, 9], pa.int64()), pa.array([1, None, None], pa.int64())
    assert record_offsets(range(2, 5), lineage, PATH, own, updated).to_pylist() == [
        made(1, 5),
        made(7, 103),
        made(7, 9),
    ]
    assert record_offsets(range(0), lineage, PATH).to_pylist() == []


@pytest.mark.parametrize(
    ("spans", "low", "high"),
    [
        pytest.param((None, None), made(7, 100), made(7, 109), id="nothing of its own"),
        pytest.param((Span(3, 40, False), Span(1, 5, False)), made(1, 3), made(5, 40), id="all of its own"),
        pytest.param((Span(3, 40, True), Span(1, 5, True)), made(1, 3), made(7, 109), id="some inherit"),
        pytest.param((Span(3, 40, False), None), made(7, 3), made(7, 40), id="row ids alone"),
    ],
)
def test_the_bounds_of_a_file_hold_all_its_offsets(spans, low, high):
    assert offset_range(10, Lineage(100, 7), PATH, spans) == (low, high)


def test_a_manifest_that_does_not_speak_of_lineage_does_not_say_that_there_is_none():
    numbers = sorted(LINEAGE_IDS.values(), reverse=True)
    nulls = dict.fromkeys(numbers, 0) | {1: 0}
    lower = {n: struct.pack("<q", i) for i, n in enumerate(numbers)}
    upper = {n: struct.pack("<q", 10 + i) for i, n in enumerate(numbers)}
    assert spans_of_metrics(nulls, lower, upper) == (Span(0, 10, False), Span(1, 11, False))
    assert spans_of_metrics({1: 0}, {1: b""}, {1: b""}) is None
    assert spans_of_metrics({}, {}, {}) is None
    assert spans_of_metrics(nulls, lower, {}) is None


@pytest.mark.parametrize(
    ("updated", "row_id"), [(MOST_COMMITS + 1, 0), (0, 1 << ROW_ID_BITS)], ids=["commits", "records"]
)
def test_beyond_the_limits_nothing_is_made(updated, row_id):
    with pytest.raises(TableError, match="can be at most 16777214 and 549755813887. Copy the records into a new table"):
        offset_of(updated, row_id, PATH)
    with pytest.raises(TableError, match="can be at most"):
        record_offsets(range(1), Lineage(row_id, updated), PATH)
    assert offset_of(MOST_COMMITS, (1 << ROW_ID_BITS) - 1, PATH) < 2**63 - 1


@pytest.mark.parametrize("make", [offset_range, lambda n, *rest: record_offsets(range(n), *rest)])
def test_the_error_about_missing_row_ids_names_the_upgrade(make):
    with pytest.raises(TableError, match="has no row ids, and its records have no other offset.* --upgrade` makes one"):
        make(3, Lineage(None, 4), PATH)


def test_of_two_registrations_of_a_file_the_earlier_counts():
    assert Lineage(9, 5).or_earlier(Lineage(4, 7)) == Lineage(4, 5)
    assert Lineage(None, 5).or_earlier(Lineage(4, 2)) == Lineage(4, 2)
    assert Lineage(4, 2).or_earlier(None) == Lineage(4, 2)
