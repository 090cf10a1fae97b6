"""The base of all Spark tasks, and the leaf that makes a run red.

Argv goes in, one JSON object comes back and is the task's XCom. Neither holds keys or values of records: a job says
where they are (snapshot, partition, offset). Documents go in by files that only this user can read, since everybody on
the machine can list the arguments of a process, and Airflow keeps those of a task.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
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
from cleantail_airflow.alerts.red_check import Failure, RedCheck, failures_of, warnings_of
from cleantail_airflow.installation import job_file, spark_environment
from cleantail_airflow.outcomes.crashes import cause_of_crash
from cleantail_airflow.outcomes.failure_notes import noted
from cleantail_airflow.outcomes.job_reports import report_of
from cleantail_airflow.outcomes.planned_run import PlannedRun, plan_of
from cleantail_airflow.tasks.driver_hook import DriverHook

FINAL = (2, 5)
"""Exit codes of a job after which trying again does not help: bad input or configuration, a person has to decide."""


class CleantailSparkOperator(SparkSubmitOperator):
    """Runs spark_jobs/<job>.py for one topic; returns its result. Subclasses say with which arguments, or why not."""

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

    def arguments(self, context: Context) -> list[str]:
        """The job's own arguments; calls `skip` where it has nothing to do."""
        raise NotImplementedError

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # the base returns nothing
        with noted(context):
            return self._run_job(context)

    def _run_job(self, context: Context) -> dict[str, Any]:
        own = self.arguments(context)
        master = self._master()
        _, platform = topic_and_platform(self.topic, self.config_dir)
        self.conf = _submit_conf(platform, master, plan_of(context))
        self.env_vars = spark_environment(os.environ)
        with TemporaryDirectory(prefix="cleantail-") as folder:
            file = Path(folder) / "result.json"
            own = [_documents_by_file(argument, Path(folder)) for argument in own]
            self.application_args = [*(self.application_args or ()), *own, "--result", str(file)]
            try:
                super().execute(context)
            except AirflowException as error:
                return self.failed(context, self._result(file), error)
            return self.succeeded(self._result(file))

    def _get_hook(self) -> DriverHook:
        return DriverHook.of(super()._get_hook())

    def _result(self, file: Path) -> dict[str, Any]:
        """What the job said, which is also what is sent as metrics."""
        from cleantail_airflow.metrics.run_metrics import send_result

        result = _read(file)
        send_result(self.job, self.topic, result)
        return result

    def succeeded(self, result: dict[str, Any]) -> dict[str, Any]:
        """A job that ended well without saying so did not end well."""
        if not result:
            raise AirflowException(f"{self.job} wrote no result")
        for warning in warnings_of(self.topic, report_of(result, self.job).verdicts):
            self.log.warning("%s", warning)
        return result

    def failed(self, context: Context, result: dict[str, Any], error: AirflowException) -> dict[str, Any]:
        """Raises what tells most: the failed expectations, else the job's own words, else what spark-submit printed."""
        report = report_of(result, self.job)
        if red := failures_of(self.topic, report.verdicts, report.heads_by_log):
            context["ti"].xcom_push("return_value", result)
            self._tell(context, red)
            raise RedCheck(self.topic, red) from None
        if not report.error:
            raise AirflowException(f"{self.job} crashed: {cause_of_crash(str(error))}") from None
        kind = AirflowFailException if self.exit_code in FINAL else AirflowException
        raise kind(report.error) from None

    def _tell(self, context: Context, red: Sequence[Failure]) -> None:
        from cleantail_airflow.alerts.alerting import tell_of_red

        plan, places = plan_of(context), topic_and_platform(self.topic, self.config_dir)
        tell_of_red(*places, context, red, plan.now_ms if plan else int(time.time() * 1000))

    @property
    def exit_code(self) -> int | None:
        process = getattr(self._hook, "_submit_sp", None)
        return getattr(process, "returncode", None)

    def skip(self, reason: str) -> NoReturn:
        self.reason = reason
        self.log.info("skipped: %s", reason)  # Airflow's own line with it is folded away in the UI
        raise AirflowSkipException(reason)

    def _master(self) -> str:
        """The connection's. Without a connection the hook would submit to a YARN cluster that nobody named."""
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
        return connection.host or ""


class OutcomeOperator(BaseOperator):
    """Runs only where a task failed, and fails, so that no later success hides a red task."""

    def execute(self, context: Context) -> NoReturn:
        ti = context["ti"]
        states = ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id]).get(ti.run_id, {})
        failed = sorted(name for name, state in states.items() if state == "failed")
        raise AirflowFailException(f"failed: {', '.join(failed)}; the log of each says why, the DAG's docs what to do")


def topic_and_platform(topic: str, config_dir: str) -> tuple[Topic, Platform]:
    path = Path(config_dir)
    return find_topic(topic, path, os.environ), load_platform(path, os.environ)


def _submit_conf(platform: Platform, master: str, plan: PlannedRun | None) -> dict[str, str]:
    """The platform's Spark settings; the master is that of the Airflow connection, which the hook adds."""
    from cleantail.lake.catalog_settings import spark_conf

    spark = platform.spark.model_copy(update={"master": master})
    conf = spark_conf(platform.model_copy(update={"spark": spark}), os.environ, plan.records if plan else None)
    return {key: value for key, value in conf.items() if key != "spark.master"}


def _documents_by_file(argument: str, folder: Path) -> str:
    """A JSON document goes by a file, as argparse's @FILE; `folder` is open to nobody else."""
    if not argument.startswith("{"):
        return argument
    file = folder / f"argument-{len(list(folder.iterdir()))}"
    file.write_text(argument)
    return f"@{file}"


def _read(file: Path) -> dict[str, Any]:
    """The job's result, {} where it left none or half of one."""
    try:
        result: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return result
