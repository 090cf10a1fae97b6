"""Compares what is wrong with a topic at the end of a run with what its channels know, and tells the difference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from airflow.sdk import Context

from cleantail.config.alert_channels import Event
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.log.horizons import Reader
from cleantail.log.log_state import LogState
from cleantail.rounds.checked_round import LeftBehind
from cleantail.watch.alarms import left_behind, log_alarms, still_behind
from cleantail.watch.incidents import Condition, Look, observed
from cleantail_airflow.alerts.alerting import began_ms, read_logs, red_alarms, tell
from cleantail_airflow.alerts.incident_book import BookStore
from cleantail_airflow.alerts.waiting_round import waiting_subjects
from cleantail_airflow.outcomes.task_states import EndedTask, FailedTask, RunCoverage


@dataclass(frozen=True, slots=True)
class RunOfTopic:
    """Says what a run did with one topic. `all_tried`: a task that did not fail is well; `whole`: the run is at its
    end; `overrun`: the readers that its expiry has left behind; `now_ms`: the clock of the run (Unix ms)."""

    now_ms: int
    ended: Sequence[EndedTask]
    failed: Sequence[FailedTask]
    only_partition: int | None
    overrun: Sequence[LeftBehind] = ()
    all_tried: bool = True
    whole: bool = True


def tell_of_run(
    topic: Topic, platform: Platform, book_store: BookStore, context: Context, run: RunOfTopic
) -> list[str]:
    """Looks and tells. It reads the table while no other task tells, so what it tells is how it is now.

    Returns the channels that could not be reached.
    """
    # 1. How the logs are.
    logs, readers = read_logs(topic, platform, run.now_ms)
    # 2. What is wrong now.
    book, backoff_ms = book_store.load(), platform.cleaner.log_cleaner_backoff_ms
    open_conditions = [incident.condition for incident in book.incidents.values() if incident.is_open]
    conditions = (
        *_still_waiting(open_conditions, context),
        *_seen_in_table(open_conditions, topic, logs, readers, run.only_partition, run.now_ms),
        *_behind(run.overrun, logs, readers),
        *(replace(c, seen_ms=c.seen_ms or began_ms(context)) for c in run_alarms(run.failed)),
        *_red_alarms(run.failed, logs or (), run.now_ms, backoff_ms),
    )
    # 3. What of the book is over by that.
    coverage = RunCoverage.of(run.ended, logs, run.only_partition, run.all_tried)
    run_id = context["ti"].run_id
    look = Look(conditions, coverage.includes, run.now_ms, began_ms(context), run_id, whole=run.whole)
    book_store.save(observed(book, look))
    # 4. Tell the channels.
    return tell(topic, platform, book_store, [failure for task in run.failed for failure in task.red], context)


def run_alarms(failed: Iterable[FailedTask]) -> list[Condition]:
    """Makes a condition for each task that failed by anything but a red check; of a mapped task the first instance."""
    conditions: dict[str, Condition] = {}
    for task in failed:
        if not task.red:
            text = f"{task.task_id} failed: {task.reason}"
            condition = Condition(Event.RUN_FAILED, f"task {task.task_id}", text, task.link, seen_ms=task.at_ms)
            conditions.setdefault(task.task_id, condition)
    return list(conditions.values())


def _red_alarms(
    failed: Iterable[FailedTask], logs: Iterable[LogState], now_ms: int, backoff_ms: int
) -> list[Condition]:
    """Makes a condition for each log that a red check of this run holds back."""
    states = list(logs)
    return [
        replace(condition, seen_ms=task.at_ms)
        for task in failed
        for condition in red_alarms(task.red, states, task.link, now_ms, backoff_ms)
    ]


def _still_waiting(open_conditions: Sequence[Condition], context: Context) -> list[Condition]:
    """Returns the rounds of the book that still wait for a person."""
    run_ids = {c.subject: c.run_id for c in open_conditions if c.event is Event.APPROVAL}
    waiting = waiting_subjects(run_ids, context)
    return [condition for condition in open_conditions if condition.subject in waiting]


def _behind(
    overrun: Iterable[LeftBehind], logs: Sequence[LogState] | None, readers: Iterable[Reader]
) -> list[Condition]:
    """Returns the readers that this run's expiry has left behind, without those that have gone on since."""
    conditions = [
        left_behind(r.name, r.partition, r.offset, r.offset if r.gone_to is None else r.gone_to) for r in overrun
    ]
    return still_behind(conditions, readers) if logs else conditions


_IN_STATE = (Event.QUARANTINED, Event.CHECK_FAILED)
"""What the state of a log says, whatever the run was for."""


def _seen_in_table(
    open_conditions: Iterable[Condition],
    topic: Topic,
    logs: tuple[LogState, ...] | None,
    readers: tuple[Reader, ...],
    only_partition: int | None,
    now_ms: int,
) -> list[Condition]:
    """Returns what is wrong with the logs, and the readers of the book that are still behind."""
    if logs is None:
        return []
    alarms = log_alarms(logs, readers, topic.config, now_ms)
    of_this_run = [c for c in alarms if c.event in _IN_STATE or only_partition in (None, c.partition)]
    return [*of_this_run, *still_behind(open_conditions, readers)]
