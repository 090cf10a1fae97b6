"""What a Spark driver gets of the environment of the task that starts it: nothing of Airflow's but who the task is.

A driver reads what others have written, and runs for hours beside the keys that sign every login, if it is given them:
the task's own environment has them in a container, or the commands that print them. So has it connections, variables
and the address of Airflow's database with its password. None of these is needed to read a table. What stays are the
secrets of the catalog and the store (CLEANTAIL_…), without which there is nothing to read, and whatever else Spark,
Java or a cloud's library may look for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from cleantail_airflow.places import TOKEN_VARIABLE

_AIRFLOWS = ("AIRFLOW", "_AIRFLOW", "__AIRFLOW")
"""Settings (AIRFLOW__…, also by _CMD and _SECRET), AIRFLOW_CONN_…, AIRFLOW_VAR_…, passwords."""
_NAMES_OF_THE_TASK = "AIRFLOW_CTX_"
"""Which task of which run it is: the evidence says so."""


def of_driver(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of a driver that a process with `env` starts."""
    return {name: value for name, value in env.items() if not _is_airflows(name)}


def _is_airflows(name: str) -> bool:
    upper = name.upper()
    return name == TOKEN_VARIABLE or (upper.startswith(_AIRFLOWS) and not upper.startswith(_NAMES_OF_THE_TASK))


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
