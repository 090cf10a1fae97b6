"""Which record of each key is the current state (semantics.md 2), on Arrow tables."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from cleantail.codec import FORMAT
from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.errors import CleantailError, TableError
from cleantail.lake.records.latest_state import load_latest, log_ends, log_starts, winners
from cleantail.log.partition_state import PartitionState
from cleantail.log.source_position import PROPERTY_POSITION, SourcePosition

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
ORDER = KafkaConfigs(compaction_strategy="order")
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


def test_by_offset_the_time_of_a_record_says_nothing():
    assert kept([(0, b"a", b"x", 9, []), (1, b"a", b"y", 5, [])], OFFSET) == [1]


def test_by_order_the_highest_of_that_column_wins_and_the_state_does_not_show_it():
    rows = records((0, b"a", b"x", 1, []), (1, b"a", b"y", 1, []), (2, b"b", b"z", 1, []))
    state = winners(rows.append_column("order", pa.array([5, 4, None], pa.int64())), ORDER, NOW, {})
    assert (state["offset"].to_pylist(), state.schema) == ([0, 2], SCHEMA)


def test_a_log_without_records_has_an_empty_state():
    assert [kept([], configs) for configs in (OFFSET, STAMP, LAST)] == [[], [], []]


@pytest.mark.parametrize("configs", [OFFSET, STAMP, LAST], ids=["offset", "timestamp", "header"])
def test_of_the_same_offset_twice_the_first_that_came_is_the_state(configs):
    rows = [(1, b"a", b"first", 1, []), (0, b"a", b"old", 1, []), (1, b"a", b"later", 1, [])]
    assert winners(records(*rows), configs, NOW, {})["value"].to_pylist() == [b"first"]


def test_the_first_that_came_is_by_commit_whatever_the_order_of_the_files(orders_table):
    for value in (b"first", b"second", b"third"):
        orders_table.append((0, 5, 50, b"a", value))
    state = loaded(orders_table)
    assert state.to_arrow()["value"].to_pylist() == [b"first"]
    turned = {path: -number for path, number in state.arrivals.items()}
    assert replace(state, arrivals=turned).to_arrow()["value"].to_pylist() == [b"third"]


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


def test_a_timestamp_of_the_broker_s_clock_wins_however_far_ahead():
    by_broker = STAMP.model_copy(update={"message_timestamp_type": "LogAppendTime"})
    records = [(0, b"a", b"x", 10**12, []), (1, b"a", b"x", 100, [])]
    assert (kept(records, by_broker), kept(records, STAMP)) == ([0], [1])


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


@pytest.mark.parametrize("configs", [OFFSET, STAMP, LAST], ids=["offset", "timestamp", "header"])
@pytest.mark.parametrize(("deleted", "expected"), [((False, 0, 4), []), ((False, 0, 3), [3]), ((False, 0, 2), [3])])
def test_records_without_a_version_are_told_from_a_deletion_by_their_offset(configs, deleted, expected):
    assert kept([(3, b"a", b"x", None, [])], configs, [(b"a", deleted)]) == expected


# ---- from a real catalog


def rows(table):
    return [(r["partition"], r["offset"]) for r in table.to_pylist()]


def loaded(orders_table, now_ms=NOW, snapshot_id=None, **changes):
    configs = orders_table.topic.config.model_copy(update=changes)
    return load_latest(orders_table.topic.model_copy(update={"config": configs}), now_ms, snapshot_id)


def test_the_state_is_of_all_logs_or_of_one_in_offset_order(orders_table):
    orders_table.append((1, 4, 0, b"a", b"x"), (1, 3, 0, b"b", b"x"), (1, 5, 0, None, b"x"))
    orders_table.append((0, 7, 0, b"a", b"y"), (0, 6, 0, b"a", b"x"))
    state = loaded(orders_table)
    assert state.positions == {0: 8, 1: 6}
    assert rows(state.to_arrow()) == [(0, 7), (1, 3), (1, 4)]
    assert (rows(state.to_arrow(0)), rows(state.to_arrow(1))) == ([(0, 7)], [(1, 3), (1, 4)])
    assert [rows(batch) for batch in state.batches()] == [[(0, 7)], [(1, 3), (1, 4)]]
    assert [rows(batch) for batch in state.batches(0)] == [[(0, 7)]]


def test_the_first_record_of_a_log_is_part_of_the_state(orders_table):
    orders_table.append((0, 0, 0, b"a", b"x"))
    assert load_latest(orders_table.topic, NOW).to_arrow()["offset"].to_pylist() == [0]


def test_the_state_stays_that_of_its_snapshot(orders_table):
    orders_table.append((0, 1, 0, b"a", b"x"))
    old = orders_table.table.current_snapshot().snapshot_id
    state = loaded(orders_table)
    orders_table.append((0, 2, 0, b"a", b"y"))
    earlier = loaded(orders_table, snapshot_id=old)
    assert [rows(s.to_arrow()) for s in (state, earlier, loaded(orders_table))] == [[(0, 1)], [(0, 1)], [(0, 2)]]
    assert (state.snapshot_id, earlier.snapshot_id, earlier.positions) == (old, old, {0: 2})


def test_a_table_without_records_has_an_empty_state(orders_table):
    state = loaded(orders_table)
    assert (state.snapshot_id, state.positions, list(state.batches())) == (None, {}, [])
    assert state.to_arrow().num_rows == 0


def test_a_topic_without_a_table_has_no_state(orders_table):
    orders_table.catalog.drop_table("cleantail.orders")
    with pytest.raises(CleantailError, match="topic orders has no table yet: ingest records first"):
        loaded(orders_table)


# ---- where a log starts and ends


def with_state(orders_table, partition, **state):
    return orders_table.set_properties(**{f"cleantail.partition.{partition}": PartitionState(**state).as_json()})


def test_a_log_ends_after_all_that_it_had_and_all_that_was_read_of_its_source(orders_table):
    orders_table.append((0, 3, 0, b"a", b"x"), (1, 3, 0, b"a", b"x")).append((0, 1, 0, b"a", b"x"))
    snapshot_id = orders_table.table.current_snapshot().snapshot_id
    for partition, state in {
        0: {"log_end_offset": 2},  # a record came later
        1: {"log_end_offset": 9},  # its last records have gone
        2: {"log_end_offset": 5},  # all its records have gone
        3: {"checkpoint": 0},  # it never had any
    }.items():
        with_state(orders_table, partition, **state)
    read = SourcePosition("c", "orders", "id", {0: 4, 2: 7, 4: 1, 5: 0}, "read_committed", "r", 5, version=FORMAT)
    orders_table.set_properties(**{PROPERTY_POSITION: read.as_json()})
    assert log_ends(orders_table.table) == {0: 4, 1: 9, 2: 7, 3: 0, 4: 1, 5: 0}
    assert log_ends(orders_table.table, snapshot_id) == {0: 4, 1: 4}


def test_only_the_current_snapshot_has_log_starts_that_retention_moved(orders_table):
    orders_table.append((0, 3, 0, b"a", b"x"))
    older = orders_table.table.current_snapshot().snapshot_id
    orders_table.append((0, 4, 0, b"a", b"x"))
    for partition, start in enumerate((0, 1, 7)):
        with_state(orders_table, partition, retained_from=start)
    current, configs = orders_table.table.current_snapshot().snapshot_id, orders_table.topic.config
    starts = [log_starts(orders_table.table, configs, snapshot_id) for snapshot_id in (None, current, older)]
    assert starts == [{1: 1, 2: 7}, {1: 1, 2: 7}, {}]


# ---- remembered deletions

LEDGER = pa.schema(
    [
        ("strategy", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("has_version", pa.bool_()),
        ("version", pa.int64()),
        ("offset", pa.int64()),
        ("forget_at_ms", pa.int64()),
    ]
)
REMEMBERS = {"cleantail_tombstone_lateness_ms": 1, "compaction_strategy": "timestamp"}
MICROS = "timestamp in microseconds"


def with_ledger(orders_table, *entries):
    """Entries are (strategy, partition, version, offset, forget at), all of key a; record 5 of either log lives."""
    orders_table.append((0, 5, 50, b"a", b"x"), (1, 5, 50, b"a", b"x"))
    ledger = orders_table.catalog.create_table("cleantail.orders_deleted_versions", LEDGER)
    made = [
        {
            "strategy": strategy,
            "partition": partition,
            "key": b"a",
            "has_version": True,
            "version": version,
            "offset": offset,
            "forget_at_ms": forget_at_ms,
        }
        for strategy, partition, version, offset, forget_at_ms in entries
    ]
    ledger.append(pa.Table.from_pylist(made, schema=LEDGER))
    return orders_table


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param([(MICROS, 0, 60_000, 1, NOW + 1)], [(1, 5)], id="deleted by a higher version"),
        pytest.param([(MICROS, 1, 60_000, 1, NOW + 1)], [(0, 5)], id="in the other log"),
        pytest.param([(MICROS, 0, 60_000, 1, NOW)], [(0, 5), (1, 5)], id="forgotten when its time has come"),
        pytest.param([("timestamp", 0, 60, 1, NOW + 1)], [(1, 5)], id="remembered in milliseconds, higher"),
        pytest.param([("timestamp", 0, 50, 9, NOW + 1)], [(1, 5)], id="remembered in milliseconds, as high"),
        pytest.param([("timestamp", 0, 40, 9, NOW + 1)], [(0, 5), (1, 5)], id="remembered in milliseconds, lower"),
        pytest.param([("timestamp", 0, 60, 1, NOW + 1), (MICROS, 0, 40_000, 9, NOW + 1)], [(1, 5)], id="of both units"),
        pytest.param([("header last v", 0, 60, 1, NOW + 1)], [(0, 5), (1, 5)], id="of another strategy"),
        pytest.param([(MICROS, 0, 40_000, 1, NOW + 1)], [(0, 5), (1, 5)], id="a lower version"),
        pytest.param(
            [(MICROS, 0, 60_000, 1, NOW + 1), (MICROS, 0, 40_000, 9, NOW + 1)],
            [(1, 5)],
            id="the highest of two",
        ),
        pytest.param(
            [(MICROS, 0, 40_000, 9, NOW + 1), (MICROS, 0, 60_000, 1, NOW + 1)],
            [(1, 5)],
            id="in whatever order",
        ),
    ],
)
def test_a_ledger_in_force_counts(orders_table, entries, expected):
    assert rows(loaded(with_ledger(orders_table, *entries), **REMEMBERS).to_arrow()) == expected


def test_a_late_record_below_the_log_start_is_no_part_of_the_state(orders_table):
    orders_table.append((0, 5, 50, b"a", b"x"), (1, 5, 50, b"a", b"x")).append((0, 3, 50, b"b", b"y"))
    state = PartitionState(log_start_offset=5, retained_from=5)
    orders_table.set_properties(**{"cleantail.partition.0": state.as_json()})
    assert rows(loaded(orders_table).to_arrow()) == [(0, 5), (1, 5)]


def test_without_a_lateness_or_a_ledger_nothing_is_remembered(orders_table):
    with_ledger(orders_table, (MICROS, 0, 60_000, 1, NOW + 1))
    assert loaded(orders_table, **REMEMBERS | {"cleantail_tombstone_lateness_ms": 0}).remembered == {}
    orders_table.catalog.drop_table("cleantail.orders_deleted_versions")
    assert loaded(orders_table, **REMEMBERS).remembered == {}


def test_a_ledger_that_cannot_be_loaded_is_named(orders_table):
    with_ledger(orders_table, (MICROS, 0, 60_000, 1, NOW + 1))
    ledger = orders_table.catalog.load_table("cleantail.orders_deleted_versions")
    Path(ledger.metadata_location.removeprefix("file:")).unlink()
    with pytest.raises(
        TableError, match=r"^table cleantail\.orders_deleted_versions is broken: its metadata is missing"
    ):
        loaded(orders_table, **REMEMBERS)
