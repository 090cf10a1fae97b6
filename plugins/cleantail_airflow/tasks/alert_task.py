"""The last task of a run: compares what is wrong with the topic with what its channels know, and tells the difference.

It runs whatever became of the other tasks, so those that crashed, were killed or lost are told too. Where a channel
cannot be reached the task is red and tried again, and the next run tries again what is still untold.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context

from cleantail.config.platform import Platform
from cleantail.rounds.checked_round import LeftBehind
from cleantail.rounds.stations import CHECK_QUALITY, EXPIRE_TOMBSTONES, PUBLISH_EXPIRY
from cleantail_airflow.airflow_exceptions import AirflowException, AirflowSkipException
from cleantail_airflow.alerts.channels import locked_book
from cleantail_airflow.alerts.ended_run import RunOfTopic, ended_tasks, failed_tasks, tell_of_run
from cleantail_airflow.outcomes.run_xcoms import plan_of, readable_report_from
from cleantail_airflow.tasks.run_params import ROLLBACK_TO
from cleantail_airflow.tasks.spark_job import loaded_topic


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
        topic = loaded_topic(self.topic, self.config_dir)
        report = readable_report_from(context, CHECK_QUALITY)
        checked = report.waiting if report else None
        waits = checked is not None and bool(checked.holds)
        if self.early and not (waits and topic.alerts):
            self.log.info("no notification is due before the end of the run")
            return  # never skipped: the task that asks for approval comes after it
        if not topic.alerts:
            raise AirflowSkipException("the topic has no alerts")
        with locked_book(topic.topic, topic.platform.home) as book_store:
            unreached = tell_of_run(topic, book_store, context, self._run_of(topic.platform, context))
        if unreached:
            raise AirflowException(
                f"these channels were not notified, the next run tries again: {', '.join(unreached)}"
            )

    def _run_of(self, platform: Platform, context: Context) -> RunOfTopic:
        """Returns what became of the run's tasks. That a task is well is not known while the run goes on, and a
        rollback tries none of them."""
        ended = ended_tasks(context)
        return RunOfTopic(
            now_ms=clock_of(context, platform),
            ended=ended,
            failed=failed_tasks(ended, context),
            only_partition=context["params"]["partition"],
            overrun=_overrun(context),
            all_tried=not (self.early or context["params"].get(ROLLBACK_TO)),
            whole=not self.early,
        )


def clock_of(context: Context, platform: Platform) -> int:
    """Returns the run's clock (Unix ms): a record that passed its deadline after the run began is not the run's fault.

    Where `evaluate` made no plan, the clock is the param `now_ms` if the platform allows one, else the wall clock.
    """
    if plan := plan_of(context):
        return plan.now_ms
    param_ms = context["params"]["now_ms"] if platform.allow_clock else None
    return int(time.time() * 1000 if param_ms is None else param_ms)


def _overrun(context: Context) -> list[LeftBehind]:
    """Returns the readers that this run's expiry has left behind.

    An expiry that waited for a person is published by a task of its own, and only that one knows whom it left.
    """
    reports = (readable_report_from(context, task) for task in (EXPIRE_TOMBSTONES, PUBLISH_EXPIRY))
    return [reader for report in reports if report for reader in report.left_behind]
