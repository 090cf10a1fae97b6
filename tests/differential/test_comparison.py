"""A difference is found whatever it is, and an explanation covers no more than it says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleantail.sources.kcat import Record
from differential.comparison import Declared, Kept, Log, compare

NOW = 1_000_000


def record(offset, key=b"k", value=b"v"):
    return Record(0, offset, 1000 + offset, 0, key, value, ())


def log(broker, archive, **more):
    """A log of six offsets whose broker was cleaned up to 4 in this round."""
    given = {
        "broker_checkpoint": 4,
        "archive_checkpoint": 4,
        "latest": {b"k": 3},
        "seen": range(6),
        "kept": [Kept(0, 2, NOW), Kept(1, 4, NOW + 1)],
        "cleaned": False,
        "aged": False,
    }
    return Log(partition=0, round=1, now_ms=NOW, broker=broker, archive=archive, **(given | more))


def declared(log):
    return [difference.declared for difference in compare(log)]


def test_equal_logs_have_no_difference():
    records = [record(1), record(3, value=None), record(5, value=b"")]
    assert compare(log(records, list(records))) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"value": None},
        {"value": b""},
        {"key": b""},
        {"timestamp_ms": 7},
        {"timestamp_type": 1},
        {"headers": (("h", None),)},
    ],
    ids=str,
)
def test_every_field_of_a_record_counts(changes):
    assert declared(log([record(3)], [replace(record(3), **changes)])) == [None]


@pytest.mark.parametrize("offset", [1, 5], ids=["below the bound", "in the tail"])
@pytest.mark.parametrize("value", [b"v", None], ids=["value", "tombstone"])
def test_a_record_that_only_the_archive_has_is_never_explained(offset, value):
    assert declared(log([], [record(offset, value=value)], aged=True)) == [None]


def test_the_same_offset_twice_is_a_difference():
    assert [d.what for d in compare(log([record(3)], [record(3), record(3)]))] == ["offset 3 occurs twice"]


@pytest.mark.parametrize(
    ("offset", "more", "expected"),
    [
        (1, {}, Declared.SWEPT),
        (1, {"cleaned": True}, None),
        (1, {"now_ms": NOW - 1}, None),
        (3, {}, None),
        (3, {"now_ms": NOW + 1, "cleaned": True}, None),
        (5, {"now_ms": NOW + 9}, None),
    ],
    ids=[
        "past its horizon on a log that was not cleaned",
        "cleaned after the horizon: Kafka drops it too",
        "a millisecond before its horizon",
        "kept in this round and not due",
        "kept in this round and due: it takes two cleanings at least",
        "above the first dirty offset",
    ],
)
def test_a_tombstone_that_only_the_broker_has_is_explained_by_its_horizon(offset, more, expected):
    found = replace(log([record(offset, value=None)], []), **more)
    assert declared(found) == [expected]


def test_a_value_that_only_the_broker_has_is_not_explained_by_a_horizon():
    assert declared(log([record(1)], [])) == [None]


@pytest.mark.parametrize(
    ("offset", "more", "expected"),
    [
        (1, {}, Declared.ROLLED),
        (1, {"aged": False}, None),
        (1, {"latest": {b"k": 1}}, None),
        (1, {"latest": {b"k": 3}}, None),
    ],
    ids=["superseded in the aged segment", "not aged", "the latest of its key", "superseded below the broker's bound"],
)
def test_a_superseded_record_is_explained_only_by_what_lies_above_the_brokers_bound(offset, more, expected):
    given = {"aged": True, "archive_checkpoint": 6, "latest": {b"k": 5}} | more
    records = [d for d in compare(log([record(offset)], [], **given)) if d.is_record]
    assert [d.declared for d in records] == [expected]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"archive_checkpoint": 6, "aged": True}, [Declared.ROLLED]),
        ({"archive_checkpoint": 5, "aged": True}, [None]),
        ({"archive_checkpoint": 6}, [None]),
        ({"archive_checkpoint": 2, "aged": True}, [None]),
        ({"archive_checkpoint": 5, "seen": [0, 1, 2, 3, 5]}, [Declared.UNSEEN]),
    ],
    ids=["the log end, aged", "inside the active segment", "not aged", "behind", "no record between"],
)
def test_checkpoints_are_compared_too(more, expected):
    assert declared(log([], [], **more)) == expected
