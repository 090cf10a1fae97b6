"""What a Spark driver gets of the environment of the process that starts it: nothing of Airflow's but who the task is.

A driver reads what others have written, and runs for hours beside the keys that sign every login, if it is given them:
the task's own environment has them in a container, or the commands that print them, and so has a shell in it. So has it
connections, variables and the address of Airflow's database with its password. None of these is needed to read a table.
What stays are the secrets of the catalog and the store (CLEANTAIL_…), without which there is nothing to read, and
whatever else Spark, Java or a cloud's library may look for.
"""

from __future__ import annotations

from collections.abc import Mapping

TOKEN_VARIABLE = "CLEANTAIL_METRICS_TOKEN"
"""What opens the metrics, in the environment of the API server."""
_AIRFLOW_PREFIXES = ("AIRFLOW", "_AIRFLOW", "__AIRFLOW")
"""Settings (AIRFLOW__…, also by _CMD and _SECRET), AIRFLOW_CONN_…, AIRFLOW_VAR_…, passwords."""
_TASK_IDENTITY_PREFIX = "AIRFLOW_CTX_"
"""Which task of which run it is: the evidence says so."""


def of_driver(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a driver that a process with `env` starts."""
    return {name: value for name, value in env.items() if not _is_airflow_secret(name)}


def _is_airflow_secret(name: str) -> bool:
    upper = name.upper()
    return name == TOKEN_VARIABLE or (
        upper.startswith(_AIRFLOW_PREFIXES) and not upper.startswith(_TASK_IDENTITY_PREFIX)
    )
