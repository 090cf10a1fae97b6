"""The bases of all tasks that start a Spark application, and the last task of a run.

A task starts a job of spark_jobs with arguments. The job writes one JSON object to the file of `--result`, and the task
returns it as its XCom. Arguments and result have no keys or values of records, only their positions (snapshot,
partition, offset).

A driver on this machine (client mode) reads and writes files that only this user can read. Other users can list the
arguments of a process, and Airflow stores the arguments of a task. A driver on a cluster (deploy-mode cluster) cannot
reach these files. Its documents are in platform.spark.exchange, under a name that all tries of the task share. So a
next try that reattaches to the application finds its result (`handover`).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NoReturn

from airflow.models.connection import Connection
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, BaseOperator, Context

from cleantail.config.loading import find_topic, load_platform
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.home.driver_process import end_earlier, forget, note, note_of, of_driver
from cleantail.home.process import log_line
from cleantail.lake.exchange import folder_of, read_numbered, remove_document, write_numbered
from cleantail.lineage import StationLineage
from cleantail.rounds.checked_round import ROUND_RESULT_JSON, RoundResult
from cleantail.rounds.evidence_row import VARIABLES
from cleantail.rounds.job_report import EndedJob, JobReport
from cleantail.rounds.run_plan import RunPlan
from cleantail.rounds.stations import FINAL, why_idle
from cleantail_airflow.airflow_exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSkipException,
)
from cleantail_airflow.catalog_login import with_login
from cleantail_airflow.installation import JOB_FILE, spark_environment
from cleantail_airflow.outcomes.failures import Failure, RedCheck, cause_of_crash, failures_of, noted, warnings_of
from cleantail_airflow.outcomes.run_xcoms import plan_of, report_of
from cleantail_airflow.station_lineage import LineageOperator, lineage_of_job


class DriverHook(SparkSubmitHook):
    """Passes the driver only the variables that it needs. SparkSubmitHook would pass the whole environment."""

    @classmethod
    def of(cls, hook: SparkSubmitHook) -> DriverHook:
        """Return a hook with the settings of Airflow's own hook."""
        driver_hook = cls.__new__(cls)
        driver_hook.__dict__.update(hook.__dict__)
        return driver_hook

    note: Path | None = None
    """The file with the process id of this task, by which a next try can end that process."""

    clear: Callable[[], None] | None = None
    """Deletes the report of an earlier driver. Called before a driver is started, but not if a try reattaches to
    one."""
    driver_env: Mapping[str, str] = {}
    """The environment of spark-submit. A driver on a cluster has its own."""

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """End the process of an earlier try on this machine, and start the driver.

        If a worker is killed, its spark-submit and driver keep running.
        """
        if self.note is not None and (pid := end_earlier(self.note)):
            self.log.warning("process %s of an earlier try of this task was still running, and was ended", pid)
        if self.clear is not None:
            self.clear()
        env = {**self.driver_env, **(self._env_vars or {})}
        try:
            return super().submit(application, env=env, **kwargs)
        finally:  # a killed process does not reach this line, and its note stays
            if self.note is not None:
                forget(self.note)

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        if self.note is not None and self._submit_sp is not None:
            note(self.note, self._submit_sp.pid)
        super()._process_spark_submit_log(log_line(str(line).rstrip("\r\n")) for line in itr)

    def _build_spark_submit_command(self, application: str) -> list[str]:
        """Build the command without the variables that Airflow's hook adds: `submit` has passed them."""
        command: list[str] = super()._build_spark_submit_command(application)
        self._env = None
        return command


DEPLOY_MODE, CLUSTER = "deploy-mode", "cluster"
"""The key and value in a Spark connection's extra for a driver on the cluster."""
RM_ADDRESS = "yarn_resourcemanager_webapp_address"
"""The key in the extra with which a next try finds a running YARN application."""
DRIVER_ENVIRONMENTS = ("spark.yarn.appMasterEnv.", "spark.kubernetes.driverEnv.")
"""Prefixes of the settings that set a variable of a driver on the cluster. Spark's standalone cluster has none."""
LOCAL_SETTINGS = (
    "spark.jars",
    "spark.driver.extraClassPath",
    "spark.driver.defaultJavaOptions",
    "spark.driver.bindAddress",
    "spark.driver.host",
)
"""Settings with paths or addresses of this machine. A driver on a cluster gets them only from platform.spark.conf."""


@dataclass
class Handover:
    """The documents of one task, in a folder of this machine."""

    folder: str
    written: int = 0

    @property
    def result(self) -> str:
        return f"{self.folder}/result.json"

    def argument(self, text: str) -> str:
        """Return an argument for the command line. A JSON document is stored, and argparse's @ADDRESS replaces it."""
        if not text.startswith("{"):
            return text
        address = f"{self.folder}/argument-{self.written}.json"
        self.write(address, text)
        self.written += 1
        return f"@{address}"

    def write(self, address: str, text: str) -> None:
        Path(address).write_text(text, encoding="utf-8")

    def clear(self) -> None:
        """Delete the result of an earlier driver. A folder of this machine has none."""

    def report(self, job: str) -> EndedJob:
        """Return the job's result. It has an exit code only if the driver runs on a cluster."""
        try:
            return EndedJob(job, json.loads(Path(self.result).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return EndedJob(job, {})


@dataclass
class HandoverInStore(Handover):
    """The documents of one task, in a store that the driver on a cluster reaches too."""

    platform: Platform = field(kw_only=True)

    def write(self, address: str, text: str) -> None:
        write_numbered(self.platform, address, {"argument": text})

    def clear(self) -> None:
        remove_document(self.platform, self.result)

    def report(self, job: str) -> EndedJob:
        try:
            reported = read_numbered(self.platform, self.result) or {}
            return EndedJob(job, dict(reported["result"]), int(reported["exit_code"]))
        except (ValueError, KeyError, TypeError):
            return EndedJob(job, {})


def is_on_cluster(connection: Connection | Any) -> bool:
    return connection.extra_dejson.get(DEPLOY_MODE) == CLUSTER


@contextmanager
def handover(platform: Platform, on_cluster: bool, identity: Sequence[object]) -> Iterator[Handover]:
    """Yield the place of a task's documents.

    Raises AirflowFailException for a driver on a cluster if platform.spark.exchange is not set.
    """
    if not on_cluster:
        with TemporaryDirectory(prefix="cleantail-") as folder:
            yield Handover(folder)
        return
    if platform.spark.exchange is None:
        raise AirflowFailException(
            "the Spark connection has deploy-mode cluster, but platform.spark.exchange names no folder in a store. "
            "Set it: a driver on a cluster gets its arguments and reports its result there"
        )
    yield HandoverInStore(folder_of(platform.spark.exchange, identity), platform=platform)


NO_PLAN = "evaluate made no plan"
"""The reason for which a task is skipped if its run has no plan."""


class SparkJobOperator(LineageOperator, SparkSubmitOperator):
    """Run the station `job` with spark_jobs/run_station.py, and return its result.

    A subclass returns the arguments (`arguments`), or skips the task with a reason (`skip`), which the UI shows under
    Rendered Templates. It handles the result in `received`.
    """

    template_fields: Sequence[str] = ("application", "application_args", "conf", "reason")
    overwrite_rtif_after_execution = True  # so that the final arguments and `reason` show under Rendered Templates
    job: ClassVar[str]

    def __init__(self, *, config_dir: str, of: str, named: Sequence[str] = (), **kwargs: Any) -> None:
        """`of`: the topic or group in the application's name. `named`: the job's arguments that name it."""
        super().__init__(
            application=str(JOB_FILE),
            application_args=[self.job, "--config", config_dir, *named],
            name=f"cleantail {self.job} {of}",
            **kwargs,
        )
        self.config_dir = config_dir
        self.reason: str | None = None
        self.private_folder: Path | None = None
        self.note: Path | None = None
        self.clear: Callable[[], None] | None = None
        self.platform: Platform | None = None  # set when the task runs; its repr does not show the environment
        self.reported_exit_code: int | None = None

    def arguments(self, context: Context) -> list[str]:
        """Return the job's own arguments, or call `skip` if the job has no work."""
        raise NotImplementedError

    def received(self, context: Context, ended: EndedJob, error: AirflowException | None) -> None:
        """Handle the job's result. `error`: the error of spark-submit."""
        raise NotImplementedError

    def require_configured(self) -> None:
        """Raise ConfigError if the topic is no longer in the configuration."""

    def records(self, context: Context) -> int | None:
        """Return the number of records that the job will read, for its Spark settings. None if unknown."""
        return None

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # the base returns nothing
        with noted(context), TemporaryDirectory(prefix="cleantail-private-") as folder:
            self.private_folder = Path(folder)
            return self._run_job(context)

    def client_arguments(self, settings: str) -> list[str]:
        """Return the job's arguments that name a file with these settings of Kafka clients (JSON). Only its owner can
        read it.

        Returns none for a driver on a cluster. Such a driver cannot read files of this machine, and no login is written
        to a store. Its settings come from its own environment.
        """
        if is_on_cluster(self._connection()):
            return []
        assert self.private_folder is not None, "execute has made it"
        file = self.private_folder / "clients.json"
        # created with its mode, so that no other user can open it first
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
            stream.write(settings)
        return ["--client-settings", str(file)]

    def _run_job(self, context: Context) -> dict[str, Any]:
        # 1. Make the job's arguments. A task without work ends here.
        arguments = [*self.arguments(context), *_began(context)]
        self.require_configured()
        # 2. Choose the master and the settings.
        connection = self._connection()
        on_cluster = is_on_cluster(connection)
        platform = platform_of(self.config_dir)
        self._run_on(platform, connection, on_cluster, self.records(context))
        self.note = note_of(platform.home, identity_of(context))
        # 3. Run the job.
        with handover(platform, on_cluster, identity_of(context)) as documents:
            self.clear = documents.clear
            arguments = [documents.argument(argument) for argument in arguments]
            self.application_args = [*(self.application_args or ()), *arguments, "--result", documents.result]
            error = self._submit(context)
            ended = documents.report(self.job)
        # 4. Handle the result, red or green.
        self.reported_exit_code = ended.exit_code
        self.received(context, ended, error)
        return ended.xcom

    def _run_on(self, platform: Platform, connection: Any, on_cluster: bool, records: int | None) -> None:
        """Set the job's settings and environment. A driver on a cluster has its own environment."""
        from cleantail.lake.spark_settings import spark_conf

        spark = platform.spark.model_copy(update={"master": connection.host or ""})
        self.conf = spark_conf(platform.model_copy(update={"spark": spark}), records)
        del self.conf["spark.master"]  # the hook adds it
        self.platform = platform
        if not on_cluster:
            self.env_vars = spark_environment(platform.env)
            return
        # no paths and addresses of this machine, but the task's name, which the evidence records
        self.conf = {k: v for k, v in self.conf.items() if k not in LOCAL_SETTINGS or k in platform.spark.conf}
        names = [name for name in VARIABLES.values() if platform.env.get(name)]
        self.conf |= {f"{prefix}{name}": platform.env[name] for prefix in DRIVER_ENVIRONMENTS for name in names}
        self.application = (
            f"{platform.spark.jobs.rstrip('/')}/{JOB_FILE.name}" if platform.spark.jobs else self.application
        )
        # with these a next try reattaches to a running application
        self._track_driver_via_k8s_api = str(connection.host or "").startswith("k8s://")
        self._yarn_track_via_rm_api = RM_ADDRESS in connection.extra_dejson
        self.durable = self._track_driver_via_k8s_api or self._yarn_track_via_rm_api

    def _submit(self, context: Context) -> AirflowException | None:
        try:
            super().execute(context)
        except AirflowException as error:
            return error
        return None

    def _get_hook(self) -> DriverHook:
        hook = DriverHook.of(super()._get_hook())
        hook.note, hook.clear = self.note, self.clear
        if self.platform is not None:
            hook.driver_env = {**of_driver(self.platform.env), **spark_environment(self.platform.env)}
        return hook

    @property
    def exit_code(self) -> int | None:
        """Return the exit code that the job reports, else spark-submit's. None if no process was started."""
        if self.reported_exit_code is not None:
            return self.reported_exit_code
        process = getattr(self._hook, "_submit_sp", None)
        return getattr(process, "returncode", None)

    def skip(self, reason: str) -> NoReturn:
        self.reason = reason
        self.log.info("skipped: %s", reason)  # the UI folds Airflow's own line with the reason
        raise AirflowSkipException(reason)

    def _connection(self) -> Any:
        return spark_connection(self._conn_id)


def spark_connection(conn_id: str) -> Any:
    """Return the Airflow connection that names the Spark master.

    Raises AirflowFailException if it is missing: the hook would then submit to a default YARN cluster.
    """
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise AirflowFailException(
            f"Airflow has no connection {conn_id}. Make one of type spark, for example "
            f"""AIRFLOW_CONN_{conn_id.upper()}='{{"conn_type": "spark", "host": "local[2]"}}'"""
        ) from None
    if connection.conn_type != "spark":
        kind = connection.conn_type
        raise AirflowFailException(f"the Airflow connection {conn_id} is of type {kind}, not spark")
    return connection


def platform_of(config_dir: str) -> Platform:
    """Return the platform from its YAML. The catalog's login is then in the task's environment.

    Raises ConfigError, and CleantailError if a connection is missing.
    """
    platform = load_platform(Path(config_dir))
    with_login(platform)
    return platform


def identity_of(context: Context) -> tuple[object, ...]:
    """Return the key of the task instance, which all its tries share."""
    ti = context["ti"]
    return ti.dag_id, ti.run_id, ti.task_id, ti.map_index


def _began(context: Context) -> list[str]:
    """Return the argument with the start of the run. No task can change this time, unlike the plan's clock."""
    begun = getattr(context.get("dag_run"), "start_date", None)
    return ["--began", str(int(begun.timestamp() * 1000))] if begun else []


DONE_BEFORE = "no Spark application was started: an earlier task has done this work"


class CleantailSparkOperator(SparkJobOperator):
    """Runs a job of one topic. Subclasses handle its report in `failed`, `succeeded` and `ended`."""

    def __init__(self, *, topic: str, config_dir: str, **kwargs: Any) -> None:
        super().__init__(config_dir=config_dir, of=topic, named=("--topic", topic), **kwargs)
        self.topic = topic

    def done_before(self, context: Context) -> RoundResult | None:
        """Return the result if the application of an earlier task has done this work. Returns None if the job must
        start."""
        return None

    def _run_job(self, context: Context) -> dict[str, Any]:
        try:
            result = self.done_before(context)
        except CleantailError as error:
            raise exception_for(str(error), error.exit_code) from None
        if result is None:
            return super()._run_job(context)
        self.reason = DONE_BEFORE
        self.log.info("%s", self.reason)
        ended = EndedJob(self.job, dict(ROUND_RESULT_JSON.plain(result)))
        self.received(context, ended, None if result.ok else AirflowException(f"{self.job} is red"))
        return ended.xcom

    def due_plan(self, context: Context) -> RunPlan:
        """Return the plan of this run. Skips the task without a plan, or if its station has no work in the plan."""
        plan = plan_of(context)
        if plan is None:
            self.skip(NO_PLAN)
        if (why := why_idle(self.job, plan)) is not None:
            self.skip(why)
        return plan

    def require_configured(self) -> None:
        find_topic(self.topic, Path(self.config_dir))

    def records(self, context: Context) -> int | None:
        plan = plan_of(context)
        return plan.records if plan else None

    def received(self, context: Context, ended: EndedJob, error: AirflowException | None) -> None:
        from cleantail_airflow.outcomes.run_metrics import send_result

        send_result(self.topic, ended)
        report = report_of(ended)
        self.keep_lineage(lambda: self.lineage_of(context, ended))
        if error:
            self.failed(context, ended, report, error)
        elif ended.is_empty:  # a job that succeeded has written a document
            raise AirflowException(f"{self.job} wrote no result")
        else:
            self.succeeded(report)
        self.ended(context, ended, report)

    def lineage_of(self, context: Context, ended: EndedJob) -> StationLineage | None:
        """Return the datasets that the job has read and written, even if it failed."""
        topic = loaded_topic(self.topic, self.config_dir)
        return lineage_of_job(topic, ended, self.snapshots_read(context))

    def snapshots_read(self, context: Context) -> tuple[int, ...]:
        """Return the snapshots that the job has read, if its report does not name them."""
        return ()

    def succeeded(self, report: JobReport) -> None:
        for warning in (*report.warnings, *warnings_of(self.topic, report)):
            self.log.warning("%s", warning)

    def failed(self, context: Context, ended: EndedJob, report: JobReport, error: AirflowException) -> None:
        """Raise the most specific error. A subclass may return if the failure belongs to another task.

        1. Failed expectations are raised as RedCheck, and the channels are notified at once.
        2. Otherwise the error that the job reports is raised.
        3. If the job crashed without a report, the output of spark-submit is raised.
        """
        if red := failures_of(self.topic, report.verdicts, report.heads_by_log):
            context["ti"].xcom_push("return_value", ended.xcom)
            self._notify(context, red)
            raise RedCheck(self.topic, red) from None
        if not report.error:
            raise AirflowException(f"{self.job} crashed: {cause_of_crash(str(error))}") from None
        raise exception_for(report.error, self.exit_code) from None

    def ended(self, context: Context, ended: EndedJob, report: JobReport) -> None:
        """Finish a task that has not failed."""

    def _notify(self, context: Context, red: Sequence[Failure]) -> None:
        from cleantail_airflow.alerts.alerting import notify_failed_checks

        plan = plan_of(context)
        topic = loaded_topic(self.topic, self.config_dir)
        notify_failed_checks(topic, context, red, plan.now_ms if plan else int(time.time() * 1000))


class OutcomeOperator(BaseOperator):
    """Fails if an earlier task has failed.

    This is the run's last task. Without it the success of a later task would make the run green.
    """

    def execute(self, context: Context) -> NoReturn:
        ti = context["ti"]
        states = ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id]).get(ti.run_id, {})
        failed = sorted(name for name, state in states.items() if state == "failed")
        raise AirflowFailException(
            f"failed: {', '.join(failed)}; their logs have the reasons, and the DAG's docs the remedies"
        )


def exception_for(message: str, exit_code: int | None) -> AirflowException:
    """Return the error of a task whose job ended with this exit code. The type decides whether Airflow retries."""
    return (AirflowFailException if exit_code in FINAL else AirflowException)(message)


def loaded_topic(topic: str, config_dir: str) -> Topic:
    """Return the topic from its YAML. The catalog's login is then in the environment of its platform.

    Raises ConfigError, and CleantailError if a connection is missing.
    """
    loaded = find_topic(topic, Path(config_dir))
    with_login(loaded.platform)
    return loaded
