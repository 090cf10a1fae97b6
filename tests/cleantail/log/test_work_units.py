"""Packing partitions into Spark applications, and their way through XCom."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleantail.errors import TableError
from cleantail.human import LAST_MOMENT_MS
from cleantail.log.work_units import UNIT_BYTES, WORK_UNIT_JSON, PartitionWork, WorkUnit, pack, round_name


def work(partition, size):
    return PartitionWork(partition, 0, 10, 0, 20, size)


def packed(*sizes, unit_bytes=100):
    units = pack("r", 5, 9, [work(n, size) for n, size in enumerate(sizes)], unit_bytes)
    return [[w.partition for w in unit.partitions] for unit in units]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param((), [], id="nothing"),
        pytest.param((10,), [[0]], id="one"),
        pytest.param((60, 40), [[0, 1]], id="sum == unit"),
        pytest.param((60, 41), [[0], [1]], id="sum > unit"),
        pytest.param((30, 30, 40, 1), [[0, 1, 2], [3]], id="the sum of all before counts"),
        pytest.param((500,), [[0]], id="one larger than a unit"),
        pytest.param((500, 1), [[0], [1]], id="a large one is alone"),
        pytest.param((1, 500, 1), [[0], [1], [2]], id="order before fullness"),
        pytest.param((0, 0, 0), [[0, 1, 2]], id="without bytes"),
    ],
)
def test_partitions_are_packed_in_their_order_up_to_the_size_of_a_unit(sizes, expected):
    assert packed(*sizes) == expected


@given(st.lists(st.integers(0, 150), max_size=20))
def test_packing_keeps_the_order_and_loses_nothing(sizes):
    groups = packed(*sizes)
    assert [p for group in groups for p in group] == list(range(len(sizes)))
    assert all(len(group) == 1 or sum(sizes[p] for p in group) <= 100 for group in groups)


def test_a_work_without_a_size_weighs_nothing():
    work = PartitionWork(0, 0, 10, 0, 20)
    assert (work.bytes, work.hold_cap_ms, work.records, work.dirty_records, work.read_bytes) == (0, 0, 0, 0, 0)


def test_a_unit_is_one_gibibyte_unless_told():
    assert UNIT_BYTES == 8 * 1024**3
    works = [work(0, 8 * 1024**3 - 1), work(1, 1), work(2, 1)]
    assert [len(u.partitions) for u in pack("r", 5, 9, works)] == [2, 1]


@pytest.mark.parametrize(
    ("now_ms", "name"),
    [
        pytest.param(1_767_225_600_007, "20260101T000000_007_9", id="to the millisecond"),
        pytest.param(LAST_MOMENT_MS + 2_500, "99991231T235959_500_9", id="beyond the calendar"),
    ],
)
def test_a_round_is_named_after_its_clock_and_the_tables_sequence_number(now_ms, name):
    assert round_name(now_ms, 9) == name


def test_units_are_numbered_and_named_after_their_round():
    first, second = pack("20260101T000000_000_7", 5, 9, [work(0, 80), work(1, 80)], 100)
    assert first == WorkUnit("20260101T000000_000_7", 0, 5, 9, "ct_20260101T000000_000_7_u0", (work(0, 80),))
    assert (second.unit, second.branch) == (1, "ct_20260101T000000_000_7_u1")
    assert re.fullmatch(r"[A-Za-z0-9_]+", second.branch)


def test_a_unit_survives_its_way_through_json():
    (unit,) = pack("r", 5, 9, [work(0, 80), work(1, 10)])
    assert WORK_UNIT_JSON.value(WORK_UNIT_JSON.text(unit), "x") == unit


def test_results_that_were_added_to_a_unit_are_left_out_when_it_is_read_back():
    """compact returns its unit with counts; the next station reads the unit of it."""
    (unit,) = pack("r", 5, 9, [work(0, 80)])
    data = WORK_UNIT_JSON.plain(unit) | {"counts": {"map_keys": 1}}
    data["partitions"] = [w | {"extra": 1} for w in data["partitions"]]
    assert WORK_UNIT_JSON.of_plain(data, "x") == unit


def test_a_unit_of_an_earlier_version_which_waits_for_approval_is_read_without_what_that_did_not_know():
    (unit,) = pack("r", 5, 9, [work(0, 80)])
    data = WORK_UNIT_JSON.plain(unit)
    data["partitions"] = [{k: v for k, v in w.items() if not k.endswith("_bytes")} for w in data["partitions"]]
    assert WORK_UNIT_JSON.of_plain(data, "x") == unit


@pytest.mark.parametrize(
    ("end", "dirty_bytes", "read_bytes"),
    [(20, 100, 150), (15, 50, 100), (11, 10, 60), (10, 0, 50)],
    ids=["as planned", "half", "one record", "nothing"],
)
def test_a_work_that_ends_earlier_has_less_to_read(end, dirty_bytes, read_bytes):
    planned = PartitionWork(0, 10, 20, 0, 30, 400, 10, dirty_bytes=100, read_bytes=150)
    shorter = planned.ending_at(end)
    assert (shorter.end_offset, shorter.dirty_bytes, shorter.read_bytes) == (end, dirty_bytes, read_bytes)
    assert (shorter.first_dirty_offset, shorter.log_end_offset, shorter.bytes) == (10, 30, 400)


def test_a_work_of_one_offset_has_all_of_its_dirty_bytes_there():
    work = PartitionWork(0, 10, 11, 0, 30, dirty_bytes=100, read_bytes=150)
    assert work.ending_at(11) == work


def test_a_work_of_retention_alone_has_no_dirty_bytes_to_share():
    work = PartitionWork(0, 10, 10, 5, 30, 400, read_bytes=150)
    assert work.only_retention and work.ending_at(10) == work
    assert not PartitionWork(0, 10, 11, 5, 30).only_retention


@pytest.mark.parametrize("missing", ["round", "unit", "now_ms", "base_snapshot_id", "branch", "partitions"])
def test_half_a_unit_is_refused(missing):
    (unit,) = pack("r", 5, 9, [work(0, 80)])
    data = {name: value for name, value in WORK_UNIT_JSON.plain(unit).items() if name != missing}
    with pytest.raises(TableError, match=f"{missing}: Field required"):
        WORK_UNIT_JSON.of_plain(data, "x")
