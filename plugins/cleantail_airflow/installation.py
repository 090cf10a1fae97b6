"""Where the parts are: the configuration, the job files, and the Python that runs them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from cleantail.config.loading import CONFIG_VARIABLE

ROOT = Path(__file__).resolve().parents[2]


def config_dir(env: Mapping[str, str]) -> Path:
    """The directory of defaults.yaml and topics/: CLEANTAIL_CONFIG, else the repository's."""
    return Path(env.get(CONFIG_VARIABLE) or ROOT / "config").absolute()


def job_file(job: str) -> Path:
    """What spark-submit runs."""
    return ROOT / "spark_jobs" / f"{job}.py"


def spark_environment(env: Mapping[str, str]) -> dict[str, str]:
    """What spark-submit needs to find itself and this Python, also where the venv's bin is not on PATH."""
    return {
        "PATH": _joined(str(Path(sys.executable).parent), env.get("PATH")),
        "PYTHONPATH": _joined(str(ROOT), env.get("PYTHONPATH")),
        "PYSPARK_PYTHON": env.get("PYSPARK_PYTHON") or sys.executable,
    }


def _joined(first: str, rest: str | None) -> str:
    return os.pathsep.join([first, rest]) if rest else first
