"""Fetches jars once, by Spark's own resolver, so that nothing resolves packages when it starts.

1. The resolver works in a folder of its own, so that nothing of another version is mixed in. It asks Maven Central, or
   what Spark's settings name (`spark.jars.ivySettings`, `spark.jars.repositories`).
2. What came is compared with the list by its SHA-256: a jar that is not on the list, or another file, ends it.
3. Only then the jars are put into their folder, each by one rename, so that an application never sees half of one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from cleantail.errors import CleantailError, OutsideError
from cleantail.home.driver_process import of_driver, with_own_python
from cleantail.lake.jars.jar_list import LIST, Jar, listed, packages

TRIES = 3
TAIL_LINES = 12


def listed_jars(kinds: Collection[str]) -> list[Jar]:
    """Returns the listed jars of these kinds."""
    return [jar for jar in listed() if jar.kind in kinds]


def problems(directory: Path, kinds: Collection[str]) -> list[str]:
    """Returns what is missing in the directory, or is another file than was listed: all bytes are read."""
    return [problem for jar in listed_jars(kinds) if (problem := _problem(directory / jar.name, jar))]


def take(source: Path, directory: Path, kinds: Collection[str]) -> None:
    """Copies the listed jars from a folder. Raises CleantailError, and copies nothing, where one is missing or is
    another file."""
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


def fetch(
    directory: Path, kinds: Collection[str], repositories: Sequence[str] = (), env: Mapping[str, str] = os.environ
) -> None:
    """Fetches the jars of these kinds into the directory. Raises OutsideError where they cannot be had, and
    CleantailError where another file came than was listed."""
    with TemporaryDirectory(prefix="cleantail-jars-") as folder:
        downloads = _resolved(Path(folder), packages(kinds), repositories, env)
        known = {jar.name for jar in listed_jars(kinds)}
        if strange := sorted(file.name for file in downloads.glob("*.jar") if file.name not in known):
            raise CleantailError(f"the registry gave jars that {LIST.name} does not list: {', '.join(strange)}")
        take(downloads, directory, kinds)


def _problem(file: Path, jar: Jar) -> str | None:
    if not file.is_file():
        return f"{jar.name} is missing"
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return None if digest == jar.sha256 else f"{jar.name} has the SHA-256 {digest}, and {LIST.name} says {jar.sha256}"


def _resolved(folder: Path, names: Sequence[str], repositories: Sequence[str], env: Mapping[str, str]) -> Path:
    """Returns the folder into which the resolver has put the jars."""
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
    raise OutsideError("\n".join(["the jars could not be fetched; Spark's resolver says:", *_tail(said)]))


def _spark_submit() -> Path:
    """Returns Spark's own script. Raises CleantailError where PySpark is not installed."""
    spec = find_spec("pyspark")
    script = Path(spec.origin).parent / "bin" / "spark-submit" if spec and spec.origin else None
    if script is None or not script.is_file():
        raise CleantailError("PySpark is not installed: pip install 'cleantail[spark]'")
    return script


def _tail(said: str) -> Iterator[str]:
    """Yields the last lines that are not of a Java stack."""
    lines = [line for line in said.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    yield from lines[-TAIL_LINES:]
