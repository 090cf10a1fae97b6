"""Only listed jars are on a class path, and only as they were listed."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from cleantail.errors import CleantailError
from cleantail.lake.jar_list import listed, on_class_path

ROOT = Path(__file__).parents[2]
SPARK = [jar for jar in listed() if jar.kind == "spark"]


@pytest.fixture
def jars(tmp_path):
    """A directory with files of the names and sizes of Spark's jars."""
    for jar in SPARK:
        with (tmp_path / jar.name).open("wb") as file:
            file.truncate(jar.bytes)
    return tmp_path


def test_a_jar_that_is_not_listed_is_on_no_class_path(jars):
    (jars / "aaa-first-on-the-class-path.jar").touch()
    assert [path.name for path in on_class_path(jars)] == sorted(jar.name for jar in SPARK)


def test_a_jar_of_another_size_is_refused_at_the_start(jars):
    (jars / SPARK[0].name).write_bytes(b"other")
    with pytest.raises(CleantailError, match=f"{SPARK[0].name} has 5 bytes, and jars.txt says {SPARK[0].bytes}"):
        on_class_path(jars)


def test_a_jar_that_is_missing_is_named(jars):
    (jars / SPARK[1].name).unlink()
    with pytest.raises(CleantailError, match=f"lacks {SPARK[1].name}: remove the directory and run `make setup`"):
        on_class_path(jars)


def test_where_none_was_fetched_there_is_none(tmp_path):
    assert on_class_path(tmp_path / "nowhere") == []


def test_fetched_jars_are_compared_by_their_sha256(jars):
    """Of the same name and size, and yet another file."""
    command = [sys.executable, str(ROOT / "bin/check-jars"), "--exact", str(jars), "spark"]
    (jars / "more.jar").touch()
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "more.jar is not listed" in done.stderr
    small = min(SPARK, key=lambda jar: jar.bytes)
    zeros = hashlib.sha256(bytes(small.bytes)).hexdigest()
    assert f"{small.name} has the SHA-256 {zeros}, and jars.txt says {small.sha256}" in done.stderr


def test_every_jar_that_is_fetched_is_listed():
    script = (ROOT / "bin/fetch-jars").read_text()
    names = {jar.name for jar in listed()}
    for package in ("iceberg-spark-runtime-4.1_2.13:1.11.0", "sqlite-jdbc:3.50.3.0", "iceberg-aws-bundle:1.11.0"):
        assert package in script and any(package.replace(":", "-") in name for name in names)


def test_every_package_is_pinned_with_a_sha256_and_no_registry_is_named():
    for file in ("constraints.txt", "bootstrap.txt"):
        lines = (ROOT / file).read_text().splitlines()
        pins = [i for i, line in enumerate(lines) if "==" in line and not line.startswith("#")]
        assert pins and all(lines[i].endswith("\\") and "--hash=sha256:" in lines[i + 1] for i in pins)
        assert "://" not in "".join(lines) and "index-url" not in "".join(lines)
    assert "--require-hashes" in (ROOT / "Makefile").read_text()
