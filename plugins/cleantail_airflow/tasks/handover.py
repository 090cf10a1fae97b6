"""Says how a task tells a driver what to do, and hears what became of it: by files beside it, or through a store.

A driver on this machine (client mode) reads and writes files that only this user can read, since everybody on the
machine can list the arguments of a process, and Airflow keeps those of a task. A driver on a cluster (deploy-mode
cluster) cannot reach them: its documents go through platform.spark.exchange, by a name that every try of the task has,
so that a next try which takes the application up reads what it reports.
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
from cleantail.watch.job_results import EndedJob
from cleantail_airflow.airflow_exceptions import AirflowFailException


class DriverHook(SparkSubmitHook):
    """Gives the driver what it needs of the task's environment; SparkSubmitHook would copy all of it."""

    @classmethod
    def of(cls, hook: SparkSubmitHook) -> DriverHook:
        """Makes a hook that is set up as the operator has set up Airflow's."""
        driver_hook = cls.__new__(cls)
        driver_hook.__dict__.update(hook.__dict__)
        return driver_hook

    note: Path | None = None
    """The file that keeps which process runs for this task, for a next try to end it."""

    clear: Callable[[], None] | None = None
    """Removes what an earlier driver of this task has reported: called before another one is started, and not where an
    application is taken up."""
    submit_env: Mapping[str, str] = {}
    """The variables by which spark-submit finds itself, where a driver elsewhere has none of ours."""

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Ends what an earlier try has left running here, and starts the driver: a worker that was killed has left
        spark-submit, and so the driver, to itself."""
        if self.note is not None and (pid := end_earlier(self.note)):
            self.log.warning("process %s of an earlier try of this task was still running, and was ended", pid)
        if self.clear is not None:
            self.clear()
        env = {**of_driver(os.environ), **self.submit_env, **(self._env_vars or {})}
        try:
            return super().submit(application, env=env, **kwargs)
        finally:  # not where this process is killed: that is what the note is for
            if self.note is not None:
                forget(self.note)

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        if self.note is not None and self._submit_sp is not None:
            note(self.note, self._submit_sp.pid)
        super()._process_spark_submit_log(log_line(str(line).rstrip("\r\n")) for line in itr)

    def _build_spark_submit_command(self, application: str) -> list[str]:
        """Builds the command. `submit` has given the driver the variables that Airflow's hook would add here."""
        command: list[str] = super()._build_spark_submit_command(application)
        self._env = None
        return command


DEPLOY_MODE, CLUSTER = "deploy-mode", "cluster"
"""The key of a Spark connection's extra, and the value by which the driver runs on the cluster."""
RM_ADDRESS = "yarn_resourcemanager_webapp_address"
"""The key by which a YARN application that is running is found again."""
DRIVER_ENVIRONMENTS = ("spark.yarn.appMasterEnv.", "spark.kubernetes.driverEnv.")
"""How the settings begin that put a variable into the environment of a driver on the cluster. A standalone cluster of
Spark has no such setting."""
LOCAL_SETTINGS = (
    "spark.jars",
    "spark.driver.extraClassPath",
    "spark.driver.defaultJavaOptions",
    "spark.driver.bindAddress",
    "spark.driver.host",
)
"""Settings that name places of this machine: a driver elsewhere gets what platform.spark.conf has of them."""


class Handover(Protocol):
    """Says where the documents of one task lie."""

    @property
    def result(self) -> str:
        """Returns where the job writes its result."""

    def argument(self, text: str) -> str:
        """Returns an argument for the command line: a JSON document is put away, and argparse's @PLACE stands for
        it."""

    def clear(self) -> None:
        """Removes what an earlier driver has reported, before another one is started."""

    def report(self, job: str) -> EndedJob:
        """Returns what the job has left. It reports its exit code only where nobody sees that of its driver."""


def is_on_cluster(connection: Connection | Any) -> bool:
    """Returns whether the Spark connection has drivers run on the cluster."""
    return connection.extra_dejson.get(DEPLOY_MODE) == CLUSTER


@contextmanager
def handover(platform: Platform, on_cluster: bool, identity: Sequence[object]) -> Iterator[Handover]:
    """Yields where the documents of a task lie. Raises AirflowFailException where a driver on a cluster has no place
    for them."""
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
    """Returns the settings without those that name places of this machine."""
    return {k: v for k, v in conf.items() if k not in LOCAL_SETTINGS or k in platform.spark.conf}


def task_settings(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings by which a driver on a cluster knows which task it works for, as one on this machine does by
    its environment: the evidence keeps that. `env`: of the task."""
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
