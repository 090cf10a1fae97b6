"""What a published round leaves in the state of a log: a compaction, an expiry."""

from dataclasses import replace

import pytest

from cleantail.log.partition_state import Horizon, PartitionState, Quarantine, Reconciled
from cleantail.log.round_state import (
    after_erasure,
    after_expiry,
    after_reconciliation,
    after_round,
    late_spans,
    proof_due,
)
from cleantail.log.rules import LogMeasure
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


def test_an_expiry_changes_the_ledger_and_nothing_of_the_clean_point():
    before = PartitionState(10, 3, 30, LEDGER, 5, 6, 1, quarantine=QUARANTINE)
    after = after_expiry(before, SWEPT, 600)
    assert after == replace(before, horizons=(Horizon(20, 700, 3),), last_round_ms=600)


@pytest.mark.parametrize(("kind", "lifted"), [("expire", True), ("compact", False)])
def test_an_expiry_lifts_the_quarantine_of_an_expiry_and_no_other(kind, lifted):
    held = replace(QUARANTINE, kind=kind)
    after = after_expiry(PartitionState(horizons=LEDGER, quarantine=held), SWEPT, 600)
    assert after.quarantine == (None if lifted else held)


def test_an_expiry_of_a_log_in_good_order_leaves_it_so():
    assert after_expiry(PartitionState(horizons=LEDGER), SWEPT, 600).quarantine is None


def test_the_last_entry_stays_with_its_tombstones_gone():
    nothing_left = LogMeasure(0, horizons=tuple(replace(h, tombstones=0, swept_to=h.end_offset) for h in LEDGER))
    after = after_expiry(PartitionState(horizons=LEDGER), nothing_left, 700)
    assert after.horizons == (Horizon(20, 700, 0, 20),)


def test_what_a_sweep_had_to_leave_is_in_the_state_until_the_next_round():
    """Due tombstones that beat a record which no round has cleaned (semantics.md 2)."""
    after = after_expiry(PartitionState(horizons=LEDGER), replace(SWEPT, guards=4), 600)
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


def test_a_round_over_the_first_offset_alone_has_passed_it():
    assert late_spans(replace(COMES, first_dirty_offset=0), cleaned(1, ledger_end=1)) == [(0, 1, 7)]


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


# ---- out of quarantine


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


@pytest.mark.parametrize(("kind", "lifted"), [("reconcile", True), ("compact", False), ("expire", False)])
def test_a_reconciliation_says_how_far_it_went_and_lifts_its_own_quarantine_alone(kind, lifted):
    before = PartitionState(10, 3, 30, LEDGER, 5, 6, 1, quarantine=replace(QUARANTINE, kind=kind))
    after = after_reconciliation(before, WORK, 600)
    expected = replace(before, reconciled=Reconciled(WORK.end_offset, 600), last_round_ms=600)
    assert after == replace(expected, quarantine=None if lifted else before.quarantine)


def test_a_reconciliation_of_a_log_in_good_order_leaves_it_so():
    assert after_reconciliation(PartitionState(), WORK, 600).quarantine is None


def test_a_compaction_leaves_what_was_reconciled():
    before = PartitionState(reconciled=Reconciled(20, 500))
    assert after_round(before, WORK, SWEPT, 7, 600).reconciled == Reconciled(20, 500)


@pytest.mark.parametrize(
    ("before", "of_work", "end"),
    [(None, 30, 30), (10**6, 30, 10**6), (None, 0, 0)],
    ids=["first", "higher before", "empty"],
)
def test_an_erasure_keeps_where_the_log_ended_though_its_last_records_go(before, of_work, end):
    work = replace(WORK, log_end_offset=of_work)
    state = after_erasure(PartitionState(checkpoint=3, log_end_offset=before), work, 600)
    assert (state.log_end_offset, state.checkpoint, state.last_round_ms) == (end, 3, 600)


@pytest.mark.parametrize(("kind", "lifted"), [("erase", True), ("compact", False), ("reconcile", False)])
def test_an_erasure_lifts_its_own_quarantine_alone(kind, lifted):
    held = replace(QUARANTINE, kind=kind)
    assert after_erasure(PartitionState(quarantine=held), WORK, 600).quarantine == (None if lifted else held)
