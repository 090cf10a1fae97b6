"""Where the parts of this installation are: the configuration, the job files, and the Python that runs them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from cleantail.config.loading import CONFIG_VARIABLE

ROOT = Path(__file__).resolve().parents[2]


def config_dir(env: Mapping[str, str]) -> Path:
    """Returns the directory of defaults.yaml and topics/: CLEANTAIL_CONFIG, else the repository's."""
    return Path(env.get(CONFIG_VARIABLE) or ROOT / "config").absolute()


def job_file(job: str) -> Path:
    """Returns the file that spark-submit runs."""
    return ROOT / "spark_jobs" / f"{job}.py"


def spark_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables by which spark-submit finds itself and this Python, also where its bin is not on PATH."""
    return {
        "PATH": _prepended(str(Path(sys.executable).parent), env.get("PATH")),
        "PYTHONPATH": _prepended(str(ROOT), env.get("PYTHONPATH")),
        "PYSPARK_PYTHON": env.get("PYSPARK_PYTHON") or sys.executable,
    }


def _prepended(folder: str, folders: str | None) -> str:
    return os.pathsep.join([folder, folders]) if folders else folder
