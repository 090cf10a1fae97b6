"""Find this installation's configuration, job file and Python.

The packages are in a checkout of the repository, or in site-packages if the wheel is installed.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from cleantail.config.loading import CONFIG_VARIABLE
from cleantail.config.state_home import INSTALLED_IN, in_checkout
from cleantail.home.driver_process import with_own_python

ROOT = INSTALLED_IN
"""The folder of the packages `cleantail` and `spark_jobs`."""
PREFIX = "/cleantail"
"""Prefix of the addresses of pages and metrics on Airflow's API server."""
JOB_FILE = ROOT / "spark_jobs" / "run_station.py"
"""The file that spark-submit runs, for every station."""
NO_CONFIG = Path(f"/{CONFIG_VARIABLE} names no configuration")
"""Placeholder for a missing configuration. No such directory exists."""
WITHOUT_CONFIG = (
    f"The API server has no configuration. Set {CONFIG_VARIABLE} in its environment to the directory that "
    "your DAG file passes to topic_dags, and restart it. Set it for the scheduler too."
)
"""Text of the pages without a configuration."""


def config_dir(env: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of defaults.yaml and topics/ for the page and the pool, which no DAG file configures.

    Returns CLEANTAIL_CONFIG, else the directory of the checkout, else NO_CONFIG.
    """
    if named := env.get(CONFIG_VARIABLE):
        return Path(named).absolute()
    return ROOT / "config" if in_checkout() else NO_CONFIG


def spark_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which spark-submit finds its own files and this Python, even if they are not on PATH."""
    # site-packages must not be in PYTHONPATH, where they would precede Python's own library
    installed = str(ROOT) in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    own = with_own_python(env)
    return {
        "PATH": own["PATH"],
        "PYTHONPATH": env.get("PYTHONPATH", "") if installed else _prepended(str(ROOT), env.get("PYTHONPATH")),
        "PYSPARK_PYTHON": own["PYSPARK_PYTHON"],
    }


def _prepended(folder: str, folders: str | None) -> str:
    return os.pathsep.join([folder, folders]) if folders else folder
