"""The jars that may be on a class path: those that the repository lists with their SHA-256, and no other.

bin/check-jars compares their SHA-256 when they are fetched. Here, at the start of every application, it is name and
size, which costs no reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cleantail.errors import CleantailError

LIST = Path(__file__).resolve().parents[2] / "spark_jobs" / "conf" / "jars.txt"
SPARK, S3, MYSQL = "spark", "s3", "mysql"


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the list. `kind`: what needs it; `bytes`: its size."""

    kind: str
    sha256: str
    bytes: int
    name: str


def listed(file: Path = LIST) -> Iterator[Jar]:
    """Yields the jars of the list, in its order."""
    for line in file.read_text().splitlines():
        if line and not line.startswith("#"):
            kind, sha256, size, name = line.split()
            yield Jar(kind, sha256, int(size), name)


def on_class_path(directory: Path) -> list[Path]:
    """Returns the listed jars of Spark's applications that are in the directory; none where there is none of them.

    Raises CleantailError where only some are there, and where one has another size than is listed.
    """
    jars = [jar for jar in listed() if jar.kind in (SPARK, S3, MYSQL)]
    paths = {jar.name: directory / jar.name for jar in jars if (directory / jar.name).is_file()}
    if not paths:
        return []
    for jar in jars:
        path = paths.get(jar.name)
        if path is None and jar.kind == SPARK:
            raise CleantailError(f"{directory} lacks {jar.name}: {_AGAIN}")
        if path is not None and (size := path.stat().st_size) != jar.bytes:
            raise CleantailError(f"{path} has {size} bytes, and {LIST.name} says {jar.bytes}: {_AGAIN}")
    return sorted(paths.values())


_AGAIN = "remove the directory and run `make setup`, which fetches the jars and compares their SHA-256"
