"""Says where the parts of this installation are: the configuration, the job file, and the Python that runs them.

The packages lie in a checkout of the repository, or in site-packages where the wheel is installed.
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
JOB_FILE = ROOT / "spark_jobs" / "run_station.py"
"""The file that spark-submit runs, for every station."""
NO_CONFIG = Path(f"/{CONFIG_VARIABLE} names no configuration")
"""What stands for a configuration that nobody has named: errors show it, and there is no such directory."""


def config_dir(env: Mapping[str, str]) -> Path:
    """Returns the directory of defaults.yaml and topics/ for what no DAG file has given one, as the page and the pool:
    CLEANTAIL_CONFIG, else that of the checkout, else NO_CONFIG."""
    if named := env.get(CONFIG_VARIABLE):
        return Path(named).absolute()
    return ROOT / "config" if in_checkout() else NO_CONFIG


def spark_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables by which spark-submit finds itself and this Python, also where its bin is not on PATH."""
    # site-packages are where Python looks in any case, and before its own library they could hide parts of it
    installed = str(ROOT) in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    own = with_own_python(env)
    return {
        "PATH": own["PATH"],
        "PYTHONPATH": env.get("PYTHONPATH", "") if installed else _prepended(str(ROOT), env.get("PYTHONPATH")),
        "PYSPARK_PYTHON": own["PYSPARK_PYTHON"],
    }


def _prepended(folder: str, folders: str | None) -> str:
    return os.pathsep.join([folder, folders]) if folders else folder
