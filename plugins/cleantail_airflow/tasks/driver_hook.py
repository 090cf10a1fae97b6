"""Starts a Spark driver by Airflow's spark-submit, with what a driver is to have of the task's environment."""

from __future__ import annotations

import os
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from cleantail.home.driver_environment import of_driver


class DriverHook(SparkSubmitHook):
    """SparkSubmitHook copies the whole environment of the task; this one what a driver is to have."""

    @classmethod
    def of(cls, hook: SparkSubmitHook) -> DriverHook:
        """The same hook, set up as the operator did it."""
        made = cls.__new__(cls)
        made.__dict__.update(hook.__dict__)
        return made

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        return super().submit(application, env={**of_driver(os.environ), **(self._env_vars or {})}, **kwargs)

    def _build_spark_submit_command(self, application: str) -> list[str]:
        """What was to be added to the whole environment has been added to the driver's."""
        command: list[str] = super()._build_spark_submit_command(application)
        self._env = None
        return command
