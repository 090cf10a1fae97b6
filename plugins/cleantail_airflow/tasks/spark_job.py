"""The base of all tasks that start a Spark application: how it is started, and how its result comes back.

A task starts a job of spark_jobs with arguments. The job leaves one JSON object in the file of `--result`. Neither
holds keys or values of records: a job says where they are (snapshot, partition, offset). JSON documents go to the job
by files that only this user can read, since everybody on the machine can list the arguments of a process, and Airflow
keeps those of a task.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NoReturn

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, Context

from cleantail.config.loading import load_platform
from cleantail.config.platform import Platform
from cleantail_airflow.airflow_exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSkipException,
)
from cleantail_airflow.installation import job_file, spark_environment
from cleantail_airflow.outcomes.failure_notes import noted
from cleantail_airflow.tasks.driver_hook import DriverHook


class SparkJobOperator(SparkSubmitOperator):
    """Runs spark_jobs/<job>.py, and returns what it reports.

    A subclass says with which arguments (`arguments`), or skips the task with a reason (`skip`), which the UI shows
    under Rendered Templates. `received` says what becomes of the result.
    """

    template_fields: Sequence[str] = ("application", "application_args", "conf", "reason")
    overwrite_rtif_after_execution = True  # so that the final arguments and `reason` show under Rendered Templates
    job: ClassVar[str]

    def __init__(self, *, config_dir: str, of: str, named: Sequence[str] = (), **kwargs: Any) -> None:
        """`of`: what the application is for, in its name; `named`: the arguments that say it to the job."""
        super().__init__(
            application=str(job_file(self.job)),
            application_args=["--config", config_dir, *named],
            name=f"cleantail {self.job} {of}",
            **kwargs,
        )
        self.config_dir = config_dir
        self.reason: str | None = None

    def arguments(self, context: Context) -> list[str]:
        """Returns the job's arguments beside those of every job; calls `skip` where it has nothing to do."""
        raise NotImplementedError

    def received(self, context: Context, result: dict[str, Any], error: AirflowException | None) -> None:
        """Goes by the job's result, {} where it left none; `error`: with what spark-submit ended."""
        raise NotImplementedError

    def records(self, context: Context) -> int | None:
        """Returns how many records the job is going to read, by which its application is set up; None: not known."""
        return None

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # the base returns nothing
        with noted(context):
            return self._run_job(context)

    def _run_job(self, context: Context) -> dict[str, Any]:
        # 1. what the job is to do; a task with nothing to do ends here
        arguments = self.arguments(context)
        # 2. where and with which settings Spark runs it
        master = self._master()
        platform = load_platform(Path(self.config_dir), os.environ)
        self.conf = _submit_conf(platform, master, self.records(context))
        self.env_vars = spark_environment(os.environ)
        # 3. the job, whose documents and whose report go by files
        with TemporaryDirectory(prefix="cleantail-") as folder:
            file = Path(folder) / "result.json"
            arguments = [_document_in_file(argument, Path(folder)) for argument in arguments]
            self.application_args = [*(self.application_args or ()), *arguments, "--result", str(file)]
            error = self._submit(context)
            result = _read(file)
        # 4. what it reports, red or green
        self.received(context, result, error)
        return result

    def _submit(self, context: Context) -> AirflowException | None:
        """Runs spark-submit, and returns the error with which it ended."""
        try:
            super().execute(context)
        except AirflowException as error:
            return error
        return None

    def _get_hook(self) -> DriverHook:
        return DriverHook.of(super()._get_hook())

    @property
    def exit_code(self) -> int | None:
        """Returns the exit code of spark-submit, and so of the job; None where nothing was started."""
        process = getattr(self._hook, "_submit_sp", None)
        return getattr(process, "returncode", None)

    def skip(self, reason: str) -> NoReturn:
        """Ends the task as skipped, and shows the reason."""
        self.reason = reason
        self.log.info("skipped: %s", reason)  # Airflow's own line with it is folded away in the UI
        raise AirflowSkipException(reason)

    def _master(self) -> str:
        """Returns the Spark master that the Airflow connection names.

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
        return connection.host or ""


def _submit_conf(platform: Platform, master: str, records: int | None) -> dict[str, str]:
    """Returns the platform's Spark settings for a job on `master`, but for the master: the hook adds that."""
    from cleantail.lake.catalog_settings import spark_conf

    spark = platform.spark.model_copy(update={"master": master})
    conf = spark_conf(platform.model_copy(update={"spark": spark}), os.environ, records)
    return {key: value for key, value in conf.items() if key != "spark.master"}


def _document_in_file(argument: str, folder: Path) -> str:
    """Writes an argument that is a JSON document into `folder`, which only this user can read, and returns argparse's
    @FILE for it. Any other argument is returned as it is."""
    if not argument.startswith("{"):
        return argument
    file = folder / f"argument-{len(list(folder.iterdir()))}"
    file.write_text(argument)
    return f"@{file}"


def _read(file: Path) -> dict[str, Any]:
    """Returns the job's result, {} where it left none or half of one."""
    try:
        result: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return result
