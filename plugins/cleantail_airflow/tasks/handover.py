"""The documents that a task and its Spark driver exchange, and how the driver is started.

A driver on this machine (client mode) reads and writes files that only this user can read. Other users can list the
arguments of a process, and Airflow stores those of a task. A driver on a cluster (deploy-mode cluster) cannot reach
these files. Its documents are in platform.spark.exchange, under a name that all tries of the task share. So a next try
that reattaches to the application finds its result.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from airflow.models.connection import Connection
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from cleantail.config.platform import Platform
from cleantail.home.driver_process import end_earlier, forget, note, of_driver
from cleantail.home.process import log_line
from cleantail.lake.exchange import folder_of, read_document, remove_document, write_document
from cleantail.rounds.evidence_row import VARIABLES
from cleantail.rounds.job_report import EndedJob
from cleantail_airflow.airflow_exceptions import AirflowFailException


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
    """Deletes the report of an earlier driver. Called before a driver is started, not when a try reattaches to one."""
    submit_env: Mapping[str, str] = {}
    """The variables that spark-submit itself needs. A driver on a cluster does not get them."""

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """End the process of an earlier try on this machine, and start the driver.

        If a worker is killed, its spark-submit and driver keep running.
        """
        if self.note is not None and (pid := end_earlier(self.note)):
            self.log.warning("process %s of an earlier try of this task was still running, and was ended", pid)
        if self.clear is not None:
            self.clear()
        env = {**of_driver(os.environ), **self.submit_env, **(self._env_vars or {})}
        try:
            return super().submit(application, env=env, **kwargs)
        finally:  # a killed process does not reach this, and leaves its note
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
"""The key and value in a Spark connection's extra with which the driver runs on the cluster."""
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
"""Settings with paths or addresses of this machine. A driver on a cluster gets those in platform.spark.conf only."""


class Handover(Protocol):
    """Where the documents of one task are."""

    @property
    def result(self) -> str:
        """Return the address to which the job writes its result."""

    def argument(self, text: str) -> str:
        """Return an argument for the command line. A JSON document is stored, and argparse's @ADDRESS replaces it."""

    def clear(self) -> None:
        """Delete the result of an earlier driver."""

    def report(self, job: str) -> EndedJob:
        """Return the job's result. It has an exit code only if the driver runs on a cluster."""


def is_on_cluster(connection: Connection | Any) -> bool:
    return connection.extra_dejson.get(DEPLOY_MODE) == CLUSTER


@contextmanager
def handover(platform: Platform, on_cluster: bool, identity: Sequence[object]) -> Iterator[Handover]:
    """Yield the place of a task's documents.

    Raises AirflowFailException for a driver on a cluster if platform.spark.exchange is not set.
    """
    if not on_cluster:
        with TemporaryDirectory(prefix="cleantail-") as folder:
            yield _Files(Path(folder))
        return
    if platform.spark.exchange is None:
        raise AirflowFailException(
            "the Spark connection has deploy-mode cluster, but platform.spark.exchange names no folder in a store. "
            "Set it: a driver on a cluster gets its arguments and reports its result there"
        )
    yield _Stored(platform, folder_of(platform.spark.exchange, identity))


def settings_for_cluster(platform: Platform, conf: dict[str, str]) -> dict[str, str]:
    """Return the settings without those that are paths or addresses of this machine."""
    return {k: v for k, v in conf.items() if k not in LOCAL_SETTINGS or k in platform.spark.conf}


def task_settings(env: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that put the task's name into the environment of a driver on a cluster.

    The evidence records it. `env`: the environment of the task.
    """
    names = [name for name in VARIABLES.values() if env.get(name)]
    return {f"{prefix}{name}": env[name] for prefix in DRIVER_ENVIRONMENTS for name in names}


@dataclass
class _Files:
    folder: Path

    @property
    def result(self) -> str:
        return str(self.folder / "result.json")

    def argument(self, text: str) -> str:
        if not text.startswith("{"):
            return text
        file = self.folder / f"argument-{len(list(self.folder.iterdir()))}"
        file.write_text(text, encoding="utf-8")
        return f"@{file}"

    def clear(self) -> None:
        pass

    def report(self, job: str) -> EndedJob:
        try:
            return EndedJob(job, json.loads(Path(self.result).read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return EndedJob(job, {})


@dataclass
class _Stored:
    platform: Platform
    folder: str
    written: int = 0

    @property
    def result(self) -> str:
        return f"{self.folder}/result.json"

    def argument(self, text: str) -> str:
        if not text.startswith("{"):
            return text
        address = f"{self.folder}/argument-{self.written}.json"
        write_document(self.platform, address, text)
        self.written += 1
        return f"@{address}"

    def clear(self) -> None:
        remove_document(self.platform, self.result)

    def report(self, job: str) -> EndedJob:
        try:
            reported = json.loads(read_document(self.platform, self.result) or "")
            return EndedJob(job, dict(reported["result"]), int(reported["exit_code"]))
        except (ValueError, KeyError, TypeError):
            return EndedJob(job, {})
