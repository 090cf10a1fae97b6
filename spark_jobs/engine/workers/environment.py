"""Check the Python environment of Spark's workers once, before the first task.

On a local master the workers use the driver's own environment. On a cluster they use installed packages, or the archive
of `spark.archives` (`make worker-environment`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import metadata, requires, version

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from pyspark import SparkContext
from pyspark.errors import PythonException

from cleantail.config.platform import Platform
from cleantail.errors import CleantailError

PACKAGES = ("pyarrow", "duckdb", "pyroaring", "pyiceberg", "numpy", "confluent-kafka", "aiokafka", "cleantail")
"""The packages that a task imports."""
WAY_OUT = (
    "Install Cleantail with its packages for the workers' Python, or let Spark ship them: `make worker-environment` "
    "packs them, and platform.spark.conf names the archive (docs/operations.md, Workers of a cluster)"
)
_checked: set[str] = set()


def require_workers(context: SparkContext, platform: Platform, tasks: int) -> None:
    """Raise CleantailError, before anything is changed, if a worker's environment cannot run the tasks."""
    application = str(context.applicationId)
    if platform.spark.master.startswith("local") or application in _checked:
        return
    if missing := problems(context, tasks):
        raise CleantailError(
            f"the Python of Spark's workers cannot run Cleantail's tasks: {', '.join(missing)}. {WAY_OUT}"
        )
    _checked.add(application)


def problems(context: SparkContext, tasks: int) -> list[str]:
    """Return the problems of the workers' environments, found by this number of tasks."""
    packages = PACKAGES

    # a nested function travels as code, so a worker without Cleantail can run it
    def installed(_: Iterable[int]) -> Iterable[tuple[str, str]]:
        import importlib.metadata
        import sys

        yield "Python", f"{sys.version_info[0]}.{sys.version_info[1]}"
        for package in packages:
            try:
                yield package, importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                yield package, ""

    try:
        package_versions = set(context.parallelize(range(tasks), tasks).mapPartitions(installed).collect())
    except PythonException as e:
        return [str(e).strip().splitlines()[-1]]
    except Exception as e:  # noqa: BLE001
        if "PYTHON_VERSION_MISMATCH" in str(e) or "Cannot run program" in str(e):
            return [next(line for line in str(e).splitlines() if "PYTHON_VERSION" in line or "Cannot run" in line)]
        raise
    needed = needed_versions()
    wrong = {text for package, has in package_versions for text in _wrong(package, has, needed)}
    return sorted(wrong | set(differing(package_versions)))


def needed_versions() -> dict[str, SpecifierSet]:
    """Return the versions of PACKAGES that Cleantail and PyIceberg require here, with any of their extras."""
    needed = {package: SpecifierSet() for package in PACKAGES}
    for owner in ("cleantail", "pyiceberg"):
        extras = ["", *metadata(owner).get_all("Provides-Extra", [])]
        for requirement in map(Requirement, requires(owner) or []):
            name, marker = canonicalize_name(requirement.name), requirement.marker
            if name in needed and (marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)):
                needed[name] &= requirement.specifier
    return needed


def _wrong(package: str, has: str, needed: Mapping[str, SpecifierSet]) -> Iterator[str]:
    """Yield the problems of one package of a worker, or of its Python. `has`: its version, empty without one."""
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if package == "Python":
        if has != python:
            yield f"it is Python {has}, the driver's {python}"
    elif not has:
        yield f"{package} is not installed"
    elif package == "cleantail":
        if has != version("cleantail"):
            yield f"it has Cleantail {has}, the driver {version('cleantail')}"
    elif not needed[package].contains(has, prereleases=True):
        yield f"it has {package} {has}, and {needed[package]} is needed"


def differing(package_versions: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a problem if workers have different versions of DuckDB, because all tasks must compute the same hashes."""
    versions = sorted({has for package, has in package_versions if package == "duckdb" and has})
    if len(versions) > 1:
        yield f"some have duckdb {versions[0]}, others {', '.join(versions[1:])}, and all need the same"
