"""A topic at a glance, and the order of topics."""

from dataclasses import replace

import pytest
from kernel_builders import HOUR_MS, configs, log_state

from cleantail.config import Topic
from cleantail.history import Saved
from cleantail.overview import MEANING, State, TopicRow, counts, in_order, topic_row
from cleantail.partition_state import Horizon, PartitionState, Quarantine

NOW_MS = 100 * HOUR_MS
HELD = PartitionState(checkpoint=10, quarantine=Quarantine(0, "compact", "check failed: x", 1, NOW_MS + 1))
RESTS = PartitionState(checkpoint=10, quarantine=Quarantine(0, "compact", "rejected by anna", 1, NOW_MS + 1))
CLEAN = {"first_dirty_offset": 30, "first_uncleanable_offset": 30, "cleanable_bytes": 0, "active_base_offset": None}


def row_of(*logs, **changes):
    topic = Topic(topic="orders", table="n.orders", config=configs(**changes))
    return topic_row(topic, logs, Saved(1, 2), NOW_MS)


@pytest.mark.parametrize(
    ("log", "changes", "state", "note"),
    [
        pytest.param({"state": HELD}, {}, State.QUARANTINED, "partition 0: check failed: x", id="quarantined"),
        pytest.param({"state": RESTS}, {}, State.PAUSED, "partition 0: rejected by anna", id="paused"),
        pytest.param(
            {"earliest_dirty_timestamp_ms": NOW_MS - 3 * HOUR_MS},
            {"max_compaction_lag_ms": HOUR_MS},
            State.OVERDUE,
            "partition 0: overdue by 2 h: max.compaction.lag.ms is 1 h",
            id="overdue",
        ),
        pytest.param(
            {},
            {"min_cleanable_dirty_ratio": 0.4},
            State.DUE,
            "partition 0: dirty ratio 0.5000 is above min.cleanable.dirty.ratio 0.4",
            id="due",
        ),
        pytest.param(
            {"horizons": (Horizon(5, NOW_MS, 3),)}, {}, State.DUE, "3 tombstones are past their horizon", id="sweep"
        ),
        pytest.param(
            {},
            {},
            State.WAITING,
            "partition 0: dirty ratio 0.5000 is not above min.cleanable.dirty.ratio 0.5, and no record is overdue",
            id="waiting",
        ),
        pytest.param(CLEAN, {}, State.CLEAN, MEANING[State.CLEAN], id="clean"),
        pytest.param({}, {"cleanup_policy": "delete"}, State.RETAINED, MEANING[State.RETAINED], id="retention only"),
    ],
)
def test_a_topic_shows_its_most_pressing_state_and_the_reason(log, changes, state, note):
    row = row_of(log_state(**log), **changes)
    assert (row.state, row.note) == (state, note)


def test_a_question_to_a_person_comes_before_what_the_logs_say():
    topic = Topic(topic="orders", table="n.orders", config=configs())
    row = topic_row(topic, [log_state(state=HELD)], Saved(1, 2), NOW_MS, asking="approve_expiry")
    assert (row.state, row.quarantined) == (State.ASKING, (0,))
    assert row.note == "task approve_expiry asks whether a checked round may be published"


def test_a_failed_check_is_told_before_a_persons_no():
    row = row_of(log_state(state=RESTS), log_state(partition=1, state=HELD))
    assert (row.state, row.note, row.quarantined) == (State.QUARANTINED, "partition 1: check failed: x", (0, 1))


def test_a_topic_without_logs_is_empty():
    assert row_of().state is State.EMPTY
    assert not row_of().known


def test_ratio_and_lag_are_those_of_the_worst_log_and_counts_are_sums():
    worse = log_state(partition=1, cleanable_bytes=300, earliest_dirty_timestamp_ms=NOW_MS - HOUR_MS, state=HELD)
    row = row_of(log_state(horizons=(Horizon(5, 7, 3),)), worse, max_compaction_lag_ms=2 * HOUR_MS)
    assert (row.dirty_ratio, row.dirty_limit, row.lag_ms, row.limits) == (0.75, 0.5, HOUR_MS, "max 2 h")
    assert (row.logs, row.records, row.tombstones, row.next_horizon_ms) == (2, 60, 3, 7)
    assert row.quarantined == (1,)


def test_a_topic_that_is_not_compacted_is_neither_dirty_nor_late():
    row = row_of(log_state(earliest_dirty_timestamp_ms=0), cleanup_policy="delete")
    assert (row.dirty_ratio, row.dirty_limit, row.lag_ms, row.overdue_ms) == (0.0, None, None, 0)


def test_the_most_overdue_come_first_then_the_dirtiest_then_the_held_back():
    plain = TopicRow("d", State.CLEAN, "")
    rows = [
        plain,
        replace(plain, name="c", quarantined=(0,)),
        replace(plain, name="b", dirty_ratio=0.9),
        replace(plain, name="a", overdue_ms=1),
        replace(plain, name="A", overdue_ms=2),
    ]
    assert [row.name for row in in_order(rows)] == ["A", "a", "b", "c", "d"]


def test_states_are_counted_the_most_pressing_first():
    rows = [TopicRow("a", State.CLEAN, ""), TopicRow("b", State.OVERDUE, ""), TopicRow("c", State.CLEAN, "")]
    assert counts(rows) == [(State.OVERDUE, 1), (State.CLEAN, 2)]


def test_every_state_has_a_meaning():
    assert set(MEANING) == set(State)
