"""Says what a Spark driver gets of the environment of the process that starts it: of Airflow's, only which task it runs
for.

1. A driver reads what others have written, and runs for hours. So it gets nothing of Airflow's own: the keys that sign
   every login, connections, variables, and the address of Airflow's database with its password. None of these is needed
   to read a table.
2. It gets the task's identity (AIRFLOW_CTX_…), which the evidence names.
3. It gets the secrets of the catalog and the store (CLEANTAIL_…), without which there is nothing to read, but for the
   token of the metrics.
4. It gets no login of Kafka (CLEANTAIL_KAFKA_…): the one job that reads from there gets its login in a file.
5. It gets whatever else Spark, Java or a cloud's library may look for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

TOKEN_VARIABLE = "CLEANTAIL_METRICS_TOKEN"
"""The variable of the token that opens the metrics, in the environment of the API server."""
_AIRFLOW_PREFIXES = ("AIRFLOW", "_AIRFLOW", "__AIRFLOW")
"""The beginnings of Airflow's variables: settings (AIRFLOW__…, also by _CMD and _SECRET), AIRFLOW_CONN_…,
AIRFLOW_VAR_…, passwords."""
_KAFKA_PREFIX, _KAFKA_JARS = "CLEANTAIL_KAFKA_", "CLEANTAIL_KAFKA_JARS"
"""The beginning of the variables of a Kafka client, and the one of that beginning that is none."""
_TASK_IDENTITY_PREFIX = "AIRFLOW_CTX_"
"""The beginning of the variables that say which task of which run this is."""


def of_driver(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a driver that a process with the environment `env` starts."""
    return {name: value for name, value in env.items() if not _is_kept_back(name)}


def with_own_python(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a script of Spark: it finds Spark by this Python, whether or not the environment that
    this Python belongs to is activated."""
    folders = [str(Path(sys.executable).parent), env.get("PATH", "")]
    return {
        **env,
        "PATH": os.pathsep.join(filter(None, folders)),
        "PYSPARK_PYTHON": env.get("PYSPARK_PYTHON") or sys.executable,
    }


def _is_kept_back(name: str) -> bool:
    upper = name.upper()
    return (
        name == TOKEN_VARIABLE
        or (name.startswith(_KAFKA_PREFIX) and name != _KAFKA_JARS)
        or (upper.startswith(_AIRFLOW_PREFIXES) and not upper.startswith(_TASK_IDENTITY_PREFIX))
    )
