"""The base of all tasks that start a Spark application: how it is started, and how its result comes back.

A task starts a job of spark_jobs with arguments. The job leaves one JSON object in the file of `--result`. Neither
holds keys or values of records: a job says where they are (snapshot, partition, offset). How both get there and back
says `handover`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NoReturn

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, Context

from cleantail.config.loading import load_platform
from cleantail.config.platform import Platform
from cleantail.home.driver_process import note_of
from cleantail.watch.job_results import EndedJob
from cleantail_airflow.airflow_exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSkipException,
)
from cleantail_airflow.catalog_login import with_login
from cleantail_airflow.installation import JOB_FILE, spark_environment
from cleantail_airflow.outcomes.failures import noted
from cleantail_airflow.station_lineage import LineageOperator
from cleantail_airflow.tasks.driver_hook import DriverHook
from cleantail_airflow.tasks.handover import RM_ADDRESS, handover, is_on_cluster, settings_for_cluster, task_settings


class SparkJobOperator(LineageOperator, SparkSubmitOperator):
    """Run the station `job` by spark_jobs/run_station.py, and return what it reports.

    A subclass says with which arguments (`arguments`), or skips the task with a reason (`skip`), which the UI shows
    under Rendered Templates. `received` says what becomes of the result.
    """

    template_fields: Sequence[str] = ("application", "application_args", "conf", "reason")
    overwrite_rtif_after_execution = True  # so that the final arguments and `reason` show under Rendered Templates
    job: ClassVar[str]

    def __init__(self, *, config_dir: str, of: str, named: Sequence[str] = (), **kwargs: Any) -> None:
        """Makes the task. `of`: what the application is for, in its name; `named`: the arguments that say it to the
        job."""
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
        self.reported_exit_code: int | None = None

    def arguments(self, context: Context) -> list[str]:
        """Returns the job's arguments beside those of every job; calls `skip` where it has nothing to do."""
        raise NotImplementedError

    def received(self, context: Context, ended: EndedJob, error: AirflowException | None) -> None:
        """Goes by what the job has left; `error`: with what spark-submit ended."""
        raise NotImplementedError

    def require_configured(self) -> None:
        """Raises ConfigError where what the job is for is not in the configuration any more."""

    def records(self, context: Context) -> int | None:
        """Returns how many records the job is going to read, by which its application is set up; None: not known."""
        return None

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # the base returns nothing
        with noted(context), TemporaryDirectory(prefix="cleantail-private-") as folder:
            self.private_folder = Path(folder)
            return self._run_job(context)

    def client_arguments(self, settings: str) -> list[str]:
        """Return the job's arguments that name a file with these settings of Kafka clients (JSON). Only its owner can
        read the file.

        A driver on a cluster cannot read our files, and no login goes into a store: there the settings come from the
        driver's own environment.
        """
        if is_on_cluster(self._connection()):
            return []
        assert self.private_folder is not None, "execute has made it"
        file = self.private_folder / "clients.json"
        # opened with its mode, so that no other user can have it open before
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
            stream.write(settings)
        return ["--client-settings", str(file)]

    def _run_job(self, context: Context) -> dict[str, Any]:
        # 1. what the job is to do; a task with nothing to do ends here
        arguments = [*self.arguments(context), *_began(context)]
        self.require_configured()
        # 2. where and with which settings Spark runs it
        connection = self._connection()
        on_cluster = is_on_cluster(connection)
        platform = platform_of(self.config_dir)
        self._run_on(platform, connection, on_cluster, self.records(context))
        self.note = note_of(platform.home, identity_of(context))
        # 3. the job, whose documents and whose report go by files, or through a store
        with handover(platform, on_cluster, identity_of(context)) as documents:
            self.clear = documents.clear
            arguments = [documents.argument(argument) for argument in arguments]
            self.application_args = [*(self.application_args or ()), *arguments, "--result", documents.result]
            error = self._submit(context)
            ended = documents.report(self.job)
        # 4. what it reports, red or green
        self.reported_exit_code = ended.exit_code
        self.received(context, ended, error)
        return ended.xcom

    def _run_on(self, platform: Platform, connection: Any, on_cluster: bool, records: int | None) -> None:
        """Sets the job's settings and environment. A driver on a cluster has its own environment there."""
        self.conf = _submit_conf(platform, connection.host or "", records)
        if not on_cluster:
            self.env_vars = spark_environment(os.environ)
            return
        self.conf = settings_for_cluster(platform, self.conf) | task_settings(os.environ)
        self.application = (
            f"{platform.spark.jobs.rstrip('/')}/{JOB_FILE.name}" if platform.spark.jobs else self.application
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
                f"Airflow has no connection {self._conn_id}: make one of type spark, as in "
                f"""AIRFLOW_CONN_{self._conn_id.upper()}='{{"conn_type": "spark", "host": "local[2]"}}'"""
            ) from None
        if connection.conn_type != "spark":
            kind = connection.conn_type
            raise AirflowFailException(f"the Airflow connection {self._conn_id} is of type {kind}, not spark")
        return connection


def platform_of(config_dir: str) -> Platform:
    """Reads the platform from its YAML, in the environment of the task, and has the catalog's login there. Raises
    ConfigError, and CleantailError where a connection is missing."""
    platform = load_platform(Path(config_dir))
    with_login(platform)
    return platform


def identity_of(context: Context) -> tuple[object, ...]:
    """Returns which task this is, whatever its try."""
    ti = context["ti"]
    return ti.dag_id, ti.run_id, ti.task_id, ti.map_index


def _began(context: Context) -> list[str]:
    """Returns the argument with when Airflow began the run: no task can change that, unlike the plan's clock."""
    begun = getattr(context.get("dag_run"), "start_date", None)
    return ["--began", str(int(begun.timestamp() * 1000))] if begun else []


def _submit_conf(platform: Platform, master: str, records: int | None) -> dict[str, str]:
    """Returns the platform's Spark settings for a job on `master`, but for the master: the hook adds that."""
    from cleantail.lake.catalog_settings import spark_conf

    spark = platform.spark.model_copy(update={"master": master})
    conf = spark_conf(platform.model_copy(update={"spark": spark}), records)
    return {key: value for key, value in conf.items() if key != "spark.master"}
