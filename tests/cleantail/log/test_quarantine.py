"""When a log is put into quarantine, and how long it rests before it is tried again."""

from dataclasses import replace

import pytest

from cleantail.log.partition_state import Horizon, PartitionState, Quarantine
from cleantail.log.quarantine import (
    MAX_BACKOFF_MS,
    Release,
    after_failure,
    lifted,
    quarantine_pause,
    red_since_and_retry,
)
from tests.cleantail.kernel_builders import log_state

QUARANTINE = Quarantine(1, "compact", "check failed: a", 1, 2)


def test_a_failed_check_quarantines_the_log_and_changes_nothing_else():
    before = PartitionState(checkpoint=10, horizons=(Horizon(10, 500, 2),), known_sequence_number=5)
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
    quarantine = after_failure(PartitionState(quarantine=held), "compact", ["x"], 1_000, 15_000).quarantine
    since_ms = 7 if attempts else 1_000
    assert quarantine == Quarantine(since_ms, "compact", "check failed: x", attempts + 1, 1_000 + pause_ms)


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
    quarantine = after_failure(PartitionState(quarantine=rejected), kind, ["x"], 5_000, 15_000).quarantine
    assert quarantine == Quarantine(5_000, kind, "check failed: x", 1, 20_000)


def test_a_quarantine_names_the_branch_of_its_latest_try():
    held = after_failure(PartitionState(quarantine=replace(QUARANTINE, branch="old")), "compact", ["x"], 5, 0, "new")
    assert held.quarantine.branch == "new"
    assert after_failure(held, "compact", ["x"], 5, 0).quarantine.branch == ""


def test_a_rejected_round_waits_for_the_pause_of_approvals():
    rejected = log_state(state=PartitionState(quarantine=replace(QUARANTINE, reason="rejected by anna")))
    reason = "blocked until 1970-01-01 00:00:00 UTC (cleantail.approval.pause.ms): rejected by anna"
    assert (quarantine_pause(rejected, 1), quarantine_pause(rejected, 2)) == (reason, None)
    assert quarantine_pause(log_state(), 0) is None


# ---- releases

RELEASE = Release("orders", 3, "uuid", "anna", 5, QUARANTINE.since_ms, QUARANTINE.attempts, QUARANTINE.retry_at_ms)


@pytest.mark.parametrize(
    ("quarantine", "table_uuid", "free"),
    [
        pytest.param(QUARANTINE, "uuid", True, id="the released one"),
        pytest.param(QUARANTINE, "other", False, id="of another table"),
        pytest.param(replace(QUARANTINE, since_ms=2), "uuid", False, id="another begin"),
        pytest.param(replace(QUARANTINE, attempts=2), "uuid", False, id="another failed try"),
        pytest.param(replace(QUARANTINE, retry_at_ms=3), "uuid", False, id="another next try"),
        pytest.param(None, "uuid", False, id="not in quarantine"),
    ],
)
def test_a_release_lifts_one_quarantine_of_one_log_and_no_later_one(quarantine, table_uuid, free):
    """semantics.md 1.3"""
    held = PartitionState(checkpoint=7, quarantine=quarantine)
    after = lifted({3: held, 4: held}, {3: RELEASE, 9: RELEASE}, table_uuid)
    assert RELEASE.lifts(quarantine, table_uuid) is free
    assert after == {3: replace(held, quarantine=None) if free else held, 4: held}
