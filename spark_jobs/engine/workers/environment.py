"""Says what Spark's workers need of Python: looked at once, before the first task, where they may have another one.

On a local master the workers are of this very environment. Elsewhere they have what their owner has installed, or what
`spark.archives` ships (`make worker-environment`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.metadata import version

from pyspark import SparkContext
from pyspark.errors import PythonException

from cleantail.config.platform import Platform
from cleantail.errors import CleantailError

PACKAGES = ("pyarrow", "duckdb", "pyroaring", "pyiceberg", "numpy", "confluent-kafka", "aiokafka", "cleantail")
"""What a task imports."""
WAY_OUT = (
    "Install Cleantail with its packages for the workers' Python, or let Spark ship them: `make worker-environment` "
    "packs them, and platform.spark.conf names the archive (docs/operations.md, Workers of a cluster)"
)
_checked: set[str] = set()


def require_workers(context: SparkContext, platform: Platform, tasks: int) -> None:
    """Raises CleantailError, before anything is changed, where a worker lacks a package, or has another version of
    Cleantail or of Python than the driver."""
    application = str(context.applicationId)
    if platform.spark.master.startswith("local") or application in _checked:
        return
    if missing := problems(context, tasks):
        raise CleantailError(
            f"the Python of Spark's workers cannot run Cleantail's tasks: {', '.join(missing)}. {WAY_OUT}"
        )
    _checked.add(application)


def problems(context: SparkContext, tasks: int) -> list[str]:
    """Returns what is wrong with the workers, as `tasks` tasks have met them."""
    packages, python, ours = PACKAGES, sys.version_info[:2], version("cleantail")

    # a function inside of a function travels as code: a worker without Cleantail can run it
    def missing(_: Iterable[int]) -> Iterable[str]:
        import importlib.metadata
        import sys

        if sys.version_info[:2] != python:
            yield f"it is Python {sys.version_info[0]}.{sys.version_info[1]}, the driver's {python[0]}.{python[1]}"
        for package in packages:
            try:
                installed = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                yield f"{package} is not installed"
            else:
                if package == "cleantail" and installed != ours:
                    yield f"it has Cleantail {installed}, the driver {ours}"

    try:
        return sorted(set(context.parallelize(range(tasks), tasks).mapPartitions(missing).collect()))
    except PythonException as e:
        return [str(e).strip().splitlines()[-1]]
    except Exception as e:  # noqa: BLE001
        if "PYTHON_VERSION_MISMATCH" in str(e) or "Cannot run program" in str(e):
            return [next(line for line in str(e).splitlines() if "PYTHON_VERSION" in line or "Cannot run" in line)]
        raise
