"""Records of a table in offset order, every field as it was."""

import pytest

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.errors import TableError
from cleantail.lake.records.latest_state import log_starts
from cleantail.lake.records.shown_records import BATCH_RECORDS, read_records
from cleantail.log.partition_state import PartitionState
from cleantail.sources.kcat import Record


def offsets(table, partitions, *where):
    return [(r.partition, r.offset) for r in read_records(table.table, partitions, *where)]


def test_a_record_comes_back_as_it_was(orders_table):
    headers = [{"key": "h", "value": b"\xff"}, {"key": "n", "value": None}]
    orders_table.append((0, 7, 1_234, b"", None), headers=headers).append((0, 8, None, None, b"\xfe"))
    assert list(read_records(orders_table.table, [0])) == [
        Record(0, 7, 1_234, 0, b"", None, (("h", b"\xff"), ("n", None))),
        Record(0, 8, None, 0, None, b"\xfe", ()),
    ]


def test_records_come_in_offset_order_partition_by_partition(orders_table):
    orders_table.append((0, 9, 0, b"a", b"x"), (0, 3, 0, b"a", b"x"), (1, 1, 0, b"a", b"x")).append(
        (0, 5, 0, b"a", b"x")
    )
    assert offsets(orders_table, [1, 0]) == [(1, 1), (0, 3), (0, 5), (0, 9)]
    assert offsets(orders_table, [2]) == []


@pytest.mark.parametrize(("start", "expected"), [(4, [5, 6]), (5, [5, 6]), (6, [6]), (7, [])])
def test_reading_starts_at_an_offset(orders_table, start, expected):
    orders_table.append((0, 5, 0, b"a", b"x"), (0, 6, 0, b"a", b"x"))
    assert [o for _, o in offsets(orders_table, [0], start)] == expected


@pytest.mark.parametrize(("start", "expected"), [(0, [5, 6]), (6, [6]), (7, [])])
def test_a_late_record_below_the_log_start_is_not_read(orders_table, start, expected):
    orders_table.append((0, 4, 0, b"a", b"x"), (0, 5, 0, b"a", b"x"), (0, 6, 0, b"a", b"x"), (1, 0, 0, b"a", b"x"))
    found = [r.offset for r in read_records(orders_table.table, [0], start, log_starts={0: 5, 1: 9})]
    assert found == expected
    assert [r.offset for r in read_records(orders_table.table, [1])] == [0]


@pytest.mark.parametrize(
    ("policy", "state", "expected"),
    [
        ("compact", PartitionState(log_start_offset=5), {}),
        ("compact", PartitionState(log_start_offset=5, retained_from=5), {0: 5}),
        ("compact,delete", PartitionState(log_start_offset=5), {0: 5}),
        ("compact,delete", PartitionState(log_start_offset=0), {}),
        ("delete", PartitionState(), {}),
    ],
)
def test_where_a_log_starts_for_readers_is_where_retention_left_it(orders_table, policy, state, expected):
    orders_table.append((0, 5, 0, b"a", b"x"))
    old = orders_table.table.current_snapshot().snapshot_id
    orders_table.append((0, 3, 0, b"a", b"x")).set_properties(**{"cleantail.partition.0": state.as_json()})
    table, configs = orders_table.table, KafkaConfigs(cleanup_policy=policy)
    assert log_starts(table, configs) == expected
    assert log_starts(table, configs, table.current_snapshot().snapshot_id) == expected
    assert log_starts(table, configs, old) == {}


def test_reading_is_by_snapshot(orders_table):
    orders_table.append((0, 1, 0, b"a", b"x"))
    old = orders_table.table.current_snapshot().snapshot_id
    orders_table.append((0, 2, 0, b"a", b"x"))
    assert offsets(orders_table, [0], 0, old) == [(0, 1)]


def test_an_unknown_snapshot_is_refused(orders_table):
    with pytest.raises(
        TableError,
        match=r"^no snapshot 5 in .*orders: it never existed, or has expired; `cleantail history TOPIC` lists the snapshots$",
    ):
        offsets(orders_table, [0], 0, 5)


def test_more_records_than_a_batch_come_whole_and_in_order(orders_table):
    orders_table.append(*((0, n, 0, b"a", b"x") for n in reversed(range(BATCH_RECORDS + 1))))
    assert [o for _, o in offsets(orders_table, [0])] == list(range(BATCH_RECORDS + 1))
