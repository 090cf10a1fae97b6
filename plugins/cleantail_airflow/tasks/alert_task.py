"""The last task of a run: compares what is wrong with the topic with what its channels know, and tells the difference.

It runs whatever happened to the others, so tasks that crashed, were killed or lost are told too. Where a channel
cannot be reached the task is red and tried again, and the next run tries again what is still untold.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowSkipException

from cleantail.config.events import Event
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.log.log_state import LogState
from cleantail.log.reader_positions import Reader
from cleantail.watch.alerting.alarms import left_behind, log_alarms, still_behind
from cleantail.watch.alerting.incidents import Condition, Look, observed
from cleantail_airflow.alerts.alerting import base_of, began_ms, read_logs, red_alarms, tell
from cleantail_airflow.alerts.incident_book import Shelf, shelf_of
from cleantail_airflow.alerts.red_check import Failure
from cleantail_airflow.alerts.waiting_round import waiting_subjects
from cleantail_airflow.task_ids import ALERT, ALERT_EARLY, OUTCOME
from cleantail_airflow.tasks.approvals import EXPIRE_TOMBSTONES, ROLLBACK_TO
from cleantail_airflow.tasks.failure_notes import NOTE, at_ms_in, reason_in, red_in
from cleantail_airflow.tasks.job_reports import checked_by, report_from
from cleantail_airflow.tasks.spark_operator import plan_of, topic_and_platform
from cleantail_airflow.tasks.spark_tasks import CHECK_QUALITY, PUBLISH_EXPIRY


@dataclass(frozen=True, slots=True)
class FailedTask:
    """A task instance that failed in this run, with what it noted. `red`: the failed expectations, if it was that;
    `at_ms`: when (wall clock), 0 where it noted nothing."""

    task_id: str
    reason: str
    link: str
    red: tuple[Failure, ...] = ()
    at_ms: int = 0


class AlertOperator(BaseOperator):
    """Tells the topic's channels what began and what is over. `early`: before the run waits for a person, so
    that what is wrong does not wait with it; which tasks are well again is then not known."""

    template_fields: Sequence[str] = ()

    def __init__(self, *, topic: str, config_dir: str, early: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.config_dir = config_dir
        self.early = early

    def execute(self, context: Context) -> None:
        topic, platform = topic_and_platform(self.topic, self.config_dir)
        checked = checked_by(context, CHECK_QUALITY)
        waits = checked is not None and bool(checked.holds)
        if self.early and not (waits and topic.alerts):
            self.log.info("nothing to tell before the end of the run")
            return  # never skipped: the task that asks for approval comes after it
        if not topic.alerts:
            raise AirflowSkipException("the topic has no alerts")
        with shelf_of(topic.topic, platform.home) as shelf:
            unreached = self._tell(topic, platform, shelf, context)
        if unreached:
            raise AirflowException(f"not everybody was told, the next run tries again: {', '.join(unreached)}")

    def _tell(self, topic: Topic, platform: Platform, shelf: Shelf, context: Context) -> list[str]:
        """Looks and tells. The table is read while no other task tells, so what is told is how it is now."""
        now_ms, states = clock_of(context, platform), task_states(context)
        failed = failed_tasks(states, context)
        logs, readers = read_logs(topic, platform, now_ms)
        looked_at, book = context["params"]["partition"], shelf.load()
        known = [i.condition for i in book.incidents.values() if i.is_open]
        waiting = waiting_subjects({c.subject: c.run_id for c in known if c.event is Event.APPROVAL}, context)
        conditions = (
            *(c for c in known if c.subject in waiting),
            *_seen_in_table(known, topic, logs, readers, looked_at, now_ms),
            *_behind(context, logs, readers),
            *(replace(c, seen_ms=c.seen_ms or began_ms(context)) for c in run_alarms(failed)),
            *_red_alarms(failed, logs or (), now_ms, platform.cleaner.log_cleaner_backoff_ms),
        )
        is_known = Known.of(states, logs, looked_at, self._all_tried(context))
        look = Look(conditions, is_known, now_ms, began_ms(context), context["ti"].run_id, whole=not self.early)
        shelf.save(observed(book, look))
        red = [failure for task in failed for failure in task.red]
        return tell(topic, platform, shelf, red, context)

    def _all_tried(self, context: Context) -> bool:
        """Whether a task that did not fail is well: not while the run goes on, and a rollback tries none of them."""
        return not (self.early or context["params"].get(ROLLBACK_TO))


def clock_of(context: Context, platform: Platform) -> int:
    """The run's clock: a record that passed its deadline after the run began is not the run's fault. Another one that
    was asked for, and refused, is nobody's."""
    plan = plan_of(context)
    asked = context["params"]["now_ms"] if platform.allow_clock else None
    return int(plan["now_ms"] if plan else asked if asked is not None else time.time() * 1000)


def task_states(context: Context) -> list[dict[str, Any]]:
    """Task id, map index and state of every task instance of the run that has ended."""
    ti: Any = context["ti"]
    found = ti.get_task_breadcrumbs(dag_id=ti.dag_id, run_id=ti.run_id)
    return [dict(row) for row in found if row["task_id"] not in (OUTCOME, ALERT, ALERT_EARLY)]


def failed_tasks(states: Iterable[dict[str, Any]], context: Context) -> list[FailedTask]:
    """The failed ones, with their notes."""
    ti = context["ti"]
    runs = f"{base_of(context)}/dags/{ti.dag_id}/runs/{ti.log_url.partition('/runs/')[2].partition('/')[0]}"
    return [
        _failed_task(row["task_id"], row.get("map_index", -1), runs, context)
        for row in states
        if row["state"] == "failed"
    ]


def _failed_task(task_id: str, map_index: int | None, runs: str, context: Context) -> FailedTask:
    mapped = map_index is not None and map_index >= 0
    where: dict[str, Any] = {"map_indexes": map_index} if mapped else {}
    note = context["ti"].xcom_pull(task_ids=task_id, key=NOTE, **where)
    link = f"{runs}/tasks/{task_id}" + (f"/mapped/{map_index}" if mapped else "")
    return FailedTask(task_id, reason_in(note), link, tuple(red_in(note)), at_ms_in(note))


def run_alarms(failed: Iterable[FailedTask]) -> list[Condition]:
    """One for each task that failed for another reason than a red check; of a mapped task the first instance."""
    found: dict[str, Condition] = {}
    for task in failed:
        if not task.red:
            text = f"{task.task_id} failed: {task.reason}"
            condition = Condition(Event.RUN_FAILED, f"task {task.task_id}", text, task.link, seen_ms=task.at_ms)
            found.setdefault(task.task_id, condition)
    return list(found.values())


def _red_alarms(
    failed: Iterable[FailedTask], logs: Iterable[LogState], now_ms: int, backoff_ms: int
) -> list[Condition]:
    states = list(logs)
    found = [(task, c) for task in failed for c in red_alarms(task.red, states, task.link, now_ms, backoff_ms)]
    return [replace(condition, seen_ms=task.at_ms) for task, condition in found]


def _behind(context: Context, logs: Sequence[LogState] | None, readers: Iterable[Reader]) -> list[Condition]:
    """An expiry that waited for a person is published by a task of its own, and only that one knows whom it left. Who
    has gone on since then is behind no more."""
    reports = (report_from(context, task) for task in (EXPIRE_TOMBSTONES, PUBLISH_EXPIRY))
    overrun = [reader for report in reports if report for reader in report.left_behind]
    conditions = [
        left_behind(r.name, r.partition, r.offset, r.offset if r.gone_to is None else r.gone_to) for r in overrun
    ]
    return still_behind(conditions, readers) if logs else conditions


_IN_STATE = (Event.QUARANTINED, Event.CHECK_FAILED)
"""What the state of a log says, whatever the run was for."""


def _seen_in_table(
    known: Iterable[Condition],
    topic: Topic,
    logs: tuple[LogState, ...] | None,
    readers: tuple[Reader, ...],
    looked_at: int | None,
    now_ms: int,
) -> list[Condition]:
    if logs is None:
        return []
    alarms = log_alarms(logs, readers, topic.config, now_ms)
    due = [c for c in alarms if c.event in _IN_STATE or looked_at in (None, c.partition)]
    return [*due, *still_behind(known, readers)]


@dataclass(frozen=True, slots=True)
class Known:
    """Whether this run could tell that something is over."""

    succeeded: frozenset[str]
    green: bool
    partitions: frozenset[int]
    looked_at: int | None

    @classmethod
    def of(
        cls,
        states: Sequence[dict[str, Any]],
        logs: Iterable[LogState] | None,
        looked_at: int | None,
        all_tried: bool = True,
    ) -> Known:
        by_task: dict[str, set[str]] = {}
        for row in states:
            by_task.setdefault(row["task_id"], set()).add(row["state"])
        succeeded = frozenset(task for task, seen in by_task.items() if seen == {"success"})
        green = all_tried and not any(seen & {"failed", "upstream_failed"} for seen in by_task.values())
        return cls(succeeded, green, frozenset(log.partition for log in logs or ()), looked_at)

    def __call__(self, condition: Condition) -> bool:
        """A task is well again when it succeeded, or when a whole run had nothing for it to do and was green."""
        if condition.event is Event.RUN_FAILED:
            return self.green or condition.subject.removeprefix("task ") in self.succeeded
        if condition.event is Event.APPROVAL:  # `waiting_subjects` has asked Airflow
            return True
        bounded = condition.event in (Event.DEADLINE_MISSED, Event.ERASURE)
        return condition.partition in self.partitions and not (
            bounded and self.looked_at not in (None, condition.partition)
        )
