"""Starts a Spark driver by Airflow's spark-submit, in an environment of its own."""

from __future__ import annotations

import os
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from cleantail.home.driver_environment import of_driver


class DriverHook(SparkSubmitHook):
    """Gives the driver what it needs of the task's environment; SparkSubmitHook would copy all of it."""

    @classmethod
    def of(cls, hook: SparkSubmitHook) -> DriverHook:
        """Makes a hook that is set up as the operator has set up Airflow's."""
        driver_hook = cls.__new__(cls)
        driver_hook.__dict__.update(hook.__dict__)
        return driver_hook

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        return super().submit(application, env={**of_driver(os.environ), **(self._env_vars or {})}, **kwargs)

    def _build_spark_submit_command(self, application: str) -> list[str]:
        """Builds the command. `submit` has given the driver the variables that Airflow's hook would add here."""
        command: list[str] = super()._build_spark_submit_command(application)
        self._env = None
        return command
