"""Which record of each key is the current state (semantics.md 2), on Arrow tables."""

import pyarrow as pa
import pytest

from cleantail.kafka_configs import KafkaConfigs
from cleantail.latest import winners

NOW = 1_000_000
HEADER = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_type", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADER),
    ]
)
OFFSET = KafkaConfigs()
STAMP = KafkaConfigs(compaction_strategy="timestamp", message_timestamp_after_max_ms=100)
LAST = KafkaConfigs(compaction_strategy="header", compaction_strategy_header="v")
FIRST = LAST.model_copy(update={"cleantail_header_occurrence": "first"})


def version(number):
    return ("v", number.to_bytes(8, "big", signed=True))


def records(*rows):
    """(offset, key, value, timestamp in ms, headers)."""
    made = [
        {
            "partition": 0,
            "offset": offset,
            "timestamp": None if ms is None else ms * 1000,
            "timestamp_type": 0,
            "key": key,
            "value": value,
            "headers": headers if headers is None else [{"key": k, "value": v} for k, v in headers],
        }
        for offset, key, value, ms, headers in rows
    ]
    return pa.Table.from_pylist(made, schema=SCHEMA)


def kept(rows, configs, remembered=()):
    return winners(records(*rows), configs, NOW, dict(remembered))["offset"].to_pylist()


def test_by_offset_the_last_record_of_a_key_is_the_state_and_tombstones_are_absent():
    rows = [(4, b"b", None, 1, []), (0, b"a", b"", 9, []), (2, b"", b"y", 1, []), (1, b"b", b"x", 1, [])]
    assert kept(rows, OFFSET) == [0, 2]


def test_a_log_without_records_has_an_empty_state():
    assert [kept([], configs) for configs in (OFFSET, STAMP, LAST)] == [[], [], []]


def test_of_the_same_offset_twice_one_is_the_state():
    assert kept([(1, b"a", b"x", 1, []), (1, b"a", b"x", 1, [])], OFFSET) == [1]


@pytest.mark.parametrize(
    ("stamps", "expected"),
    [
        ((5, 3), 0),
        ((5, 5), 1),
        ((NOW + 101, 5), 1),
        ((NOW + 100, 5), 0),
        ((NOW + 101, NOW + 999), 1),
        ((NOW + 999, NOW + 101), 1),
        ((None, 5), 1),
        ((5, None), 0),
        ((None, None), 1),
        ((0, -3), 0),
        ((None, -3), 1),
        ((-3, None), 0),
    ],
)
def test_by_timestamp_the_highest_within_the_bound_wins_and_the_last_of_equals(stamps, expected):
    assert kept([(i, b"a", b"x", ms, []) for i, ms in enumerate(stamps)], STAMP) == [expected]


@pytest.mark.parametrize(
    ("headers", "configs", "expected"),
    [
        (([version(111)], [version(110)]), LAST, 0),
        (([version(7)], [version(7)]), LAST, 1),
        (([version(-1)], [version(-2)]), LAST, 0),
        (([version(-1)], []), LAST, 0),
        (([], [version(-(1 << 63))]), LAST, 1),
        (([], []), LAST, 1),
        ((None, []), LAST, 1),
        (([version(1)], [("v", b"1234567")]), LAST, 0),
        (([version(1)], [("v", b"123456789")]), LAST, 0),
        (([version(1)], [("v", None)]), LAST, 0),
        (([version(1)], [("V", version(9)[1])]), LAST, 0),
        (([version(1), version(9)], [version(5)]), LAST, 0),
        (([version(1), version(9)], [version(5)]), FIRST, 1),
        (([version(9), ("v", b"x")], [version(5)]), LAST, 1),
        (([version(9), ("v", b"x")], [version(5)]), FIRST, 0),
        (([version((1 << 63) - 1)], [version(0)]), LAST, 0),
    ],
)
def test_by_header_the_highest_version_wins(headers, configs, expected):
    assert kept([(i, b"a", b"x", 1, h) for i, h in enumerate(headers)], configs) == [expected]


@pytest.mark.parametrize(
    ("deleted", "expected"),
    [((True, 8, 0), []), ((True, 7, 4), []), ((True, 7, 3), [3]), ((True, 7, 2), [3]), ((True, 6, 99), [3])],
)
def test_a_key_is_absent_while_a_higher_version_of_it_is_remembered_as_deleted(deleted, expected):
    rows = [(3, b"a", b"x", 1, [version(7)]), (5, b"b", b"y", 1, [version(1)]), (6, b"c", None, 1, [])]
    assert kept(rows, LAST, [(b"a", deleted), (b"elsewhere", (True, 9, 9))]) == [*expected, 5]
