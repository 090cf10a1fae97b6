"""The task `rollback` of a group: undoes rounds of the one topic that the run was triggered with."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Context

from cleantail.watch.job_results import EndedJob
from cleantail_airflow.groups.group_params import TOPIC
from cleantail_airflow.groups.group_topics import topics_of_group
from cleantail_airflow.groups.station_tasks import alias_of
from cleantail_airflow.outcomes.run_xcoms import JobReport
from cleantail_airflow.tasks.assets import asset_of, extra_of
from cleantail_airflow.tasks.run_params import ROLLBACK_TO
from cleantail_airflow.tasks.spark_tasks import NOTHING_PUBLISHED, RollbackOperator


class GroupRollbackOperator(RollbackOperator):
    """Is the rollback of a topic's own DAG, for the topic that the run's parameter names."""

    def __init__(self, *, group: str, config_dir: str, **kwargs: Any) -> None:
        super().__init__(topic=group, config_dir=config_dir, **kwargs)
        self.outlets = [alias_of(group)]
        self.group = group
        self.application_args = [self.job, "--config", config_dir]

    def arguments(self, context: Context) -> list[str]:
        self.topic = str(context["params"][TOPIC] or "")
        if context["params"][ROLLBACK_TO]:
            list(topics_of_group(self.group, self.config_dir, self.topic))  # raises where it is another group's
        return ["--topic", self.topic, *super().arguments(context)]

    def ended(self, context: Context, ended: EndedJob, report: JobReport) -> None:
        if not report.published:
            context["ti"].xcom_push("return_value", ended.xcom)
            self.skip(NOTHING_PUBLISHED)
        extra = extra_of(self.topic, self.operation, report)
        context["outlet_events"][alias_of(self.group)].add(asset_of(self.topic), extra=extra)
