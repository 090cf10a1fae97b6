"""What is due and what is not, with the reason, over all logs of a topic."""

import pytest

from cleantail.log.due_work import DECIDED, resolve_due_work, sweep_reason
from cleantail.log.horizons import Reader, ReaderHold
from cleantail.log.partition_state import Horizon, PartitionState, Quarantine
from cleantail.log.segments import Segment
from tests.cleantail.kernel_builders import configs, log_state

NOW_MS = 10_000
PAST, COMING = Horizon(10, NOW_MS, 4), Horizon(20, NOW_MS + 5_000, 2)
EMPTY, LATER = Horizon(20, NOW_MS + 5_000), Horizon(30, NOW_MS + 9_000, 1)
CLEAN = {"first_dirty_offset": 30, "first_uncleanable_offset": 30, "cleanable_bytes": 0, "active_base_offset": None}
IDX = ReaderHold("idx", 0, 0, 7, 30, 4, False, NOW_MS + 50)
HELD = "4 tombstones past their horizon wait for reader idx (at offset 0 of partition 0) until 1970-01-01 00:00:10 UTC"


def log(*horizons, **changes):
    return log_state(horizons=horizons, **(CLEAN | changes))


@pytest.mark.parametrize(
    ("logs", "due", "waiting", "reason"),
    [
        pytest.param([log()], 0, [], "there is no tombstone to expire", id="none"),
        pytest.param([log(EMPTY)], 0, [], "there is no tombstone to expire", id="none alive"),
        pytest.param(
            [log(COMING, LATER)],
            0,
            [],
            "no tombstone is due before 1970-01-01 00:00:15 UTC (delete.retention.ms)",
            id="to come",
        ),
        pytest.param([log(PAST)], 4, [], "4 tombstones are past their horizon", id="due"),
        pytest.param([log(PAST)], 1, [], "1 tombstone is past its horizon", id="one due"),
        pytest.param([log(PAST)], 0, [IDX], HELD, id="held"),
        pytest.param(
            [log(PAST)],
            1,
            [IDX],
            f"1 tombstone is past its horizon; {HELD.replace('tombstones past their horizon', 'more')}",
            id="one due and others held",
        ),
        pytest.param(
            [log(PAST, COMING, LATER)],
            0,
            [IDX],
            f"{HELD}; the next horizon is 1970-01-01 00:00:15 UTC",
            id="held and to come",
        ),
        pytest.param(
            [log(PAST)],
            0,
            [],
            "4 tombstones past their horizon wait for a round over the records that arrived below the first dirty offset",
            id="late records first",
        ),
        pytest.param(
            [log(PAST, state=PartitionState(guards=1))],
            0,
            [],
            "1 tombstone past its horizon stays: it beats records that no round has cleaned yet",
            id="guards",
        ),
    ],
)
def test_a_sweep_never_says_that_what_is_past_is_still_to_come(logs, due, waiting, reason):
    assert sweep_reason(logs, due, waiting, NOW_MS) == reason


def work_of(*logs, readers=(), how=None, **changes):
    return resolve_due_work(logs, readers, configs(**changes), NOW_MS, **(how or {}))


def test_while_a_reader_holds_everything_nothing_is_due():
    work = work_of(log(PAST), readers=[Reader("orders", "idx", 0, 0, 7)], cleantail_readers_hold_cap_ms=50)
    assert (work.any_due, work.sweep, work.holds, work.sweep_reason) == (False, (), (IDX,), HELD)
    assert work_of(log(PAST)).any_due


def test_without_compact_in_the_policy_no_tombstone_is_removed():
    work = work_of(log(PAST), cleanup_policy="delete")
    assert (work.sweep, work.sweep_reason) == ((), "there is no tombstone to expire")


@pytest.mark.parametrize("reason", ["check failed: x", "rejected by ann"])
def test_what_rests_is_not_due_before_its_next_try(reason):
    held = PartitionState(checkpoint=10, quarantine=Quarantine(0, "compact", reason, 1, NOW_MS + 1))
    dirty = log_state(state=held, horizons=(PAST,))
    resting = work_of(dirty, min_cleanable_dirty_ratio=0.0)
    assert (resting.any_due, resting.compact, resting.sweep) == (False, (), ())
    for how in ({"force": True}, {"retry_quarantined": True}):
        tried = work_of(dirty, min_cleanable_dirty_ratio=0.0, how=how)
        assert (tried.compact, tried.sweep) == ((0,), (0,))


def test_a_held_tombstone_in_a_log_that_rests_is_no_reason_of_the_sweep():
    held = PartitionState(checkpoint=10, quarantine=Quarantine(0, "compact", "check failed: x", 1, NOW_MS + 1))
    work = work_of(log(PAST, state=held), readers=[Reader("orders", "idx", 0, 0, 7)])
    assert ([h.tombstones for h in work.holds], work.sweep_reason) == ([4], "there is no tombstone to expire")


def test_only_a_log_with_work_has_an_end():
    idle, dirty = log_state(), log_state(partition=1, cleanable_bytes=101)
    work = work_of(idle, dirty)
    assert (work.ends, work.compact, work.any_due, work_of(idle).any_due) == ({1: 20}, (1,), True, False)


OLD = {"segments": (Segment(0, 20, 10, 0, 0, 1),), "log_start_offset": 0, "log_end_offset": 20}
RETENTION = {"cleanup_policy": "compact,delete", "retention_ms": NOW_MS - 1}


@pytest.mark.parametrize(
    ("reason", "retry_at_ms", "how", "retain"),
    [
        pytest.param("check failed: x", NOW_MS + 1, {}, (0,), id="a failed check: the disk would fill otherwise"),
        pytest.param("rejected by ann", NOW_MS + 1, {}, (), id="a rejected log rests"),
        pytest.param("rejected by ann", NOW_MS, {}, (0,), id="until its pause is over"),
        pytest.param("rejected by ann", NOW_MS + 1, {"retry_quarantined": True}, (0,), id="a user tries again"),
    ],
)
def test_retention_continues_in_a_log_with_a_failed_check(reason, retry_at_ms, how, retain):
    held = PartitionState(checkpoint=10, quarantine=Quarantine(0, "compact", reason, 1, retry_at_ms))
    work = work_of(log(state=held, **OLD), how=how, **RETENTION)
    assert (work.retain, work.any_due) == (retain, bool(retain))


@pytest.mark.parametrize(
    ("young_from", "end"), [(10, 10), (20, 20)], ids=["the first dirty offset", "the new log start beyond it"]
)
def test_a_round_of_retention_alone_compacts_nothing(young_from, end):
    segments = tuple(Segment(n, n + 10, 100, 0, NOW_MS if n >= young_from else 0, 1) for n in (0, 10, 20))
    work = work_of(log_state(segments=segments, first_uncleanable_offset=30, active_base_offset=None), **RETENTION)
    assert (work.retain, work.compact, work.ends) == ((0,), (), {0: end})


def test_a_log_that_is_compacted_needs_no_round_for_its_retention_alone():
    work = work_of(log_state(), min_cleanable_dirty_ratio=0.0, **RETENTION)
    assert (work.compact, work.retain, [r.due for r in work.retentions], work.ends) == ((0,), (), [True], {0: 20})


def test_the_first_of_several_rounds_decides_retention_for_all_of_them():
    old = log(**OLD)
    first, later = (work_of(old, how={"force": True, **each}, **RETENTION) for each in ({}, {"later_round": True}))
    assert [(r.log_start_offset, r.due) for r in first.retentions] == [(20, True)]
    assert [(r.log_start_offset, r.due, r.reason) for r in later.retentions] == [(0, False, DECIDED)]
