"""The last task of a run: compare the topic's problems with its book of incidents, and notify its channels.

It runs whether or not other tasks failed, so it also reports tasks that crashed, were killed or were lost. If a channel
cannot be reached, the task fails and is tried again. The next run sends what is still unreported.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context

from cleantail.config.platform import Platform
from cleantail.rounds.stations import CHECK_QUALITY, EXPIRE_TOMBSTONES, PUBLISH_EXPIRY
from cleantail_airflow.airflow_exceptions import AirflowException, AirflowSkipException
from cleantail_airflow.alerts.channels import locked_book
from cleantail_airflow.alerts.ended_run import RunOfTopic, ended_tasks, failed_tasks, notify_of_run
from cleantail_airflow.outcomes.failures import noting
from cleantail_airflow.outcomes.run_xcoms import plan_of, readable_report_from
from cleantail_airflow.tasks.run_params import ROLLBACK_TO
from cleantail_airflow.tasks.spark_job import loaded_topic


class AlertOperator(BaseOperator):
    """Notifies the topic's channels of incidents that began or ended.

    With `early`, it notifies before the run waits for a person. At that time it is unknown which tasks succeed again.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, topic: str, config_dir: str, early: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.config_dir = config_dir
        self.early = early

    @noting
    def execute(self, context: Context) -> None:
        topic = loaded_topic(self.topic, self.config_dir)
        checked = readable_report_from(context, CHECK_QUALITY)
        waits = checked is not None and bool(checked.holds)
        if self.early and not (waits and topic.alerts):
            self.log.info("no notification is due before the end of the run")
            return  # not skipped: the task that asks for approval follows
        if not topic.alerts:
            raise AirflowSkipException("the topic has no alerts")
        with locked_book(topic.topic, topic.platform.home) as book_store:
            unreached = notify_of_run(topic, book_store, context, self._run_of(topic.platform, context))
        if unreached:
            raise AirflowException(
                f"these channels were not notified, the next run tries again: {', '.join(unreached)}"
            )

    def _run_of(self, platform: Platform, context: Context) -> RunOfTopic:
        """Return the results of the run's tasks.

        Tasks count as tried only at the end of a run, and not in a rollback.
        """
        ended = ended_tasks(context)
        # if the expiry waited for approval, the task that published it reports the readers that it passed
        reports = (readable_report_from(context, task) for task in (EXPIRE_TOMBSTONES, PUBLISH_EXPIRY))
        return RunOfTopic(
            now_ms=clock_of(context, platform),
            ended=ended,
            failed=failed_tasks(ended, context),
            only_partition=context["params"]["partition"],
            overrun=[reader for report in reports if report for reader in report.left_behind],
            all_tried=not (self.early or context["params"].get(ROLLBACK_TO)),
            whole=not self.early,
        )


def clock_of(context: Context, platform: Platform) -> int:
    """Return the run's clock (Unix ms).

    A record that passed its deadline after the run began is not overdue in this run. If `evaluate` made no plan, the
    clock is the param `now_ms` if the platform allows one, else the wall clock.
    """
    if plan := plan_of(context):
        return plan.now_ms
    param_ms = context["params"]["now_ms"] if platform.allow_clock else None
    return int(time.time() * 1000 if param_ms is None else param_ms)
