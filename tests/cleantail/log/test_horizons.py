"""When a tombstone may go: by its horizon, the first dirty offset, the readers, and never in the run that set its horizon."""

from dataclasses import replace

import pytest

from cleantail.config.config_model import LONG_MAX
from cleantail.log.horizons import (
    Reader,
    as_due,
    due_spans,
    due_tombstones,
    held_tombstones,
    hold_offset,
    left_behind,
    new_horizon_ms,
    past_readers,
    swept,
)
from cleantail.log.partition_state import Horizon
from cleantail.log.work_units import PartitionWork
from tests.cleantail.kernel_builders import configs, log_state

WORK = PartitionWork(partition=0, first_dirty_offset=10, end_offset=20, log_start_offset=3, log_end_offset=30)
LEDGER = (Horizon(10, 500, 2), Horizon(15, 600, 1), Horizon(20, 700, 3))


# ---- the horizon


@pytest.mark.parametrize(
    ("delay_ms", "now_ms", "expected"),
    [
        pytest.param(900, 100, 1_000, id="the clock of the round and delete.retention.ms"),
        pytest.param(0, 100, 100, id="at once, for a later round"),
        pytest.param(LONG_MAX, 100, LONG_MAX, id="for ever"),
        pytest.param(LONG_MAX - 100, 100, LONG_MAX, id="just for ever"),
    ],
)
def test_the_horizon_is_delete_retention_ms_after_the_round_that_first_keeps_a_tombstone(delay_ms, now_ms, expected):
    """semantics.md 1.5"""
    assert new_horizon_ms(configs(delete_retention_ms=delay_ms), now_ms) == expected


# ---- spans that are due


@pytest.mark.parametrize(
    ("end_offset", "now_ms", "expected"),
    [
        pytest.param(20, 499, [], id="before the first horizon"),
        pytest.param(20, 500, [(0, 10)], id="now == horizon"),
        pytest.param(20, 501, [(0, 10)], id="now > horizon"),
        pytest.param(20, 600, [(0, 10), (10, 15)], id="two are due"),
        pytest.param(20, 700, [(0, 10), (10, 15), (15, 20)], id="end == first dirty offset"),
        pytest.param(19, 700, [(0, 10), (10, 15), (15, 19)], id="end > first dirty offset: up to it"),
        pytest.param(0, 700, [], id="nothing is clean"),
    ],
)
def test_a_span_is_due_when_now_has_reached_its_horizon(end_offset, now_ms, expected):
    assert due_spans(LEDGER, end_offset, now_ms) == expected


def test_a_later_span_may_be_due_before_an_earlier_one():
    """delete.retention.ms was lowered between two rounds; no horizon moves for that."""
    assert due_spans((Horizon(10, 900), Horizon(20, 100)), 20, 100) == [(10, 20)]


def test_an_empty_ledger_has_no_due_span():
    assert due_spans((), 20, 700) == []


@pytest.mark.parametrize(
    ("fresh_from", "now_ms", "expected"),
    [
        pytest.param(None, 600, [(0, 10), (10, 15)], id="nothing is fresh"),
        pytest.param(10, 600, [(0, 10)], id="set by this run"),
        pytest.param(15, 600, [(0, 10), (10, 15)], id="set before"),
        pytest.param(10, 601, [(0, 10), (10, 15)], id="a horizon of another time is of another run"),
    ],
)
def test_a_horizon_that_this_run_has_set_is_not_due_in_it(fresh_from, now_ms, expected):
    assert due_spans(LEDGER, 20, now_ms, fresh_from=fresh_from) == expected


@pytest.mark.parametrize(
    ("fresh_from", "expected"),
    [
        pytest.param(None, [500, 700, 700], id="no horizon was set in this run"),
        pytest.param(20, [500, 700, 700], id="set from beyond the last entry on"),
        pytest.param(19, [500, 700, 701], id="the last entry ends beyond it"),
        pytest.param(15, [500, 700, 701], id="an entry that ends there is an older one"),
        pytest.param(0, [500, 701, 701], id="all, but one with another horizon is not of this run"),
    ],
)
def test_the_check_takes_horizons_of_this_run_for_a_millisecond_later(fresh_from, expected):
    ledger = (Horizon(10, 500, 2), Horizon(15, 700, 1), Horizon(20, 700, 3))
    due = as_due(replace(WORK, fresh_from=fresh_from), ledger, 700)
    assert [h.horizon_ms for h in due] == expected
    assert [replace(h, horizon_ms=0) for h in due] == [replace(h, horizon_ms=0) for h in ledger]


def test_a_sweep_notes_how_far_it_came_in_each_entry():
    assert swept(WORK, LEDGER, 600) == (Horizon(10, 500, 2, 10), Horizon(15, 600, 1, 15), LEDGER[2])
    assert swept(replace(WORK, end_offset=14), LEDGER, 700) == (
        Horizon(10, 500, 2, 10),
        Horizon(15, 600, 1, 14),
        LEDGER[2],
    )


# ---- spans held for a reader (semantics.md 3.9)


@pytest.mark.parametrize(
    ("hold_offset", "now_ms", "expected"),
    [
        pytest.param(None, 700, [(0, 10), (10, 15), (15, 20)], id="no reader"),
        pytest.param(0, 700, [], id="a reader that has read nothing"),
        pytest.param(1, 700, [(0, 1)], id="offset 0 is read"),
        pytest.param(10, 700, [(0, 10)], id="exactly the first entry is read"),
        pytest.param(12, 700, [(0, 10), (10, 12)], id="inside the second"),
        pytest.param(20, 700, [(0, 10), (10, 15), (15, 20)], id="all is read"),
        pytest.param(99, 700, [(0, 10), (10, 15), (15, 20)], id="beyond the end"),
        pytest.param(0, 549, [], id="before the cap of the first"),
        pytest.param(0, 1_500, [(0, 10)], id="now == horizon + cap"),
        pytest.param(0, 1_499, [], id="a millisecond before the cap"),
        pytest.param(12, 1_600, [(0, 10), (10, 15)], id="the cap overrides in the second"),
    ],
)
def test_what_the_slowest_reader_has_not_read_waits_until_the_cap(hold_offset, now_ms, expected):
    assert due_spans(LEDGER, 20, now_ms, hold_offset, 1_000) == expected


READERS = [
    Reader("orders", name, partition, offset, 7) for name, partition, offset in [("a", 0, 5), ("b", 0, 3), ("c", 1, 1)]
]


def test_the_slowest_reader_of_a_log_decides():
    assert [hold_offset(READERS, partition) for partition in (0, 1, 2)] == [3, 1, None]


def test_a_reader_is_left_behind_by_a_tombstone_at_its_position_and_not_by_one_below_it():
    assert [r.name for r in left_behind(READERS, {0: 4})] == ["b"]
    assert [r.name for r in left_behind(READERS, {0: 5, 2: 9})] == ["a", "b"]


def test_what_was_swept_up_to_a_reader_is_not_due_again_until_it_moves():
    ledger = (Horizon(10, 500, 2, swept_to=4),)
    assert due_spans(ledger, 20, 500, 4, 1_000) == []
    assert due_spans(ledger, 20, 500, 3, 1_000) == []
    assert due_spans(ledger, 20, 500, 5, 1_000) == [(4, 5)]


def test_a_partial_sweep_is_noted_in_its_entry():
    held = replace(WORK, hold_offset=12, hold_cap_ms=1_000)
    assert swept(held, LEDGER, 700) == (Horizon(10, 500, 2, 10), Horizon(15, 600, 1, 12), LEDGER[2])
    assert swept(replace(held, hold_offset=1), LEDGER, 700) == (Horizon(10, 500, 2, 1), *LEDGER[1:])


@pytest.mark.parametrize(("now_ms", "expected"), [(1_499, False), (1_500, True)])
def test_a_hold_ends_with_the_cap(now_ms, expected):
    assert past_readers(LEDGER[0], now_ms, 9, 1_000) is expected


@pytest.mark.parametrize(("hold_offset", "expected"), [(None, True), (9, False), (10, True), (11, True)])
def test_an_entry_is_passed_when_all_below_its_end_is_read(hold_offset, expected):
    assert past_readers(LEDGER[0], 500, hold_offset, 1_000) is expected


def test_without_a_cap_nothing_is_held():
    assert due_spans(LEDGER, 20, 500, 0) == [(0, 10)]


# ---- whether a sweep is worth it

LOG = log_state(first_dirty_offset=20, horizons=(Horizon(10, 100, 3), Horizon(20, 200, 4)))


@pytest.mark.parametrize(
    ("now_ms", "due"),
    [
        pytest.param(99, 0, id="before the horizon"),
        pytest.param(100, 3, id="now == horizon: due"),
        pytest.param(101, 3, id="after it"),
        pytest.param(200, 7, id="two rounds"),
    ],
)
def test_tombstones_are_due_when_now_has_reached_their_horizon(now_ms, due):
    log = log_state(first_dirty_offset=10, horizons=(Horizon(5, 100, 3), Horizon(10, 200, 4)))
    assert due_tombstones(log, now_ms) == due


@pytest.mark.parametrize(
    ("first_dirty", "due"),
    [
        pytest.param(10, 7, id="end == first dirty offset"),
        pytest.param(6, 7, id="an entry that is clean in part counts whole"),
        pytest.param(5, 3, id="only the first"),
        pytest.param(0, 0, id="none"),
    ],
)
def test_only_tombstones_below_the_clean_point_are_due(first_dirty, due):
    log = log_state(first_dirty_offset=first_dirty, horizons=(Horizon(5, 100, 3), Horizon(10, 100, 4)))
    assert due_tombstones(log, 100) == due


def test_what_a_sweep_has_passed_up_to_a_late_record_is_not_due_again():
    ledger = (Horizon(10, 100, 4, swept_to=6),)
    assert due_tombstones(log_state(first_dirty_offset=6, horizons=ledger), 100) == 0
    assert due_tombstones(log_state(first_dirty_offset=7, horizons=ledger), 100) == 4


@pytest.mark.parametrize(("guards", "clean_to", "due"), [(0, None, 7), (3, None, 4), (8, None, 0), (3, 10, 7)])
def test_what_beats_records_that_are_not_cleaned_is_not_due_before_a_round(guards, clean_to, due):
    log = log_state(first_dirty_offset=10, horizons=(Horizon(5, 100, 3), Horizon(10, 100, 4)))
    log = replace(log, state=replace(log.state, guards=guards))
    assert due_tombstones(log, 100, clean_to=clean_to) == due


def test_a_due_horizon_after_one_that_is_not_counts():
    log = log_state(first_dirty_offset=10, horizons=(Horizon(5, 900, 3), Horizon(10, 100, 4)))
    assert due_tombstones(log, 100) == 4


def test_a_horizon_without_live_tombstones_makes_no_sweep():
    assert due_tombstones(log_state(horizons=(Horizon(5, 100, 0),)), 1_000) == 0


def test_one_live_tombstone_makes_a_sweep():
    assert due_tombstones(log_state(horizons=(Horizon(5, 100, 1),)), 100) == 1


@pytest.mark.parametrize(("first_dirty", "clean_to", "due"), [(0, None, 0), (5, 10, 3), (5, 20, 7), (20, 5, 7)])
def test_what_a_round_of_the_same_run_cleans_before_is_due(first_dirty, clean_to, due):
    assert due_tombstones(replace(LOG, first_dirty_offset=first_dirty), 200, clean_to=clean_to) == due


# ---- tombstones held for a reader (semantics.md 3.9)


@pytest.mark.parametrize(
    ("hold_offset", "due"),
    [
        pytest.param(None, 7, id="no reader"),
        pytest.param(0, 0, id="nothing is read"),
        pytest.param(1, 3, id="the first record is read: an entry held in part counts whole"),
        pytest.param(10, 3, id="exactly the first entry is read"),
        pytest.param(11, 7, id="inside the second"),
        pytest.param(20, 7, id="all is read"),
    ],
)
def test_what_a_reader_has_not_read_is_not_due(hold_offset, due):
    assert due_tombstones(LOG, 200, hold_offset, 1_000) == due


@pytest.mark.parametrize(("cap_ms", "due"), [(100, 7), (101, 3), (200, 3), (201, 0)])
def test_a_hold_ends_at_the_cap(cap_ms, due):
    assert due_tombstones(LOG, 300, 0, cap_ms) == due
    assert held_tombstones(LOG, 300, 0, cap_ms) == 7 - due


def test_without_a_cap_no_tombstone_is_held():
    assert due_tombstones(LOG, 100, 0) == 3


@pytest.mark.parametrize(
    ("now_ms", "hold_offset", "held"),
    [
        pytest.param(200, None, 0, id="no reader"),
        pytest.param(99, 0, 0, id="before the horizon nothing waits for a reader"),
        pytest.param(100, 0, 3, id="now == horizon"),
        pytest.param(200, 0, 7, id="two rounds"),
        pytest.param(200, 9, 7, id="an entry read but for one record"),
        pytest.param(200, 10, 4, id="exactly the first entry is read"),
        pytest.param(200, 20, 0, id="all is read"),
    ],
)
def test_past_their_horizon_tombstones_wait_for_a_reader(now_ms, hold_offset, held):
    assert held_tombstones(LOG, now_ms, hold_offset, 1_000) == held
