"""Starts a Spark driver by Airflow's spark-submit, in an environment of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from cleantail.home.driver_process import end_earlier, forget, note, of_driver
from cleantail.home.process import log_line


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
