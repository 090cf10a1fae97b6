"""A topic at a glance, and the order of topics."""

from dataclasses import replace

import pytest

from cleantail.config.topic import Topic
from cleantail.config.topic_table import Columns
from cleantail.intake import feed_of
from cleantail.log.horizons import Reader
from cleantail.log.partition_state import Horizon, PartitionState, Quarantine
from cleantail.log.source_position import Forgotten
from cleantail.rounds.commit_summaries import Saved
from cleantail.watch.dag_state import DagRun, DagState, FailedTask
from cleantail.watch.topic_list import TopicRow, counts, in_order, topic_row
from cleantail.watch.topic_states import MEANING, State
from tests.cleantail.kernel_builders import HOUR_MS, configs, log_state

NOW_MS = 100 * HOUR_MS
HELD = PartitionState(checkpoint=10, quarantine=Quarantine(0, "compact", "check failed: x", 1, NOW_MS + 1))
RESTS = PartitionState(checkpoint=10, quarantine=Quarantine(0, "compact", "rejected by anna", 1, NOW_MS + 1))
FORGOTTEN = Forgotten(0, 2, 9, 3, HOUR_MS, NOW_MS)
CLEAN = {"first_dirty_offset": 30, "first_uncleanable_offset": 30, "cleanable_bytes": 0, "active_base_offset": None}


def row_of(*logs, asking="", readers=(), dag=None, **changes):
    topic = Topic(topic="orders", table="n.orders", config=configs(**changes))
    return topic_row(topic, logs, Saved(1, 2), NOW_MS, asking, readers, dag)


@pytest.mark.parametrize(
    ("log", "changes", "state", "note"),
    [
        pytest.param({"state": HELD}, {}, State.QUARANTINED, "partition 0: check failed: x", id="quarantined"),
        pytest.param({"state": RESTS}, {}, State.REJECTED, "partition 0: rejected by anna", id="rejected"),
        pytest.param({"forgotten": FORGOTTEN}, {}, State.RECONCILE, FORGOTTEN.text, id="reconcile needed"),
        pytest.param(
            {"earliest_dirty_timestamp_ms": NOW_MS - 3 * HOUR_MS},
            {"max_compaction_lag_ms": HOUR_MS},
            State.OVERDUE,
            "partition 0: overdue by 2 h: max.compaction.lag.ms is 1h",
            id="overdue",
        ),
        pytest.param(
            {},
            {"min_cleanable_dirty_ratio": 0.4},
            State.DUE,
            "partition 0: dirty ratio 0.50 is above min.cleanable.dirty.ratio 0.4",
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
    row = topic_row(topic, [log_state(state=HELD)], Saved(1, 2), NOW_MS, approval_task="approve_expiry")
    assert (row.state, row.quarantined) == (State.AWAITING_APPROVAL, (0,))
    assert row.note == "task approve_expiry waits for the decision on a checked round"


def test_a_failed_check_is_shown_before_a_rejection():
    row = row_of(log_state(state=RESTS), log_state(partition=1, state=HELD))
    assert (row.state, row.note, row.quarantined) == (
        State.QUARANTINED,
        "partition 1: check failed: x (and 1 more partition)",
        (0, 1),
    )


def test_a_topic_without_logs_is_empty():
    assert row_of().state is State.EMPTY
    assert not row_of().was_read


def test_ratio_and_lag_are_those_of_the_worst_log_and_counts_are_sums():
    worse = log_state(partition=1, cleanable_bytes=300, earliest_dirty_timestamp_ms=NOW_MS - HOUR_MS, state=HELD)
    row = row_of(log_state(horizons=(Horizon(5, 7, 3),)), worse, max_compaction_lag_ms=2 * HOUR_MS)
    assert (row.dirty_ratio, row.dirty_limit, row.lag_ms, row.limits) == (0.75, 0.5, HOUR_MS, "max 2h")
    assert (row.logs, row.records, row.tombstones, row.next_horizon_ms) == (2, 60, 3, 7)
    assert row.quarantined == (1,)


def test_a_topic_that_is_not_compacted_is_neither_dirty_nor_late():
    row = row_of(log_state(earliest_dirty_timestamp_ms=0), cleanup_policy="delete")
    assert (row.dirty_ratio, row.dirty_limit, row.lag_ms, row.overdue_ms) == (0.0, None, None, 0)


def test_what_a_person_has_to_do_something_about_comes_first_whatever_the_ratio():
    order = ["broken", "unreadable", "no DAG", "failed", "quarantined", "waits for approval", "rejected"]
    order += ["reconcile needed", "overdue", "paused", "due"]
    assert [state.value for state in State if state.for_people] == order
    rows = [TopicRow(state.value, state, "", dirty_ratio=i / 100) for i, state in enumerate(State)]
    rows.append(TopicRow("dirty", State.WAITING, "", dirty_ratio=0.99))
    assert [row.name for row in in_order(rows)][: len(order) + 1] == [*order, "dirty"]


def test_of_one_state_the_most_overdue_come_first_then_the_dirtiest_then_by_name():
    plain = TopicRow("d", State.DUE, "")
    rows = [
        plain,
        replace(plain, name="c"),
        replace(plain, name="b", dirty_ratio=0.9),
        replace(plain, name="a", overdue_ms=1),
        replace(plain, name="A", overdue_ms=2),
    ]
    assert [row.name for row in in_order(rows)] == ["A", "a", "b", "c", "d"]


def test_the_rest_is_ordered_by_its_ratio_alone():
    rows = [
        TopicRow("clean", State.CLEAN, "", dirty_ratio=0.1),
        TopicRow("waits", State.WAITING, "", dirty_ratio=0.05),
        TopicRow("empty", State.EMPTY, ""),
    ]
    assert [row.name for row in in_order(rows)] == ["clean", "waits", "empty"]


# ---- readers, bounds and pauses

HOLD = "3 tombstones past their horizon wait for reader idx (at offset 0 of partition 0) until 1970-01-05 04:00:01 UTC"
PAST = CLEAN | {"horizons": (Horizon(5, NOW_MS, 3),)}


def test_what_only_a_reader_holds_is_not_due_and_names_it():
    row = row_of(log_state(**PAST), readers=[Reader("orders", "idx", 0, 0, 7)], cleantail_readers_hold_cap_ms=1_000)
    assert (row.state, row.note, row.sweeps) == (State.WAITING, HOLD, False)
    assert not row.state.for_people
    read_on = row_of(log_state(**PAST), readers=[Reader("orders", "idx", 0, 5, 7)])
    assert (read_on.state, read_on.sweeps) == (State.DUE, True)


def test_retention_that_is_due_is_due_also_where_nothing_is_compacted():
    old = {"cleanup_policy": "delete", "retention_ms": -1, "retention_bytes": 100}
    row = row_of(log_state(), **old)
    assert (row.state, row.note) == (
        State.DUE,
        "partition 0: 2 segments below offset 20 are past retention.bytes",
    )


def test_tombstones_of_a_log_that_is_not_compacted_are_not_due():
    assert row_of(log_state(**PAST), cleanup_policy="delete").state is State.RETAINED


# ---- what Airflow says

RED = DagState(last=DagRun("r1", "failed", NOW_MS - 90_000, NOW_MS - 60_000), failed_tasks=(FailedTask("evaluate"),))
FAILED_NOTE = "its last run failed 1 min ago in task evaluate"
DUE = {"min_cleanable_dirty_ratio": 0.4}
LATE = {"earliest_dirty_timestamp_ms": NOW_MS - 3 * HOUR_MS}


@pytest.mark.parametrize(
    ("log", "changes", "dag", "state", "note", "also"),
    [
        pytest.param(CLEAN, {}, RED, State.FAILED, FAILED_NOTE, [], id="failed though clean"),
        pytest.param({}, DUE, RED, State.FAILED, FAILED_NOTE, [], id="failed and due"),
        pytest.param(
            {"state": HELD},
            {},
            RED,
            State.FAILED,
            f"{FAILED_NOTE}; partition 0: check failed: x",
            ["blocked"],
            id="red",
        ),
        pytest.param(
            {"state": HELD},
            {},
            replace(
                RED,
                failed_tasks=(
                    FailedTask("check_quality", reason="orders: the check failed, blocked partitions: 0"),
                    FailedTask("outcome", reason="out of memory"),
                ),
            ),
            State.FAILED,
            "its last run failed 1 min ago in tasks check_quality, outcome: out of memory; partition 0: check failed: x",
            ["blocked"],
            id="red, and its task says the same",
        ),
        pytest.param(
            {"state": HELD},
            {},
            DagState(last=DagRun("r2", "success")),
            State.QUARANTINED,
            "partition 0: check failed: x",
            [],
            id="a green run after it",
        ),
        pytest.param(
            CLEAN, {}, replace(RED, active=DagRun("r2", "running")), State.FAILED, FAILED_NOTE, ["running"], id="again"
        ),
        pytest.param(
            {},
            DUE,
            DagState(paused=True),
            State.PAUSED,
            "its DAG is paused, so due work is not done: partition 0: dirty ratio 0.50 is above min.cleanable.dirty.ratio 0.4",
            [],
            id="paused",
        ),
        pytest.param(
            CLEAN, {}, DagState(paused=True), State.CLEAN, MEANING[State.CLEAN], ["paused"], id="paused, clean"
        ),
        pytest.param(
            LATE,
            {"max_compaction_lag_ms": HOUR_MS},
            DagState(paused=True),
            State.OVERDUE,
            "partition 0: overdue by 2 h: max.compaction.lag.ms is 1h; its DAG is paused",
            ["paused"],
            id="paused, overdue",
        ),
        pytest.param(
            {},
            DUE,
            DagState(exists=False),
            State.NO_DAG,
            "Airflow has no DAG of it, so due work is not done: partition 0: dirty ratio 0.50 is above min.cleanable.dirty.ratio 0.4",
            [],
            id="no DAG",
        ),
        pytest.param(
            CLEAN, {}, DagState(exists=False), State.CLEAN, MEANING[State.CLEAN], ["no DAG"], id="no DAG, clean"
        ),
        pytest.param(
            CLEAN,
            {},
            DagState(import_error=True),
            State.NO_DAG,
            "Airflow cannot import the file of its DAG (Import Errors): no run starts",
            [],
            id="import error",
        ),
        pytest.param(
            {},
            DUE,
            DagState(active=DagRun("r", "running")),
            State.DUE,
            "partition 0: dirty ratio 0.50 is above min.cleanable.dirty.ratio 0.4",
            ["running"],
            id="running",
        ),
    ],
)
def test_what_airflow_says_decides_with_what_the_logs_say(log, changes, dag, state, note, also):
    row = row_of(log_state(**log), dag=dag, **changes)
    assert (row.state, row.note, row.also) == (state, note, also)


def test_a_question_of_the_run_at_work_comes_before_the_failure_of_the_one_before():
    row = row_of(log_state(), dag=replace(RED, active=DagRun("r2", "running")), asking="approve")
    assert (row.state, row.also) == (State.AWAITING_APPROVAL, ["failed", "running"])


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ({}, "cleantail ingest orders --file FILE, or a source.path, source.kafka or source.table in its YAML"),
        (
            {"source": {"path": "in/*.gz"}},
            "the next run takes the files that match in/*.gz; by hand: cleantail ingest orders --file FILE",
        ),
        (
            {"columns": Columns(partition="p", offset="o", key="k")},
            "its table n.orders has no records; another writer brings them",
        ),
    ],
)
def test_an_empty_topic_says_how_records_get_in(topic, words):
    empty = Topic(topic="orders", table="n.orders", **topic)
    assert feed_of(empty).first(empty) == words
    row = topic_row(empty, (), Saved(0, 0), NOW_MS)
    assert (row.state, row.note) == (State.EMPTY, f"nothing was ingested yet: {words}")


def test_states_are_counted_the_most_pressing_first():
    rows = [TopicRow("a", State.CLEAN, ""), TopicRow("b", State.OVERDUE, ""), TopicRow("c", State.CLEAN, "")]
    assert counts(rows) == [(State.OVERDUE, 1), (State.CLEAN, 2)]


def test_every_state_has_a_meaning():
    assert set(MEANING) == set(State)
