"""When a round waits for a person: the rule as a table, and what a "no" leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleantail.config.config_model import LONG_MAX
from cleantail.config.topic import Topic
from cleantail.errors import HeldError
from cleantail.log.partition_state import PartitionState, Quarantine
from cleantail.log.rules import LogMeasure
from cleantail.rounds.approval import (
    Rejection,
    after_rejection,
    held_message,
    holds_of,
    may_decide,
    require_approver,
)
from cleantail.rounds.checked_round import Hold
from tests.round_builders import checked_round, staged_unit


def topic(ratio=1.0, publish="auto"):
    config = {"cleantail.max.drop.ratio": ratio}
    return Topic.model_validate({"topic": "orders", "table": "c.orders", "publish": publish, "config": config})


def measure(records, partition=0, **deleted):
    return LogMeasure(partition, records_in=records, deleted=deleted)


@pytest.mark.parametrize(
    ("ratio", "publish", "records", "deleted", "held"),
    [
        pytest.param(1.0, "auto", 10, {"superseded": 10}, "", id="1.0 is off, even when all goes"),
        pytest.param(0.3, "auto", 10, {"superseded": 3}, "", id="equal to the limit"),
        pytest.param(0.3, "auto", 10, {"superseded": 4}, "4 of 10 records would be removed", id="above the limit"),
        pytest.param(0.3, "auto", 10, {"superseded": 2, "expired": 2}, "4 of 10", id="all reasons count together"),
        pytest.param(0.3, "auto", 10, {"retention": 4}, "4 of 10", id="retention counts"),
        pytest.param(0.0, "auto", 10, {"superseded": 1}, "1 of 10", id="0 holds whatever removes something"),
        pytest.param(0.0, "auto", 10, {"superseded": 0}, "", id="0 does not hold what removes nothing"),
        pytest.param(0.0, "auto", 0, {}, "", id="an empty log has no share"),
        pytest.param(
            1.0,
            "approve",
            10,
            {"superseded": 1},
            "all rounds of this topic wait (publish: approve)",
            id="approve holds below any limit",
        ),
        pytest.param(
            1.0, "approve", 10, {}, "all rounds of this topic wait (publish: approve)", id="approve holds every publish"
        ),
        pytest.param(0.3, "approve", 10, {"superseded": 4}, "cleantail.max.drop.ratio 0.3", id="the limit says more"),
    ],
)
def test_a_round_waits_where_it_would_remove_more_than_the_limit(ratio, publish, records, deleted, held):
    found = holds_of(topic(ratio, publish), [measure(records, **deleted)], {0})
    assert len(found) == bool(held)
    assert all(held in hold.reason for hold in found)


def test_a_log_whose_check_failed_is_no_reason_to_wait_since_nothing_of_it_is_published():
    measures = [measure(10, partition=p, superseded=9) for p in (2, 1, 0)]
    assert [h.partition for h in holds_of(topic(0.5), measures, {0, 2})] == [0, 2]


@pytest.mark.parametrize(
    ("ratio", "publish", "can"), [(1.0, "auto", False), (0.9, "auto", True), (1.0, "approve", True)]
)
def test_only_a_topic_that_can_be_held_has_tasks_for_it(ratio, publish, can):
    assert topic(ratio, publish).waits_for_people is can


@pytest.mark.parametrize(
    ("by", "pause_ms", "reason", "retry_at_ms"),
    [("anna", 50, "rejected by anna", 150), (None, LONG_MAX, "not approved in time", LONG_MAX)],
)
def test_a_rejected_log_rests_for_the_pause(by, pause_ms, reason, retry_at_ms):
    state = PartitionState(checkpoint=7, log_end_offset=9)
    after = after_rejection(state, "compact", Rejection(by, 100), pause_ms)
    assert after.quarantine == Quarantine(100, "compact", reason, 1, retry_at_ms)
    assert (after.checkpoint, after.log_end_offset) == (7, 9)
    again = after_rejection(after, "compact", Rejection(by, 200), 5)
    assert (again.quarantine.since_ms, again.quarantine.attempts, again.quarantine.retry_at_ms) == (100, 2, 205)


def test_a_repeated_rejection_changes_nothing():
    said = after_rejection(PartitionState(), "compact", Rejection("anna", 100), 5)
    assert after_rejection(said, "compact", Rejection("anna", 100), 5) == said


@pytest.mark.parametrize(
    ("of", "asked", "stays"),
    [
        ("compact", "compact", False),
        ("expire", "expire", False),
        ("expire", "compact", False),
        ("compact", "expire", True),
        ("compact", "retain", True),
    ],
)
def test_a_rejection_replaces_the_quarantine_of_a_check_that_was_made_again_and_no_other(of, asked, stays):
    said = Quarantine(100, asked, "rejected by anna", 1, 105)
    failed = Quarantine(1, of, "check failed: x", 2, 50, "failed_r")
    after = after_rejection(PartitionState(quarantine=failed), asked, Rejection("anna", 100), 5)
    assert after.quarantine == (replace(failed, retry_at_ms=105) if stays else said)
    assert after_rejection(after, asked, Rejection("anna", 100), 5) == after


def test_an_approval_is_for_the_snapshots_that_were_checked():
    units = tuple(staged_unit(head_snapshot_id=head) for head in (4, 9))
    assert checked_round(units=units).heads == [4, 9]


def test_the_message_names_every_log_and_why():
    holds = [Hold(0, "publish: approve"), Hold(3, "4 of 5 records would be removed")]
    text = held_message("orders", holds)
    assert "waits for approval" in text and "partition 0: publish: approve; partition 3: 4 of 5" in text


@pytest.mark.parametrize(
    ("publish", "approvers", "users", "may"),
    [
        pytest.param("approve", ["anna"], ["7", "anna"], True, id="one of the names of an approver"),
        pytest.param("approve", ["anna"], ["8", "eve"], False, id="somebody else"),
        pytest.param("approve", ["anna"], [None], False, id="nobody that is known"),
        pytest.param("approve", [], ["eve"], True, id="none is named"),
        pytest.param("auto", ["anna"], ["eve"], True, id="nothing has to be approved"),
    ],
)
def test_who_may_undo_a_round_and_release_a_log(publish, approvers, users, may):
    judged = topic(publish=publish).model_copy(update={"approvers": tuple(approvers)})
    assert may_decide(judged, *users) is may
    if not may:
        with pytest.raises(HeldError, match=r".* requested a release, but is not among .*approvers \(anna\)"):
            require_approver(judged, "a release", *users)
