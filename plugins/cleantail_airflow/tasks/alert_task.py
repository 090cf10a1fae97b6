"""The last task of a run: compares what is wrong with the topic with what its channels know, and tells the difference.

It runs whatever became of the other tasks, so those that crashed, were killed or lost are told too. Where a channel
cannot be reached the task is red and tried again, and the next run tries again what is still untold.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from airflow.sdk import BaseOperator, Context

from cleantail.config.events import Event
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.log.log_state import LogState
from cleantail.log.reader_positions import Reader
from cleantail.watch.alerting.alarms import left_behind, log_alarms, still_behind
from cleantail.watch.alerting.incidents import Condition, Look, observed
from cleantail_airflow.airflow_exceptions import AirflowException, AirflowSkipException
from cleantail_airflow.alerts.alerting import began_ms, read_logs, red_alarms, tell
from cleantail_airflow.alerts.incident_book import BookStore, locked_book
from cleantail_airflow.alerts.waiting_round import waiting_subjects
from cleantail_airflow.outcomes.job_reports import readable_report_from
from cleantail_airflow.outcomes.planned_run import plan_of
from cleantail_airflow.outcomes.task_states import FailedTask, RunCoverage, ended_tasks, failed_tasks
from cleantail_airflow.task_ids import CHECK_QUALITY, EXPIRE_TOMBSTONES, PUBLISH_EXPIRY
from cleantail_airflow.tasks.run_params import ROLLBACK_TO
from cleantail_airflow.tasks.spark_operator import topic_and_platform


class AlertOperator(BaseOperator):
    """Tells the topic's channels what began and what is over.

    With `early` it does so before the run waits for a person, so that what is wrong does not wait with it; which tasks
    are well again is not known then.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, topic: str, config_dir: str, early: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.config_dir = config_dir
        self.early = early

    def execute(self, context: Context) -> None:
        topic, platform = topic_and_platform(self.topic, self.config_dir)
        report = readable_report_from(context, CHECK_QUALITY)
        checked = report.waiting if report else None
        waits = checked is not None and bool(checked.holds)
        if self.early and not (waits and topic.alerts):
            self.log.info("nothing to tell before the end of the run")
            return  # never skipped: the task that asks for approval comes after it
        if not topic.alerts:
            raise AirflowSkipException("the topic has no alerts")
        with locked_book(topic.topic, platform.home) as book_store:
            unreached = self._tell(topic, platform, book_store, context)
        if unreached:
            raise AirflowException(f"not everybody was told, the next run tries again: {', '.join(unreached)}")

    def _tell(self, topic: Topic, platform: Platform, book_store: BookStore, context: Context) -> list[str]:
        """Looks and tells. It reads the table while no other task tells, so what it tells is how it is now.

        Returns the channels that could not be reached.
        """
        # 1. What became of the tasks, and how the logs are.
        now_ms, ended = clock_of(context, platform), ended_tasks(context)
        failed = failed_tasks(ended, context)
        logs, readers = read_logs(topic, platform, now_ms)
        # 2. What is wrong now.
        only_partition, book = context["params"]["partition"], book_store.load()
        open_conditions = [incident.condition for incident in book.incidents.values() if incident.is_open]
        conditions = (
            *_still_waiting(open_conditions, context),
            *_seen_in_table(open_conditions, topic, logs, readers, only_partition, now_ms),
            *_behind(context, logs, readers),
            *(replace(c, seen_ms=c.seen_ms or began_ms(context)) for c in run_alarms(failed)),
            *_red_alarms(failed, logs or (), now_ms, platform.cleaner.log_cleaner_backoff_ms),
        )
        # 3. What of the book is over by that.
        coverage = RunCoverage.of(ended, logs, only_partition, self._all_tried(context))
        run_id = context["ti"].run_id
        look = Look(conditions, coverage.includes, now_ms, began_ms(context), run_id, whole=not self.early)
        book_store.save(observed(book, look))
        # 4. Tell the channels.
        return tell(topic, platform, book_store, [failure for task in failed for failure in task.red], context)

    def _all_tried(self, context: Context) -> bool:
        """Returns whether a task that did not fail is well.

        That is not known while the run goes on, and a rollback tries none of them.
        """
        return not (self.early or context["params"].get(ROLLBACK_TO))


def clock_of(context: Context, platform: Platform) -> int:
    """Returns the run's clock (Unix ms): a record that passed its deadline after the run began is not the run's fault.

    Where `evaluate` made no plan, the clock is the param `now_ms` if the platform allows one, else the wall clock.
    """
    if plan := plan_of(context):
        return plan.now_ms
    param_ms = context["params"]["now_ms"] if platform.allow_clock else None
    return int(time.time() * 1000 if param_ms is None else param_ms)


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


def _behind(context: Context, logs: Sequence[LogState] | None, readers: Iterable[Reader]) -> list[Condition]:
    """Returns the readers that this run's expiry has left behind, without those that have gone on since.

    An expiry that waited for a person is published by a task of its own, and only that one knows whom it left.
    """
    reports = (readable_report_from(context, task) for task in (EXPIRE_TOMBSTONES, PUBLISH_EXPIRY))
    overrun = [reader for report in reports if report for reader in report.left_behind]
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
