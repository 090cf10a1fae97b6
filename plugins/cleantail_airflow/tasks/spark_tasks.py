"""The Spark tasks of a topic's DAG: the arguments of each station, and when its task is skipped.

`topic_dag` has their order and the tasks without Spark. Most tasks read the plan of the run, the XCom of `evaluate`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from airflow.sdk import Context

from cleantail.errors import CleantailError, HeldError
from cleantail.lake.recorded_rounds import recorded_publication
from cleantail.rounds.approval import require_approver
from cleantail.rounds.checked_round import CHECK_REQUEST_JSON, EXPIRY_REQUEST_JSON, CheckRequest, RoundResult
from cleantail.rounds.job_report import EndedJob, JobReport
from cleantail.rounds.recorded_checks import REFERENCE_JSON
from cleantail.rounds.run_plan import NewInput
from cleantail.rounds.stations import (
    BY_NAME,
    CHECK_QUALITY,
    COMPACT,
    CONVERT_DELETES,
    EXPIRE_TOMBSTONES,
    INGEST,
    PUBLISH,
    RECLAIM,
    RECONCILE,
    ROLLBACK,
)
from cleantail_airflow.airflow_exceptions import AirflowException, AirflowFailException
from cleantail_airflow.kafka_connection import client_settings
from cleantail_airflow.outcomes.failures import failures_of
from cleantail_airflow.outcomes.run_xcoms import checked_by, plan_of, report_of
from cleantail_airflow.tasks.assets import announce, asset_of
from cleantail_airflow.tasks.run_params import ROLLBACK_TO, require_known_params
from cleantail_airflow.tasks.spark_job import CleantailSparkOperator, as_airflow, loaded_topic

IS_ROLLBACK = "the run is a rollback"
NOTHING_PUBLISHED = "nothing was published, so the topic's asset is not updated"


class IngestOperator(CleantailSparkOperator):
    """Appends new records of the topic's source. Skipped, without Spark, if nothing is new."""

    job = INGEST

    def new_input(self, context: Context) -> NewInput:
        from cleantail.intake import Look, feed_of

        require_known_params(context)
        if context["params"].get(ROLLBACK_TO):
            self.skip(IS_ROLLBACK)
        topic = loaded_topic(self.topic, self.config_dir)
        try:
            new = feed_of(topic).new_input(Look(topic, client_settings, int(time.time() * 1000)))
        except CleantailError as e:
            raise as_airflow(str(e), e.exit_code) from None
        if new.bytes is None:
            self.skip(new.nothing)
        return new

    def arguments(self, context: Context) -> list[str]:
        new = self.new_input(context)
        client = self.client_arguments(json.dumps(dict(new.client))) if new.client else []
        return [*(argument for file in new.files for argument in ("--file", str(file))), *client]


class ConvertDeletesOperator(IngestOperator):
    """Converts the equality deletes of an adopted table into deletes of one data file each, which a round can read.

    A sink in upsert mode keeps writing equality deletes. The task is skipped, without Spark, if the table has none.
    """

    job = CONVERT_DELETES

    def arguments(self, context: Context) -> list[str]:
        self.new_input(context)
        return []


class CompactOperator(CleantailSparkOperator):
    """Compacts one work unit on a branch of its own.

    `unit` is a WorkUnit of the plan (cleantail.log.work_units) as JSON, without data of records.
    """

    job = COMPACT
    template_fields: Sequence[str] = (*CleantailSparkOperator.template_fields, "unit")

    def __init__(self, *, unit: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.unit = unit

    @property
    def partitions(self) -> str:
        numbers = ", ".join(str(work["partition"]) for work in self.unit["partitions"])
        return f"partitions {numbers}"

    def arguments(self, context: Context) -> list[str]:
        return ["--unit", json.dumps(self.unit)]

    def snapshots_read(self, context: Context) -> tuple[int, ...]:
        return (int(self.unit["base_snapshot_id"]),)


class CheckQualityOperator(CleantailSparkOperator):
    """Checks the branches of all units. Failed partitions fail the task; the others are published anyway.

    `publishes`: its application also publishes what passed, unless the round waits for approval. The task `publish`
    then shows the result from the evidence and the table.
    """

    job = CHECK_QUALITY

    def __init__(self, *, publishes: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.publishes = publishes

    def arguments(self, context: Context) -> list[str]:
        plan = self.due_plan(context)
        results = context["ti"].xcom_pull(task_ids=COMPACT, map_indexes=range(len(plan.units)))
        reports = (report_of(EndedJob(COMPACT, result)) for result in results if result)
        request = CheckRequest(plan.round, tuple(report.branch for report in reports if report.branch))
        publish = ["--publish"] if self.publishes else []
        return ["--round", CHECK_REQUEST_JSON.text(request), "--now", str(plan.now_ms), *publish]


class PublishingOperator(CleantailSparkOperator):
    """Base of the tasks that update the topic's asset, which starts the DAGs that wait for it.

    If nothing was published, the task is skipped, and its result is still an XCom.
    """

    def __init__(self, *, topic: str, **kwargs: Any) -> None:
        super().__init__(topic=topic, outlets=[asset_of(topic)], **kwargs)
        self.operation = BY_NAME[self.job].kind

    def ended(self, context: Context, ended: EndedJob, report: JobReport) -> None:
        if not report.published:
            context["ti"].xcom_push("return_value", ended.xcom)
            self.skip(NOTHING_PUBLISHED)
        announce(context, self.topic, self.operation, report)


class PublishOperator(PublishingOperator):
    """Publishes the partitions of a round that passed, also if others failed.

    `source` is the id of the task that has checked the round. `after_publishing_check`: its application may have
    published the round already. Then this task shows that and starts no application.

    The XCom of `source` names the round. The job reads what passed from the evidence, and a person's answer from the
    answers next to the table.
    """

    job = PUBLISH

    def __init__(self, *, source: str = CHECK_QUALITY, after_publishing_check: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.source = source
        self.after_publishing_check = after_publishing_check
        self.operation = BY_NAME[source].kind

    def done_before(self, context: Context) -> RoundResult | None:
        if not self.after_publishing_check:
            return None
        topic = loaded_topic(self.topic, self.config_dir)
        run, heads = context["ti"], self.snapshots_read(context)
        return recorded_publication(topic, run.dag_id, run.run_id, heads)

    def arguments(self, context: Context) -> list[str]:
        plan, checked = plan_of(context), checked_by(context, self.source)
        if not (plan and checked):
            self.skip(f"{self.source} reported no verdict, so nothing is published")
        return [
            "--kind",
            self.operation,
            "--round",
            REFERENCE_JSON.text(checked.reference(plan.round)),
            "--now",
            str(plan.now_ms),
        ]

    def snapshots_read(self, context: Context) -> tuple[int, ...]:
        checked = checked_by(context, self.source)
        return tuple(unit.head_snapshot_id for unit in checked.units) if checked else ()

    def failed(self, context: Context, ended: EndedJob, report: JobReport, error: AirflowException) -> None:
        """Raise only for partitions that the check did not report as red.

        If a round was repeated, it was checked again. Partitions that failed only then are this task's failure.
        """
        new = tuple(verdict for verdict in report.verdicts if verdict.partition not in report.red_before)
        if report.error or ended.is_empty:
            super().failed(context, ended, report, error)
        elif failures_of(self.topic, new):
            super().failed(context, ended, replace(report, verdicts=new), error)
        else:
            self.log.info("published partitions %s, blocked %s", [*report.published], [*report.held_back])


class ReconcileOperator(PublishingOperator):
    """Compares the table with its topic in Kafka, and removes the keys that were deleted there, in a round of its own.

    The task first reads from the brokers, without Spark, whether the comparison is allowed.
    """

    job = RECONCILE

    def arguments(self, context: Context) -> list[str]:
        from cleantail.kafka.source_topic import SourceTopic
        from cleantail.kafka.table_position import table_position

        self.due_plan(context)
        topic = loaded_topic(self.topic, self.config_dir)
        try:
            settings = client_settings(topic)
            SourceTopic.of(topic, settings).require_comparable(table_position(topic).position)
        except CleantailError as e:
            raise as_airflow(str(e), e.exit_code) from None
        return self.client_arguments(json.dumps(dict(settings)))


class ExpireTombstonesOperator(PublishingOperator):
    """Removes tombstones past their horizon: its job makes, checks and publishes a round of its own."""

    job = EXPIRE_TOMBSTONES

    def arguments(self, context: Context) -> list[str]:
        plan = self.due_plan(context)
        assert plan.sweep is not None, "the station is idle without it"
        return ["--round", EXPIRY_REQUEST_JSON.text(plan.sweep), "--now", str(plan.now_ms)]


class RollbackOperator(PublishingOperator):
    """Undoes rounds if the run was triggered with `rollback_to`. All other tasks of such a run are skipped.

    With `publish: approve` only an approver of the topic may trigger such a run.
    """

    job = ROLLBACK

    def arguments(self, context: Context) -> list[str]:
        to = context["params"].get(ROLLBACK_TO)
        if not to:
            self.skip("the run was not triggered with rollback_to")
        run: Any = context["dag_run"]
        user = getattr(run, "triggering_user_name", None)
        topic = loaded_topic(self.topic, self.config_dir)
        try:
            require_approver(topic, "a rollback", user)
        except HeldError as error:
            raise AirflowFailException(f"{error}. One of them has to trigger the run") from None
        by = user or run.run_id
        # an earlier try may have undone the rounds: with the time of the request the job undoes no further round
        requested = [f"--asked-ms={int(run.run_after.timestamp() * 1000)}"] if run.run_after else []
        return ["--to", to, f"--by={by}", f"--request={run.run_id}", *requested]


class ReclaimOperator(CleantailSparkOperator):
    """Rewrites files whose records are mostly deleted, expires snapshots, removes orphans."""

    job = RECLAIM

    def arguments(self, context: Context) -> list[str]:
        return ["--now", str(self.due_plan(context).now_ms)]
