"""The jars that may be on a class path: only those that the package lists with their SHA-256.

`cleantail jars` and bin/check-jars compare the SHA-256 after they fetch a jar. At the start of every application this
module compares only name and size, so no jar is read.

Jars are fetched once, by Spark's own resolver, so that no application resolves packages when it starts:

1. The resolver works in a separate folder, so that no other version is mixed in. The resolver uses Maven Central, or
   the repositories in Spark's settings (`spark.jars.ivySettings`, `spark.jars.repositories`).
2. The SHA-256 of each fetched jar is compared with the list. A jar that is not listed, or that differs, ends the fetch.
3. Only then are the jars moved into their folder, each by one rename, so that an application never sees half a jar.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from cleantail.config.state_home import INSTALLED_IN
from cleantail.errors import CleantailError, OutsideError
from cleantail.home.driver_process import of_driver, with_own_python

LIST = INSTALLED_IN / "spark_jobs" / "conf" / "jars.txt"
SPARK, S3, MYSQL = "spark", "s3", "mysql"
TESTED_SPARK = "4.1"
"""The version of Spark with which all tests run."""
_FROM = "from"


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the list. `kind`: what needs the jar; `bytes`: its size."""

    kind: str
    sha256: str
    bytes: int
    name: str


def listed(file: Path = LIST) -> Iterator[Jar]:
    """Yield the jars of the list, in its order."""
    for fields in _rows(file):
        if fields[0] != _FROM:
            kind, sha256, size, name = fields
            yield Jar(kind, sha256, int(size), name)


def packages(kinds: Collection[str], file: Path = LIST) -> list[str]:
    """Return the Maven packages from which the jars of these kinds come, as `group:name:version`."""
    return [fields[2] for fields in _rows(file) if fields[0] == _FROM and fields[1] in kinds]


def _rows(file: Path) -> list[list[str]]:
    return [line.split() for line in file.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


@cache
def spark_version() -> str:
    """Return the installed version of Spark, such as `4.1`. The tested version if PySpark is not installed."""
    for package in ("pyspark", "pyspark-client"):
        try:
            return ".".join(version(package).split(".")[:2])
        except PackageNotFoundError:
            continue
    return TESTED_SPARK


def mixed_versions() -> str | None:
    """Return an error text if PySpark and its client have two versions. None if they match.

    Airflow's provider installs the client. Both packages have files of the same names, so the one that was installed
    last has overwritten files of the other.
    """
    try:
        spark, client = version("pyspark"), version("pyspark-client")
    except PackageNotFoundError:
        return None
    if spark == client:
        return None
    return f"pyspark {spark} and pyspark-client {client} have files in common: install both in one version"


def kinds_of(spark: str, s3: bool = False, mysql: bool = False) -> tuple[str, ...]:
    """Return the kinds of jars that an application of this version of Spark needs.

    Raises CleantailError for a version without listed jars, for example because Iceberg does not support it.
    """
    by_version = f"{SPARK}-{spark}"
    if not packages([by_version]):
        known = sorted({jar.kind.removeprefix(f"{SPARK}-") for jar in listed() if jar.kind.startswith(f"{SPARK}-")})
        raise CleantailError(f"Spark {spark} is not supported: {LIST.name} has Iceberg's jars for {', '.join(known)}")
    return (SPARK, by_version, *((S3,) if s3 else ()), *((MYSQL,) if mysql else ()))


def on_class_path(directory: Path, spark: str | None = None) -> list[Path]:
    """Return the listed jars of Spark's applications in the directory; empty if all are missing.

    Raises CleantailError if only some are there, or if one has another size than is listed.
    """
    jars = listed_jars(kinds_of(spark or spark_version(), s3=True, mysql=True))
    paths = {jar.name: directory / jar.name for jar in jars if (directory / jar.name).is_file()}
    if not paths:
        return []
    for jar in jars:
        path = paths.get(jar.name)
        if path is None and jar.kind not in (S3, MYSQL):
            raise CleantailError(f"{directory} lacks {jar.name}: {AGAIN}")
        if path is not None and (size := path.stat().st_size) != jar.bytes:
            raise CleantailError(f"{path} has {size} bytes, but {LIST.name} lists {jar.bytes}: {AGAIN}")
    return sorted(paths.values())


AGAIN = "run `cleantail jars` (in a checkout `make setup`), which fetches the jars and compares their SHA-256"


JARS_VARIABLE = "CLEANTAIL_JARS"
"""Directory of the Spark jars.

The default is `jars` under CLEANTAIL_HOME, then the jars that `make setup` fetched in a checkout, then the cache.
"""
CHECKOUT_JARS = INSTALLED_IN / ".cleantail" / "jars"


def jars_directory(home: Path, env: Mapping[str, str]) -> Path:
    """Return CLEANTAIL_JARS, else `jars` under the home, else those of the checkout, else the cache."""
    if env.get(JARS_VARIABLE):
        return Path(env[JARS_VARIABLE])
    there = (folder for folder in (home / "jars", CHECKOUT_JARS) if folder.is_dir())
    return next(there, cache_directory(env, spark_version()))


def cache_directory(env: Mapping[str, str], spark: str) -> Path:
    """Return the folder for files that can be fetched again (XDG Base Directory Specification), by version of Spark."""
    named = Path(env.get("XDG_CACHE_HOME") or "")
    caches = named if named.is_absolute() else Path.home() / ".cache"
    return caches / "cleantail" / "jars" / f"spark-{spark}"


TRIES = 3
TAIL_LINES = 12


def listed_jars(kinds: Collection[str]) -> list[Jar]:
    return [jar for jar in listed() if jar.kind in kinds]


def problems(directory: Path, kinds: Collection[str]) -> list[str]:
    """Return the jars that are missing in the directory or differ from the list. Reads all bytes."""
    return [problem for jar in listed_jars(kinds) if (problem := _problem(directory / jar.name, jar))]


def take(source: Path, directory: Path, kinds: Collection[str]) -> None:
    """Copy the listed jars from a folder.

    Raises CleantailError, and copies nothing, if a jar is missing or differs from the list.
    """
    if wrong := problems(source, kinds):
        raise CleantailError(f"{source}: {'; '.join(wrong)}")
    directory.mkdir(parents=True, exist_ok=True)
    for jar in listed_jars(kinds):
        half = directory / f".{jar.name}.{os.getpid()}"
        try:
            shutil.copyfile(source / jar.name, half)
            half.replace(directory / jar.name)
        finally:
            half.unlink(missing_ok=True)


def fetch(directory: Path, kinds: Collection[str], repositories: Sequence[str], env: Mapping[str, str]) -> None:
    """Fetch the jars of these kinds into the directory.

    Raises OutsideError if they cannot be fetched, and CleantailError if a jar differs from the list.
    """
    with TemporaryDirectory(prefix="cleantail-jars-") as folder:
        downloads = _resolved(Path(folder), packages(kinds), repositories, env)
        known = {jar.name for jar in listed_jars(kinds)}
        if strange := sorted(file.name for file in downloads.glob("*.jar") if file.name not in known):
            raise CleantailError(f"the registry returned jars that {LIST.name} does not list: {', '.join(strange)}")
        take(downloads, directory, kinds)


def _problem(file: Path, jar: Jar) -> str | None:
    if not file.is_file():
        return f"{jar.name} is missing"
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return None if digest == jar.sha256 else f"{jar.name} has the SHA-256 {digest}, but {LIST.name} lists {jar.sha256}"


def _resolved(folder: Path, names: Sequence[str], repositories: Sequence[str], env: Mapping[str, str]) -> Path:
    """Return the folder into which the resolver has written the jars."""
    nothing = folder / "nothing.py"
    nothing.write_text("pass\n", encoding="utf-8")
    options = ["--master", "local[1]", "--conf", "spark.ui.enabled=false", "--conf", f"spark.jars.ivy={folder}"]
    options += ["--packages", ",".join(names)]
    options += ["--repositories", ",".join(repositories)] if repositories else []
    said = ""
    for _ in range(TRIES):
        done = subprocess.run(
            [str(_spark_submit()), *options, str(nothing)],
            env={**with_own_python(of_driver(env)), "SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            encoding="utf-8",
        )
        if done.returncode == 0:
            return folder / "jars"
        said = done.stdout
    # without lines of a Java stack
    lines = [line for line in said.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    raise OutsideError("\n".join(["the jars could not be fetched; output of Spark's resolver:", *lines[-TAIL_LINES:]]))


def _spark_submit() -> Path:
    """Return Spark's own script. Raises CleantailError if PySpark is not installed."""
    spec = find_spec("pyspark")
    script = Path(spec.origin).parent / "bin" / "spark-submit" if spec and spec.origin else None
    if script is None or not script.is_file():
        raise CleantailError("PySpark is not installed: pip install 'cleantail[spark]'")
    return script
