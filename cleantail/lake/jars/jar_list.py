"""The jars that may be on a class path: those that the package lists with their SHA-256, and no other.

`cleantail jars` and bin/check-jars compare their SHA-256 when they are fetched. Here, at the start of every
application, it is name and size, which costs no reading.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cleantail.config.state_home import INSTALLED_IN
from cleantail.errors import CleantailError

LIST = INSTALLED_IN / "spark_jobs" / "conf" / "jars.txt"
SPARK, S3, MYSQL = "spark", "s3", "mysql"
TESTED_SPARK = "4.1"
"""The version of Spark with which all tests run."""
_FROM = "from"


@dataclass(frozen=True, slots=True)
class Jar:
    """Describes one line of the list. `kind`: what needs it; `bytes`: its size."""

    kind: str
    sha256: str
    bytes: int
    name: str


def listed(file: Path = LIST) -> Iterator[Jar]:
    """Yields the jars of the list, in its order."""
    for fields in _rows(file):
        if fields[0] != _FROM:
            kind, sha256, size, name = fields
            yield Jar(kind, sha256, int(size), name)


def packages(kinds: Collection[str], file: Path = LIST) -> list[str]:
    """Returns the Maven packages from which the jars of these kinds come, as `group:name:version`."""
    return [fields[2] for fields in _rows(file) if fields[0] == _FROM and fields[1] in kinds]


def _rows(file: Path) -> list[list[str]]:
    return [line.split() for line in file.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


@cache
def spark_version() -> str:
    """Returns the version of Spark that is installed, as `4.1`; the tested one where there is no PySpark."""
    for package in ("pyspark", "pyspark-client"):
        try:
            return ".".join(version(package).split(".")[:2])
        except PackageNotFoundError:
            continue
    return TESTED_SPARK


def mixed_versions() -> str | None:
    """Returns what to say where PySpark and its client, which Airflow's provider brings, are of two versions: they have
    files of the same names, and whichever was installed last has overwritten the other's."""
    try:
        spark, client = version("pyspark"), version("pyspark-client")
    except PackageNotFoundError:
        return None
    if spark == client:
        return None
    return f"pyspark {spark} and pyspark-client {client} have files in common: install both in one version"


def kinds_of(spark: str, s3: bool = False, mysql: bool = False) -> tuple[str, ...]:
    """Returns the kinds of jars that an application of this version of Spark needs. Raises CleantailError for one of
    which no jars are listed, as Iceberg has none for it."""
    by_version = f"{SPARK}-{spark}"
    if not packages([by_version]):
        known = sorted({jar.kind.removeprefix(f"{SPARK}-") for jar in listed() if jar.kind.startswith(f"{SPARK}-")})
        raise CleantailError(f"Spark {spark} is not supported: {LIST.name} has Iceberg's jars for {', '.join(known)}")
    return (SPARK, by_version, *((S3,) if s3 else ()), *((MYSQL,) if mysql else ()))


def on_class_path(directory: Path, spark: str | None = None) -> list[Path]:
    """Returns the listed jars of Spark's applications that are in the directory; none where there is none of them.

    Raises CleantailError where only some are there, and where one has another size than is listed.
    """
    kinds = kinds_of(spark or spark_version(), s3=True, mysql=True)
    jars = [jar for jar in listed() if jar.kind in kinds]
    paths = {jar.name: directory / jar.name for jar in jars if (directory / jar.name).is_file()}
    if not paths:
        return []
    for jar in jars:
        path = paths.get(jar.name)
        if path is None and jar.kind not in (S3, MYSQL):
            raise CleantailError(f"{directory} lacks {jar.name}: {AGAIN}")
        if path is not None and (size := path.stat().st_size) != jar.bytes:
            raise CleantailError(f"{path} has {size} bytes, and {LIST.name} says {jar.bytes}: {AGAIN}")
    return sorted(paths.values())


AGAIN = "run `cleantail jars` (in a checkout `make setup`), which fetches the jars and compares their SHA-256"
