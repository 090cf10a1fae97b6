"""Compare a topic's problems at the end of a run with its book of incidents, and notify the channels."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow.sdk import Context

from cleantail.config.alert_channels import Event
from cleantail.config.topic import Topic
from cleantail.erasure.store import ErasureStore
from cleantail.errors import CleantailError
from cleantail.log.horizons import Reader
from cleantail.log.log_state import LogState
from cleantail.rounds.checked_round import LeftBehind
from cleantail.rounds.stations import ALERT_EARLY
from cleantail.watch.alarms import erasure_alarms, left_behind, log_alarms, still_behind
from cleantail.watch.incidents import Condition, cause_of, observed
from cleantail_airflow.alerts.alerting import (
    began_ms,
    notify_channels,
    observation,
    read_logs,
    red_alarms,
    run_url,
    waiting_subjects,
)
from cleantail_airflow.alerts.channels import BookStore
from cleantail_airflow.dag_defaults import ALERT, OUTCOME
from cleantail_airflow.outcomes.failures import Failure, pulled_note

logger = logging.getLogger(__name__)

NOT_MAPPED = -1
"""Airflow's map index of an unmapped task."""


@dataclass(frozen=True, slots=True)
class EndedTask:
    task_id: str
    state: str
    map_index: int = NOT_MAPPED


@dataclass(frozen=True, slots=True)
class FailedInstance:
    """A failed task instance. `red`: its failed expectations. `at_ms`: time of the failure (wall clock, 0: unknown)."""

    task_id: str
    reason: str
    link: str
    red: tuple[Failure, ...] = ()
    at_ms: int = 0


def ended_tasks(context: Context) -> list[EndedTask]:
    """Return the task instances that have ended, except tasks that send alerts and the task `outcome`."""
    ti: Any = context["ti"]
    rows = ti.get_task_breadcrumbs(dag_id=ti.dag_id, run_id=ti.run_id)
    return [
        EndedTask(row["task_id"], str(row["state"]), NOT_MAPPED if row.get("map_index") is None else row["map_index"])
        for row in rows
        if row["task_id"] not in (OUTCOME, ALERT, ALERT_EARLY)
    ]


def failed_tasks(ended: Iterable[EndedTask], context: Context) -> list[FailedInstance]:
    failed = []
    for task in ended:
        if task.state != "failed":
            continue
        is_mapped = task.map_index != NOT_MAPPED
        note = pulled_note(context, task.task_id, task.map_index if is_mapped else None)
        mapped = f"/mapped/{task.map_index}" if is_mapped else ""
        link = f"{run_url(context)}/tasks/{task.task_id}{mapped}"
        failed.append(FailedInstance(task.task_id, note.reason, link, note.red, note.at_ms))
    return failed


@dataclass(frozen=True, slots=True)
class RunCoverage:
    """The tasks and logs of this run. The run can end only incidents about these."""

    succeeded: frozenset[str]
    green: bool
    partitions: frozenset[int]
    only_partition: int | None
    """The param `partition` of the run. Such a run does not end deadlines of other logs."""

    @classmethod
    def of(
        cls,
        ended: Sequence[EndedTask],
        logs: Iterable[LogState] | None,
        only_partition: int | None,
        all_tried: bool = True,
    ) -> RunCoverage:
        """Return the coverage. With `all_tried`, every task that did not fail counts as tried."""
        states: dict[str, set[str]] = {}
        for task in ended:
            states.setdefault(task.task_id, set()).add(task.state)
        succeeded = frozenset(task_id for task_id, of_task in states.items() if of_task == {"success"})
        green = all_tried and not any(of_task & {"failed", "upstream_failed"} for of_task in states.values())
        return cls(succeeded, green, frozenset(log.partition for log in logs or ()), only_partition)

    def includes(self, condition: Condition) -> bool:
        """Return whether the run can end the condition.

        The incident of a failed task is over if the task has succeeded, or if a complete green run had no work for it.
        """
        if condition.event is Event.RUN_FAILED:
            return self.green or condition.subject.removeprefix("task ") in self.succeeded
        if condition.event is Event.APPROVAL:  # waiting_subjects has queried Airflow
            return True
        if condition.event is Event.ERASURE and condition.partition is None:  # _erasures has read the requests
            return True
        of_the_run = condition.event in (Event.DEADLINE_MISSED, Event.ERASURE)
        other_log = self.only_partition not in (None, condition.partition)
        return condition.partition in self.partitions and not (of_the_run and other_log)


@dataclass(frozen=True, slots=True)
class RunOfTopic:
    """The result of a run for one topic.

    `now_ms`: the clock of the run (Unix ms). `overrun`: the readers that its expiry has passed. `all_tried`: every task
    that did not fail counts as tried. `whole`: the run is at its end.
    """

    now_ms: int
    ended: Sequence[EndedTask]
    failed: Sequence[FailedInstance]
    only_partition: int | None
    overrun: Sequence[LeftBehind] = ()
    all_tried: bool = True
    whole: bool = True


def notify_of_run(topic: Topic, book_store: BookStore, context: Context, run: RunOfTopic) -> list[str]:
    """Check the topic and notify its channels. Returns the channels that were not reached.

    The caller has locked the book, so the table is read while no other task notifies.
    """
    # 1. Read the logs.
    logs, readers = read_logs(topic, run.now_ms)
    # 2. Find the present problems.
    book, backoff_ms = book_store.load(), topic.platform.cleaner.log_cleaner_backoff_ms
    open_conditions = [incident.condition for incident in book.incidents.values() if incident.is_open]
    run_ids = {c.subject: c.run_id for c in open_conditions if c.event is Event.APPROVAL}
    waiting = waiting_subjects(run_ids, context)
    states = list(logs or ())
    conditions = (
        *[condition for condition in open_conditions if condition.subject in waiting],
        *_seen_in_table(open_conditions, topic, logs, readers, run.only_partition, run.now_ms),
        *_behind(run.overrun, logs, readers),
        *_erasures(topic, open_conditions),
        *(replace(c, seen_ms=c.seen_ms or began_ms(context)) for c in run_alarms(run.failed)),
        *[
            replace(condition, seen_ms=task.at_ms)
            for task in run.failed
            for condition in red_alarms(task.red, states, task.link, run.now_ms, backoff_ms)
        ],
    )
    # 3. End incidents of the book that are over.
    coverage = RunCoverage.of(run.ended, logs, run.only_partition, run.all_tried)
    book_store.save(observed(book, observation(context, conditions, coverage.includes, whole=run.whole)))
    # 4. Notify the channels.
    return notify_channels(topic, book_store, [failure for task in run.failed for failure in task.red], context)


def run_alarms(failed: Iterable[FailedInstance]) -> list[Condition]:
    """Return one condition for each task that failed with an error and not by a check. Uses a mapped task's first
    instance."""
    conditions: dict[str, Condition] = {}
    for task in failed:
        if not task.red:
            text = f"{task.task_id} failed: {task.reason}"
            cause = cause_of(task.reason)
            condition = Condition(
                Event.RUN_FAILED, f"task {task.task_id}", text, task.link, seen_ms=task.at_ms, cause=cause
            )
            conditions.setdefault(task.task_id, condition)
    return list(conditions.values())


def _behind(
    overrun: Iterable[LeftBehind], logs: Sequence[LogState] | None, readers: Iterable[Reader]
) -> list[Condition]:
    """Return the readers that this run's expiry has passed and that have not caught up since."""
    conditions = [
        left_behind(r.name, r.partition, r.offset, r.offset if r.gone_to is None else r.gone_to) for r in overrun
    ]
    return still_behind(conditions, readers) if logs else conditions


def _erasures(topic: Topic, open_conditions: Iterable[Condition]) -> list[Condition]:
    """Return the requests to erase keys that are late or soon due. If they cannot be read, return the requests of the
    book."""
    try:
        return erasure_alarms(ErasureStore(topic.platform).requests(topic.topic), int(time.time() * 1000))
    except CleantailError as e:
        logger.warning("the requests to erase keys cannot be read: %s", type(e).__name__)
        return [c for c in open_conditions if c.event is Event.ERASURE and c.partition is None]


_IN_STATE = (Event.QUARANTINED, Event.CHECK_FAILED)
"""Events in the state of a log. Every run reports them, even for logs that it does not work on."""


def _seen_in_table(
    open_conditions: Iterable[Condition],
    topic: Topic,
    logs: tuple[LogState, ...] | None,
    readers: tuple[Reader, ...],
    only_partition: int | None,
    now_ms: int,
) -> list[Condition]:
    if logs is None:
        return []
    alarms = log_alarms(logs, readers, topic.config, now_ms)
    of_this_run = [c for c in alarms if c.event in _IN_STATE or only_partition in (None, c.partition)]
    return [*of_this_run, *still_behind(open_conditions, readers)]
