"""What is wrong with a log, seen in its metadata, and until when."""

from dataclasses import replace

import pytest

from cleantail.config.alert_channels import Event
from cleantail.erasure.requests import CERTIFIED, FAILED, REJECTED, REQUESTED, ErasureEvent, ErasureRequest
from cleantail.log.horizons import Reader
from cleantail.log.partition_state import Horizon, PartitionState, Quarantine, Rewritten
from cleantail.log.source_position import Forgotten, Gap
from cleantail.watch.alarms import (
    check_failed,
    deadline_run_ms,
    erasure_alarms,
    left_behind,
    log_alarms,
    missed_deadlines,
    round_waits,
    still_behind,
)
from tests.cleantail.kernel_builders import HOUR_MS, configs, log_state

DAY_MS = 24 * HOUR_MS
LATE = log_state(earliest_dirty_timestamp_ms=1_000)
HELD = log_state(state=PartitionState(quarantine=Quarantine(5_000, "compact", "check failed: x", 2, 6_000)))
AGAIN = "tried again by the first run after 1970-01-01 00:00:06 UTC"
DELETED = log_state(horizons=(Horizon(5, 1_000, 0), Horizon(8, 2_000, 3), Horizon(10, 3_000, 4)))


def events(log, now_ms, readers=(), **changes):
    return [c.event for c in log_alarms([log], readers, configs(**changes), now_ms)]


def reader(offset, partition=0, name="cache"):
    return Reader("orders", name, partition, offset, 1)


def test_nothing_is_wrong_with_a_log_in_good_order():
    assert events(log_state(), 1 << 50) == []


# ---- deadline


@pytest.mark.parametrize(
    ("now_ms", "changes", "found"),
    [
        pytest.param(1_500, {}, [], id="at its deadline"),
        pytest.param(1_501, {}, [Event.DEADLINE_MISSED], id="a millisecond past it"),
        pytest.param(9_999, {"cleanup_policy": "delete"}, [], id="a topic that is not compacted"),
    ],
)
def test_a_deadline_is_missed_when_the_longest_lag_has_passed(now_ms, changes, found):
    assert events(LATE, now_ms, max_compaction_lag_ms=500, **changes) == found


def test_a_deadline_is_not_missed_where_nothing_can_be_cleaned():
    assert events(replace(LATE, cleanable_bytes=0), 9_999, max_compaction_lag_ms=500) == []
    assert events(replace(LATE, cleanable_bytes=1), 9_999, max_compaction_lag_ms=500) == [Event.DEADLINE_MISSED]


def test_a_missed_deadline_says_by_how_much():
    [found] = log_alarms([LATE], (), configs(max_compaction_lag_ms=HOUR_MS), 1_000 + 3 * HOUR_MS)
    assert (found.subject, found.partition) == ("partition 0", 0)
    assert found.text.startswith("partition 0 is 2 h past max.compaction.lag.ms, which is 1h: overdue by 2 h")


@pytest.mark.parametrize(
    ("schedule", "before_ms"),
    [
        pytest.param("@hourly", 2 * HOUR_MS, id="the run before by the schedule"),
        pytest.param(None, 3 * HOUR_MS - 500, id="without a schedule another longest lag"),
    ],
)
def test_deadline_run_ms_is_when_the_previous_run_had_to_meet_the_deadline(schedule, before_ms):
    assert deadline_run_ms(schedule, configs(max_compaction_lag_ms=500), 3 * HOUR_MS) == before_ms


@pytest.mark.parametrize(
    ("log_before", "before_ms", "found"),
    [
        pytest.param(LATE, 1_501, [Event.DEADLINE_MISSED], id="the run before was to clean it"),
        pytest.param(LATE, 1_500, [], id="due between two runs"),
        pytest.param(replace(LATE, cleanable_bytes=0), 1_600, [], id="the run before could not clean it"),
        pytest.param(replace(LATE, partition=1), 1_600, [], id="another log"),
    ],
)
def test_a_run_that_cleans_is_late_where_the_one_before_it_was_to(log_before, before_ms, found):
    alarms = missed_deadlines([LATE], [log_before], configs(max_compaction_lag_ms=500), 9_999, before_ms)
    assert [c.event for c in alarms] == found
    assert alarms == (log_alarms([LATE], (), configs(max_compaction_lag_ms=500), 9_999) if found else [])


def test_a_deadline_that_is_met_again_is_no_longer_reported():
    assert missed_deadlines([log_state()], [LATE], configs(max_compaction_lag_ms=500), 9_999, 1_600) == []


# ---- quarantine


def test_a_quarantine_is_one_incident_for_all_its_attempts_and_another_occurrence_after_a_release():
    red, found = log_alarms([HELD], (), configs(), 9_999)
    assert (found.event, found.subject, found.occurrence) == (Event.QUARANTINED, "partition 0", "since 5000")
    assert found.text == "partition 0 is blocked since 1970-01-01 00:00:05 UTC, " + AGAIN + ": check failed: x"
    assert (red.event, red.subject, red.occurrence) == (Event.CHECK_FAILED, "partition 0", "since 5000")
    assert red.text == "partition 0: check failed: x; blocked since 1970-01-01 00:00:05 UTC, " + AGAIN


def test_a_red_check_is_the_same_incident_before_and_after_its_quarantine_is_in_the_table():
    seen = check_failed(0, HELD.state, ["x"], "link", 9_999, 1)
    [red, _] = log_alarms([HELD], (), configs(), 9_999)
    assert (seen.key, seen.occurrence, seen.partition) == (red.key, red.occurrence, red.partition)


def test_a_partition_that_a_person_holds_back_has_no_failed_check():
    rejected = PartitionState(quarantine=Quarantine(5_000, "compact", "rejected by anna", 1, 6_000))
    [found] = log_alarms([log_state(state=rejected)], (), configs(), 9_999)
    assert found.event is Event.QUARANTINED
    assert found.text.startswith("partition 0 is blocked since")


def test_a_quarantine_names_the_branch_and_how_long_it_is_kept():
    held = replace(HELD.state, quarantine=replace(HELD.state.quarantine, branch="failed_r_u0_10"))
    alarms = log_alarms([replace(HELD, state=held)], (), configs(cleantail_failed_branch_retention_ms=5_000), 9_999)
    assert len(alarms) == 2
    for found in alarms:
        assert found.text.endswith(
            "; its unpublished records are on branch failed_r_u0_10 until 1970-01-01 00:00:15 UTC"
        )


def test_a_round_that_waits_is_an_incident_of_its_task_and_run():
    found = round_waits("approve", "manual__1", "8 records", "link")
    assert (found.event, found.subject) == (Event.APPROVAL, "task approve of run manual__1")


# ---- erasure


@pytest.mark.parametrize(
    ("now_ms", "found"), [(2_500, []), (2_501, [Event.ERASURE])], ids=["at the end of the grace", "past it"]
)
def test_a_tombstone_is_overdue_when_the_grace_after_its_horizon_is_over(now_ms, found):
    assert events(DELETED, now_ms, cleantail_erasure_grace_ms=500) == found


def test_overdue_tombstones_are_counted_and_dated():
    [found] = log_alarms([DELETED], (), configs(cleantail_erasure_grace_ms=0), 3_001)
    assert found.text == "partition 0: up to 7 tombstones are still there, due since 1970-01-01 00:00:02 UTC"


def test_one_overdue_tombstone_is_one():
    [found] = log_alarms(
        [log_state(horizons=(Horizon(5, 1_000, 1),))], (), configs(cleantail_erasure_grace_ms=0), 3_001
    )
    assert "partition 0: up to 1 tombstone is still there, due since" in found.text


def test_a_topic_that_is_not_compacted_erases_nothing():
    assert events(DELETED, 1 << 50, cleanup_policy="delete") == []


@pytest.mark.parametrize(
    ("position", "now_ms", "found"),
    [
        pytest.param(7, 2_000 + 10 * HOUR_MS, [], id="held, up to the cap"),
        pytest.param(7, 2_001 + 10 * HOUR_MS, [Event.ERASURE], id="held longer than the cap allows"),
        pytest.param(8, 2_001, [Event.ERASURE], id="read"),
    ],
)
def test_a_tombstone_that_a_reader_holds_is_due_after_the_longest_hold(position, now_ms, found):
    changes = {"cleantail_erasure_grace_ms": 0, "cleantail_readers_hold_cap_ms": 10 * HOUR_MS}
    log = replace(DELETED, horizons=DELETED.horizons[:2])
    assert events(log, now_ms, [reader(position), reader(0, partition=1)], **changes) == found


# ---- readers that were left behind


@pytest.mark.parametrize(
    ("readers", "lasts"),
    [
        pytest.param([reader(17)], True, id="where it was"),
        pytest.param([reader(20)], True, id="not past it yet"),
        pytest.param([reader(21)], False, id="past what has gone"),
        pytest.param([], False, id="not registered any more"),
        pytest.param([reader(17, partition=1), reader(17, name="other")], False, id="another log, another reader"),
    ],
)
def test_a_reader_is_behind_until_it_has_passed_what_is_gone(readers, lasts):
    known = left_behind("cache", 0, 17, 20)
    other = replace(known, event=Event.RUN_FAILED)
    assert still_behind([known, other], readers) == ([known] if lasts else [])
    assert "reader cache is at offset 17 of partition 0, and tombstones up to 20 were deleted" in known.text


# ---- gaps of a source in Kafka


def test_a_gap_is_wrong_for_a_day_and_each_one_is_told():
    log = log_state(gaps=(Gap(0, 2, 4, 1_000), Gap(0, 9, 11, 2_000)))
    [told] = log_alarms([log], (), configs(), 2_000)
    assert (told.event, told.subject, told.occurrence) == (Event.GAP, "partition 0", "to 11")
    assert told.text.startswith("partition 0: offsets 9 to 10 were deleted in Kafka before they were read; ")
    assert events(log, 2_000 + DAY_MS - 1) == [Event.GAP]
    assert events(log, 2_000 + DAY_MS) == []


# ---- history that others rewrote


def test_rewritten_history_is_one_condition_for_all_logs_for_a_day():
    state = PartitionState(rewritten=Rewritten(7, 1_000))
    logs = [log_state(state=state), log_state(state=state)]
    [condition] = log_alarms(logs, (), configs(), 1_000)
    assert (condition.event, condition.occurrence) == (Event.REWRITTEN, "without snapshot 7")
    assert condition.text.startswith("history was rewritten: another program took snapshot 7 out of main")
    assert log_alarms(logs, (), configs(), 1_000 + DAY_MS - 1) != []
    assert log_alarms(logs, (), configs(), 1_000 + DAY_MS) == []


# ---- what the brokers have forgotten


def test_a_reconciliation_that_is_needed_is_wrong_until_it_is_published():
    entry = Forgotten(0, 2, 9, 3, DAY_MS, 1_000)
    [told] = log_alarms([log_state(forgotten=entry)], (), configs(), 90 * DAY_MS)
    assert (told.event, told.subject, told.text) == (Event.RECONCILE, "partition 0", entry.text)
    assert told.text.startswith("reconcile needed, partition 0: offsets 2 to 8 were read later than")
    assert events(log_state(), 2_000) == []


def request_of(*events, deadline_ms=100):
    asked = ErasureEvent("orders", "r1", REQUESTED, 0, "ana", {"keys": 2, "deadline_ms": deadline_ms, "set": "s"})
    return ErasureRequest("orders", "r1", (asked, *(ErasureEvent("orders", "r1", e, 1, "ana") for e in events)))


@pytest.mark.parametrize(
    ("now_ms", "events", "found"),
    [
        pytest.param(79, (), [], id="time enough"),
        pytest.param(80, (), ["soon"], id="due soon"),
        pytest.param(99, (FAILED,), ["soon"], id="failed, and due soon"),
        pytest.param(100, (), ["late"], id="late"),
        pytest.param(100, (CERTIFIED,), [], id="certified"),
        pytest.param(100, (REJECTED,), [], id="rejected"),
    ],
)
def test_a_request_to_erase_keys_is_told_before_and_at_its_deadline(now_ms, events, found):
    alarms = erasure_alarms([request_of(*events)], now_ms)
    assert [alarm.occurrence for alarm in alarms] == found
    for alarm in alarms:
        assert (alarm.event, alarm.subject, alarm.partition) == (Event.ERASURE, "request r1", None)
        assert "to erase 2 keys is" in alarm.text and "`cleantail erase orders`" in alarm.text
        assert ("the deadline was" if found == ["late"] else "the deadline is") + " 1970-01-01" in alarm.text
