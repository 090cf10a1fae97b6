"""The base of all Spark tasks, and the last task of a run, which fails where another has failed.

A task starts a job of spark_jobs with arguments. The job leaves one JSON object in the file of `--result`, and that is
the task's XCom. Neither holds keys or values of records: a job says where they are (snapshot, partition, offset).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, BaseOperator, Context
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSkipException,
)

from cleantail.config.loading import find_topic, load_platform
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, HeldError
from cleantail.home.earlier_driver import note_of
from cleantail_airflow.alerts.red_check import Failure, RedCheck, failures_of, warnings_of
from cleantail_airflow.catalog_login import with_login
from cleantail_airflow.installation import job_file, spark_environment
from cleantail_airflow.outcomes.crashes import cause_of_crash
from cleantail_airflow.outcomes.failure_notes import noted
from cleantail_airflow.outcomes.job_reports import JobReport, report_of
from cleantail_airflow.outcomes.planned_run import PlannedRun, plan_of
from cleantail_airflow.tasks.driver_hook import DriverHook
from cleantail_airflow.tasks.handover import RM_ADDRESS, handover, is_on_cluster, settings_for_cluster

FINAL_EXIT_CODES = (CleantailError.exit_code, HeldError.exit_code)
"""Exit codes of a job after which trying again does not help: bad input or configuration, a person has to decide."""


class CleantailSparkOperator(SparkSubmitOperator):
    """Runs spark_jobs/<job>.py for one topic, and returns what it reports.

    A subclass says with which arguments (`arguments`), or skips the task with a reason (`skip`), which the UI shows
    under Rendered Templates. `failed`, `succeeded` and `ended` say what becomes of the report.
    """

    template_fields: Sequence[str] = ("application", "application_args", "conf", "reason")
    overwrite_rtif_after_execution = True  # so that the final arguments and `reason` show under Rendered Templates
    job: ClassVar[str]

    def __init__(self, *, topic: str, config_dir: str, **kwargs: Any) -> None:
        super().__init__(
            application=str(job_file(self.job)),
            application_args=["--config", config_dir, "--topic", topic],
            name=f"cleantail {self.job} {topic}",
            **kwargs,
        )
        self.topic = topic
        self.config_dir = config_dir
        self.reason: str | None = None
        self.note: Path | None = None
        self.clear: Callable[[], None] | None = None
        self.reported_exit_code: int | None = None

    def arguments(self, context: Context) -> list[str]:
        """Returns the job's arguments beside those of every job; calls `skip` where it has nothing to do."""
        raise NotImplementedError

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # the base returns nothing
        with noted(context):
            return self._run_job(context)

    def _run_job(self, context: Context) -> dict[str, Any]:
        # 1. what the job is to do; a task with nothing to do ends here
        arguments = self.arguments(context)
        # 2. where and with which settings Spark runs it
        connection = self._connection()
        on_cluster = is_on_cluster(connection)
        _, platform = topic_and_platform(self.topic, self.config_dir)
        self._run_on(platform, connection, on_cluster, plan_of(context))
        self.note = note_of(platform.home, _identity(context))
        # 3. the job, whose documents and whose report go by files, or through a store
        with handover(platform, on_cluster, _identity(context)) as documents:
            self.clear = documents.clear
            arguments = [documents.argument(argument) for argument in arguments]
            self.application_args = [*(self.application_args or ()), *arguments, "--result", documents.result]
            error = self._submit(context)
            result, self.reported_exit_code = documents.report()
        self._send(result)
        # 4. what it reports, red or green
        report = report_of(result, self.job)
        if error:
            self.failed(context, result, report, error)
        elif result:
            self.succeeded(report)
        else:  # a job that ended well has left one
            raise AirflowException(f"{self.job} wrote no result")
        self.ended(context, result, report)
        return result

    def _run_on(self, platform: Platform, connection: Any, on_cluster: bool, plan: PlannedRun | None) -> None:
        """Sets the job's settings and environment. A driver on a cluster has its own environment there."""
        self.conf = _submit_conf(platform, connection.host or "", plan)
        if not on_cluster:
            self.env_vars = spark_environment(os.environ)
            return
        self.conf = settings_for_cluster(platform, self.conf)
        self.application = (
            f"{platform.spark.jobs.rstrip('/')}/{self.job}.py" if platform.spark.jobs else self.application
        )
        # by these a next try finds an application that goes on
        self._track_driver_via_k8s_api = str(connection.host or "").startswith("k8s://")
        self._yarn_track_via_rm_api = RM_ADDRESS in connection.extra_dejson
        self.durable = self._track_driver_via_k8s_api or self._yarn_track_via_rm_api

    def _submit(self, context: Context) -> AirflowException | None:
        """Runs spark-submit, and returns the error with which it ended."""
        try:
            super().execute(context)
        except AirflowException as error:
            return error
        return None

    def _get_hook(self) -> DriverHook:
        hook = DriverHook.of(super()._get_hook())
        hook.note, hook.clear, hook.submit_env = self.note, self.clear, spark_environment(os.environ)
        return hook

    def _send(self, result: dict[str, Any]) -> None:
        """Sends what the job reported as metrics."""
        from cleantail_airflow.metrics.run_metrics import send_result

        send_result(self.job, self.topic, result)

    def succeeded(self, report: JobReport) -> None:
        """Logs the warnings of a job that ended well."""
        for warning in warnings_of(self.topic, report.verdicts):
            self.log.warning("%s", warning)

    def failed(self, context: Context, result: dict[str, Any], report: JobReport, error: AirflowException) -> None:
        """Raises the error that says most; a subclass may return where the failure is not its task's.

        1. The expectations that failed, as RedCheck; the channels hear of them at once.
        2. The error that the job reports.
        3. What spark-submit printed, where the job crashed and reports nothing.
        """
        if red := failures_of(self.topic, report.verdicts, report.heads_by_log):
            context["ti"].xcom_push("return_value", result)
            self._tell(context, red)
            raise RedCheck(self.topic, red) from None
        if not report.error:
            raise AirflowException(f"{self.job} crashed: {cause_of_crash(str(error))}") from None
        kind = AirflowFailException if self.exit_code in FINAL_EXIT_CODES else AirflowException
        raise kind(report.error) from None

    def ended(self, context: Context, result: dict[str, Any], report: JobReport) -> None:
        """Does what is left to do after a task that is not red."""

    def _tell(self, context: Context, red: Sequence[Failure]) -> None:
        from cleantail_airflow.alerts.alerting import tell_of_red

        plan = plan_of(context)
        topic, platform = topic_and_platform(self.topic, self.config_dir)
        tell_of_red(topic, platform, context, red, plan.now_ms if plan else int(time.time() * 1000))

    @property
    def exit_code(self) -> int | None:
        """Returns the exit code of the job, as it reports it, else as spark-submit does; None where nothing was
        started."""
        if self.reported_exit_code is not None:
            return self.reported_exit_code
        process = getattr(self._hook, "_submit_sp", None)
        return getattr(process, "returncode", None)

    def skip(self, reason: str) -> NoReturn:
        """Ends the task as skipped, and shows the reason."""
        self.reason = reason
        self.log.info("skipped: %s", reason)  # Airflow's own line with it is folded away in the UI
        raise AirflowSkipException(reason)

    def _connection(self) -> Any:
        """Returns the Airflow connection that names the Spark master.

        Raises AirflowFailException where there is no such connection: the hook would submit to a YARN cluster that
        nobody named.
        """
        try:
            connection = BaseHook.get_connection(self._conn_id)
        except AirflowNotFoundException:
            raise AirflowFailException(
                f"there is no Airflow connection {self._conn_id}: make one of type spark, as in "
                f"""AIRFLOW_CONN_{self._conn_id.upper()}='{{"conn_type": "spark", "host": "local[2]"}}'"""
            ) from None
        if connection.conn_type != "spark":
            kind = connection.conn_type
            raise AirflowFailException(f"the Airflow connection {self._conn_id} is of type {kind}, not spark")
        return connection


class OutcomeOperator(BaseOperator):
    """Fails where a task before it has failed. It is the run's last task: without it the success of a later task would
    make the run green."""

    def execute(self, context: Context) -> NoReturn:
        ti = context["ti"]
        states = ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id]).get(ti.run_id, {})
        failed = sorted(name for name, state in states.items() if state == "failed")
        raise AirflowFailException(f"failed: {', '.join(failed)}; the log of each says why, the DAG's docs what to do")


def topic_and_platform(topic: str, config_dir: str) -> tuple[Topic, Platform]:
    """Reads the topic and the platform from their YAML, in the environment of the task, and has the catalog's login
    there. Raises ConfigError, and CleantailError where a connection is missing."""
    path = Path(config_dir)
    found, platform = find_topic(topic, path, os.environ), load_platform(path, os.environ)
    with_login(platform)
    return found, platform


def _identity(context: Context) -> tuple[object, ...]:
    """Returns which task this is, whatever its try."""
    ti = context["ti"]
    return ti.dag_id, ti.run_id, ti.task_id, ti.map_index


def _submit_conf(platform: Platform, master: str, plan: PlannedRun | None) -> dict[str, str]:
    """Returns the platform's Spark settings for a job on `master`, but for the master: the hook adds that."""
    from cleantail.lake.catalog_settings import spark_conf

    spark = platform.spark.model_copy(update={"master": master})
    conf = spark_conf(platform.model_copy(update={"spark": spark}), os.environ, plan.records if plan else None)
    return {key: value for key, value in conf.items() if key != "spark.master"}
