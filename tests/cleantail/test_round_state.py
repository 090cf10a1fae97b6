"""What a round leaves in the state of a log: published, expired, or held back."""

from dataclasses import replace

import pytest

from cleantail.log.log_measure import LogMeasure
from cleantail.log.partition_state import Horizon, PartitionState, Quarantine
from cleantail.log.round_state import (
    MAX_BACKOFF_MS,
    after_expiry,
    after_failure,
    after_round,
    as_due,
    due_spans,
    late_spans,
    passed,
    proof_due,
    red_since_and_retry,
    swept,
)
from cleantail.log.work_units import PartitionWork

WORK = PartitionWork(partition=0, first_dirty_offset=10, end_offset=20, log_start_offset=3, log_end_offset=30)
HORIZONS = (Horizon(10, 500, 2), Horizon(15, 600, 0), Horizon(20, 700, 0))
MEASURE = LogMeasure(0, horizons=HORIZONS, head_tombstones=4, proven_ms=900)
QUARANTINE = Quarantine(1, "compact", "check failed: a", 1, 2)


# ---- published


def test_the_checkpoint_follows_the_data():
    before = PartitionState(checkpoint=10, log_end_offset=25, known_sequence_number=1, quarantine=QUARANTINE)
    assert after_round(before, WORK, MEASURE, 7, 1_000) == PartitionState(
        checkpoint=20,
        log_start_offset=3,
        log_end_offset=30,
        horizons=(Horizon(10, 500, 2), Horizon(20, 700, 0)),
        known_sequence_number=7,
        head_tombstones=4,
        last_round_ms=1_000,
        proven_ms=900,
        quarantine=None,
    )


@pytest.mark.parametrize(
    ("proven_ms", "now_ms", "due"),
    [
        pytest.param(None, 0, True, id="never proven"),
        pytest.param(100, 149, False, id="before the interval is over"),
        pytest.param(100, 150, True, id="now == proven + interval"),
    ],
)
def test_keys_are_proven_from_nothing_once_an_interval(proven_ms, now_ms, due):
    assert proof_due(proven_ms, now_ms, 50) is due


@pytest.mark.parametrize(("known", "expected"), [(None, 30), (0, 30), (29, 30), (31, 31)])
def test_the_log_end_never_moves_back(known, expected):
    """KIP-280: the record at the log end may vanish, the log end may not."""
    assert after_round(PartitionState(log_end_offset=known), WORK, MEASURE, 7, 1_000).log_end_offset == expected


def test_a_log_that_never_had_a_record_ends_at_0():
    empty = replace(WORK, log_end_offset=0)
    assert after_round(PartitionState(), empty, MEASURE, 7, 1_000).log_end_offset == 0


@pytest.mark.parametrize(
    ("deleted", "known", "expected"),
    [
        pytest.param({}, None, None, id="no retention: a backfill may still lower the log start"),
        pytest.param({"retention": 0}, 2, 2, id="nothing was past retention"),
        pytest.param({"retention": 1}, None, 3, id="retention moved it"),
        pytest.param({"retention": 1}, 2, 3, id="and moved it again"),
    ],
)
def test_where_retention_has_moved_the_log_start_to_is_remembered(deleted, known, expected):
    before = PartitionState(log_start_offset=2, retained_from=known)
    assert after_round(before, WORK, replace(MEASURE, deleted=deleted), 7, 1_000).retained_from == expected


# ---- expired

LEDGER = (Horizon(10, 500, 2), Horizon(15, 600, 1), Horizon(20, 700, 3))
SWEPT = LogMeasure(0, horizons=(Horizon(10, 500, 0, 10), Horizon(15, 600, 0, 15), Horizon(20, 700, 3, 0)))


@pytest.mark.parametrize(
    ("end_offset", "now_ms", "expected"),
    [
        pytest.param(20, 499, [], id="before the first horizon"),
        pytest.param(20, 500, [(0, 10)], id="now == horizon"),
        pytest.param(20, 501, [(0, 10)], id="now > horizon"),
        pytest.param(20, 600, [(0, 10), (10, 15)], id="two are due"),
        pytest.param(20, 700, [(0, 10), (10, 15), (15, 20)], id="end == clean point"),
        pytest.param(19, 700, [(0, 10), (10, 15), (15, 19)], id="end > clean point: up to it"),
        pytest.param(0, 700, [], id="nothing is clean"),
    ],
)
def test_a_span_is_due_when_now_has_reached_its_horizon(end_offset, now_ms, expected):
    assert due_spans(LEDGER, end_offset, now_ms) == expected


def test_a_later_span_may_be_due_before_an_earlier_one():
    """delete.retention.ms was lowered between two rounds; no horizon moves for that."""
    assert due_spans((Horizon(10, 900), Horizon(20, 100)), 20, 100) == [(10, 20)]


def test_no_ledger_no_span():
    assert due_spans((), 20, 700) == []


def test_an_expiry_changes_the_ledger_and_nothing_of_the_clean_point():
    before = PartitionState(10, 3, 30, LEDGER, 5, 6, 1, QUARANTINE)
    after = after_expiry(before, WORK, SWEPT, 600)
    assert after == replace(before, horizons=(Horizon(20, 700, 3),), last_round_ms=600)


@pytest.mark.parametrize(("kind", "lifted"), [("expire", True), ("compact", False)])
def test_an_expiry_lifts_the_quarantine_of_an_expiry_and_no_other(kind, lifted):
    held = replace(QUARANTINE, kind=kind)
    after = after_expiry(PartitionState(horizons=LEDGER, quarantine=held), WORK, SWEPT, 600)
    assert after.quarantine == (None if lifted else held)


def test_an_expiry_of_a_log_in_good_order_leaves_it_so():
    assert after_expiry(PartitionState(horizons=LEDGER), WORK, SWEPT, 600).quarantine is None


def test_the_last_entry_stays_with_its_tombstones_gone():
    nothing_left = LogMeasure(0, horizons=tuple(replace(h, tombstones=0, swept_to=h.end_offset) for h in LEDGER))
    after = after_expiry(PartitionState(horizons=LEDGER), WORK, nothing_left, 700)
    assert after.horizons == (Horizon(20, 700, 0, 20),)


def test_a_sweep_notes_how_far_it_came_in_each_entry():
    assert swept(WORK, LEDGER, 600) == (Horizon(10, 500, 2, 10), Horizon(15, 600, 1, 15), LEDGER[2])
    assert swept(replace(WORK, end_offset=14), LEDGER, 700) == (
        Horizon(10, 500, 2, 10),
        Horizon(15, 600, 1, 14),
        LEDGER[2],
    )


def test_what_a_sweep_had_to_leave_is_in_the_state_until_the_next_round():
    """Due tombstones that beat a record which no round has cleaned (semantics.md 2)."""
    after = after_expiry(PartitionState(horizons=LEDGER), WORK, replace(SWEPT, guards=4), 600)
    assert after.guards == 4
    assert after_round(after, WORK, MEASURE, 7, 1_000).guards == 0


# ---- late tombstones

COMES = PartitionWork(partition=0, first_dirty_offset=4, end_offset=20, log_start_offset=0, log_end_offset=30)


def cleaned(checkpoint, known=7, earlier=(), ledger_end=20):
    return PartitionState(
        checkpoint=checkpoint,
        known_sequence_number=known,
        earlier_rounds=earlier,
        horizons=(Horizon(ledger_end, 500, 1),) if ledger_end else (),
    )


@pytest.mark.parametrize(
    ("state", "end_offset", "expected"),
    [
        pytest.param(cleaned(20), 20, [(4, 20, 7)], id="late records below the checkpoint"),
        pytest.param(cleaned(20), 30, [(4, 20, 7)], id="above the ledger nothing is late"),
        pytest.param(cleaned(20), 12, [(4, 12, 7)], id="what the round does not come to waits for another"),
        pytest.param(cleaned(4), 20, [(4, 20, 7)], id="a ledger beyond the checkpoint that no earlier round explains"),
        pytest.param(cleaned(9, 8, ((20, 5),)), 20, [(4, 9, 8), (9, 20, 5)], id="a round that ended below the ledger"),
        pytest.param(cleaned(9, 8, ((20, 5),)), 9, [(4, 9, 8)], id="again only so far"),
        pytest.param(
            cleaned(6, 9, ((9, 8), (20, 5))), 20, [(4, 6, 9), (6, 9, 8), (9, 20, 5)], id="two rounds, each less far"
        ),
        pytest.param(cleaned(None), 20, [(4, 20, 7)], id="the checkpoint was lost"),
        pytest.param(cleaned(None, 7, (), 0), 20, [], id="the first round"),
        pytest.param(cleaned(4, ledger_end=4), 20, [], id="nothing but new records"),
    ],
)
def test_a_tombstone_has_no_horizon_where_no_round_has_seen_its_file(state, end_offset, expected):
    assert late_spans(replace(COMES, end_offset=end_offset), state) == expected


@pytest.mark.parametrize(
    ("end_offset", "expected"),
    [
        pytest.param(20, (), id="whole: end == the ledger's"),
        pytest.param(19, ((20, 7),), id="in part: the earlier round is remembered"),
    ],
)
def test_a_round_in_part_remembers_up_to_where_the_one_before_came(end_offset, expected):
    work = replace(COMES, end_offset=end_offset)
    assert after_round(cleaned(20), work, MEASURE, 9, 1_000).earlier_rounds == expected


def test_earlier_rounds_are_forgotten_as_they_are_passed():
    state = cleaned(6, 9, ((9, 8), (20, 5)))
    assert after_round(state, replace(COMES, end_offset=9), MEASURE, 10, 1_000).earlier_rounds == ((20, 5),)
    assert after_round(state, replace(COMES, end_offset=5), MEASURE, 10, 1_000).earlier_rounds == (
        (6, 9),
        (9, 8),
        (20, 5),
    )


@pytest.mark.parametrize("checkpoint", [None, 1], ids=["lost", "set below the log start"])
def test_without_a_checkpoint_the_ledger_says_what_was_passed_before(checkpoint):
    """A round that then ends early must not make the tombstones above it look as if it had seen them."""
    after = after_round(cleaned(checkpoint), replace(COMES, end_offset=5), MEASURE, 9, 1_000)
    assert after.earlier_rounds == ((20, 7),)


def test_a_checkpoint_beyond_the_log_explains_no_more_than_the_ledger():
    after = after_round(cleaned(1_000), replace(COMES, end_offset=5), MEASURE, 9, 1_000)
    assert after.earlier_rounds == ((20, 7),)


def test_a_first_round_has_none_before_it():
    assert after_round(PartitionState(), COMES, MEASURE, 9, 1_000).earlier_rounds == ()


# ---- held for a reader (semantics.md 3.9)


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
    assert passed(LEDGER[0], now_ms, 9, 1_000) is expected


@pytest.mark.parametrize(("hold_offset", "expected"), [(None, True), (9, False), (10, True), (11, True)])
def test_an_entry_is_passed_when_all_below_its_end_is_read(hold_offset, expected):
    assert passed(LEDGER[0], 500, hold_offset, 1_000) is expected


def test_without_a_cap_nothing_is_held():
    assert due_spans(LEDGER, 20, 500, 0) == [(0, 10)]


# ---- held back


def test_a_failed_check_quarantines_the_log_and_changes_nothing_else():
    before = PartitionState(checkpoint=10, horizons=LEDGER, known_sequence_number=5)
    held = Quarantine(since_ms=1_000, kind="expire", reason="check failed: a, b", attempts=1, retry_at_ms=16_000)
    assert after_failure(before, "expire", ["b", "a", "b"], 1_000, 15_000) == replace(before, quarantine=held)


@pytest.mark.parametrize(
    ("attempts", "pause_ms"),
    [
        pytest.param(0, 15_000, id="first"),
        pytest.param(1, 30_000, id="second"),
        pytest.param(2, 60_000, id="third"),
        pytest.param(7, 1_920_000, id="eighth"),
        pytest.param(8, MAX_BACKOFF_MS, id="ninth: an hour at most"),
        pytest.param(10_000, MAX_BACKOFF_MS, id="far beyond"),
    ],
)
def test_the_pause_doubles_with_each_failure_up_to_an_hour(attempts, pause_ms):
    held = Quarantine(7, "expire", "check failed: old", attempts, 0) if attempts else None
    found = after_failure(PartitionState(quarantine=held), "compact", ["x"], 1_000, 15_000).quarantine
    since_ms = 7 if attempts else 1_000
    assert found == Quarantine(since_ms, "compact", "check failed: x", attempts + 1, 1_000 + pause_ms)


def test_an_hour_is_the_longest_pause():
    assert MAX_BACKOFF_MS == 3_600_000


def test_the_doubling_stops_growing_after_thirty_failures():
    """A back-off of 0 stays 0, and no number grows without bound."""
    assert (
        after_failure(
            PartitionState(quarantine=Quarantine(1, "compact", "check failed: r", 99, 1)), "compact", ["x"], 5, 0
        ).quarantine.retry_at_ms
        == 5
    )


def test_a_published_round_ends_the_quarantine():
    assert after_round(PartitionState(quarantine=QUARANTINE), WORK, MEASURE, 7, 1).quarantine is None


@pytest.mark.parametrize(
    ("held", "left"),
    [
        pytest.param(QUARANTINE, QUARANTINE, id="compaction failed"),
        pytest.param(replace(QUARANTINE, kind="expire"), replace(QUARANTINE, kind="expire"), id="expiry failed"),
        pytest.param(replace(QUARANTINE, kind="retain"), None, id="retention failed"),
        pytest.param(None, None, id="not held"),
    ],
)
def test_a_round_that_only_moved_the_log_start_ends_only_a_quarantine_of_its_own_kind(held, left):
    work = replace(WORK, first_dirty_offset=20)
    assert after_round(PartitionState(quarantine=held), work, MEASURE, 7, 1).quarantine == left


@pytest.mark.parametrize(
    ("held", "kind"), [(None, "retain"), (QUARANTINE, "compact"), (replace(QUARANTINE, kind="expire"), "expire")]
)
def test_a_failed_retention_does_not_change_why_a_log_was_held_before(held, kind):
    assert after_failure(PartitionState(quarantine=held), "retain", ["x"], 5, 0).quarantine.kind == kind


@pytest.mark.parametrize(
    "held",
    [
        pytest.param(None, id="not held"),
        pytest.param(replace(QUARANTINE, reason="rejected by anna", attempts=4), id="rejected"),
        pytest.param(QUARANTINE, id="red before"),
        pytest.param(replace(QUARANTINE, attempts=6), id="red often"),
    ],
)
def test_what_a_red_check_leads_to_is_the_same_before_and_after_it_is_written(held):
    state = PartitionState(quarantine=held)
    after = after_failure(state, "compact", ["x"], 5_000, 15_000)
    written = (after.quarantine.since_ms, after.quarantine.retry_at_ms)
    assert red_since_and_retry(state, 5_000, 15_000) == red_since_and_retry(after, 5_000, 15_000) == written


@pytest.mark.parametrize("kind", ["compact", "expire", "retain"])
def test_a_red_check_after_a_rejection_is_held_since_then_and_for_the_first_time(kind):
    rejected = replace(QUARANTINE, kind="compact", reason="rejected by anna", attempts=4)
    found = after_failure(PartitionState(quarantine=rejected), kind, ["x"], 5_000, 15_000).quarantine
    assert found == Quarantine(5_000, kind, "check failed: x", 1, 20_000)


def test_a_quarantine_names_the_branch_of_its_latest_try():
    held = after_failure(PartitionState(quarantine=replace(QUARANTINE, branch="old")), "compact", ["x"], 5, 0, "new")
    assert held.quarantine.branch == "new"
    assert after_failure(held, "compact", ["x"], 5, 0).quarantine.branch == ""
