"""Only listed jars are on a class path, and only as they were listed."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from cleantail.config.platform import Catalog, Platform
from cleantail.errors import CleantailError
from cleantail.lake.jar_list import (
    MYSQL,
    S3,
    TESTED_SPARK,
    kinds_of,
    listed,
    mixed_versions,
    on_class_path,
    packages,
)
from cleantail.lake.spark_settings import needs_mysql, needs_s3

ROOT = Path(__file__).parents[3]
SPARK = [jar for jar in listed() if jar.kind in kinds_of(TESTED_SPARK)]


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
    with pytest.raises(CleantailError, match=f"{SPARK[0].name} has 5 bytes, but jars.txt lists {SPARK[0].bytes}"):
        on_class_path(jars)


def test_a_jar_that_is_missing_is_named(jars):
    (jars / SPARK[1].name).unlink()
    with pytest.raises(CleantailError, match=f"lacks {SPARK[1].name}: run `cleantail jars`"):
        on_class_path(jars)


def test_the_class_path_is_empty_if_no_jar_was_fetched(tmp_path):
    assert on_class_path(tmp_path / "nowhere") == []


def test_fetched_jars_are_compared_by_their_sha256(jars):
    """Of the same name and size, and yet another file."""
    command = [sys.executable, str(ROOT / "bin/check-jars"), "--exact", str(jars), *kinds_of(TESTED_SPARK)]
    (jars / "more.jar").touch()
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "more.jar is not listed" in done.stderr
    small = min(SPARK, key=lambda jar: jar.bytes)
    zeros = hashlib.sha256(bytes(small.bytes)).hexdigest()
    assert f"{small.name} has the SHA-256 {zeros}, but jars.txt lists {small.sha256}" in done.stderr


def test_of_each_version_of_spark_the_class_path_has_icebergs_jar_for_it(jars):
    for jar in listed():
        if jar.kind == "spark-4.0":
            with (jars / jar.name).open("wb") as file:
                file.truncate(jar.bytes)
    for spark in ("4.0", "4.1"):
        (runtime,) = [path.name for path in on_class_path(jars, spark) if "iceberg-spark-runtime" in path.name]
        assert f"runtime-{spark}_2.13" in runtime


def test_a_version_of_spark_for_which_iceberg_has_no_jar_is_refused_with_those_that_there_are(jars):
    with pytest.raises(
        CleantailError, match=r"Spark 4\.2 is not supported: jars\.txt has Iceberg's jars for 4\.0, 4\.1"
    ):
        on_class_path(jars, "4.2")


@pytest.mark.parametrize(("client", "said"), [("4.1.3", False), ("4.0.4", True)])
def test_pyspark_and_pyspark_client_of_different_versions_are_reported(monkeypatch, client, said):
    versions = {"pyspark": "4.1.3", "pyspark-client": client}
    monkeypatch.setattr("cleantail.lake.jar_list.version", versions.__getitem__)
    assert ("install both in one version" in (mixed_versions() or "")) is said


def test_every_package_that_is_fetched_has_its_jar_on_the_list_and_every_kind_its_packages():
    kinds = {jar.kind for jar in listed()} - {"rest"}  # of deploy/rest-catalog.ivy.xml
    names = {jar.name for jar in listed()}
    for kind in kinds:
        assert packages([kind])
        for package in packages([kind]):
            assert any(name.endswith(f"_{package.split(':')[1]}-{package.split(':')[2]}.jar") for name in names)


def test_every_package_is_pinned_with_a_sha256_and_no_registry_is_named():
    for file in ("constraints.txt", "bootstrap.txt"):
        lines = (ROOT / file).read_text().splitlines()
        pins = [i for i, line in enumerate(lines) if "==" in line and not line.startswith("#")]
        assert pins and all(lines[i].endswith("\\") and "--hash=sha256:" in lines[i + 1] for i in pins)
        assert "://" not in "".join(lines) and "index-url" not in "".join(lines)
    assert "--require-hashes" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize(
    ("catalog", "kinds"),
    [
        pytest.param(Catalog(), [], id="sqlite"),
        pytest.param(Catalog(type="glue", warehouse="lake"), [S3], id="glue, wherever its tables are"),
        pytest.param(Catalog(type="mysql", uri="mysql://db/iceberg", warehouse="/lake"), [MYSQL], id="mysql"),
        pytest.param(Catalog(type="mysql", uri="mysql://db/iceberg", warehouse="s3://a/b"), [S3, MYSQL], id="both"),
    ],
)
def test_the_catalog_says_which_jars_are_fetched_beside_those_of_spark(tmp_path, catalog, kinds):
    platform = Platform(catalog=catalog, home=tmp_path, config_dir=tmp_path)
    found = kinds_of(TESTED_SPARK, needs_s3(platform), needs_mysql(platform))
    assert list(found) == [*kinds_of(TESTED_SPARK), *kinds]
