"""What Spark's workers need of Python is told before the first task: what they lack, and what they have in a version
that does not do."""

from __future__ import annotations

from packaging.specifiers import SpecifierSet

from spark_jobs.engine.workers import environment
from spark_jobs.engine.workers.environment import PACKAGES, differing, needed_versions, problems


def test_workers_of_the_drivers_own_python_have_what_tasks_import(spark):
    assert problems(spark.sparkContext, 2) == []


def test_a_package_that_is_missing_and_one_of_another_version_are_told(spark, monkeypatch):
    needed = {**needed_versions(), "duckdb": SpecifierSet("<0.2")}
    monkeypatch.setattr(environment, "needed_versions", lambda: needed)
    monkeypatch.setattr(environment, "PACKAGES", (*PACKAGES, "no-such-package"))
    missing, old = sorted(problems(spark.sparkContext, 2), reverse=True)
    assert missing == "no-such-package is not installed"
    assert old.startswith("it has duckdb ") and old.endswith(", and <0.2 is needed")


def test_the_versions_that_are_needed_are_those_of_the_package_itself():
    needed = needed_versions()
    assert not needed["duckdb"].contains("0.1.0") and not needed["pyiceberg"].contains("0.11.0")
    assert not needed["pyarrow"].contains("1.0.0"), "which PyIceberg asks for"
    assert needed.keys() == set(PACKAGES)


def test_workers_that_have_two_versions_of_duckdb_would_hash_a_key_in_two_ways():
    assert list(differing([("duckdb", "1.4.0"), ("duckdb", "1.4.0"), ("numpy", "1"), ("numpy", "2")])) == []
    [told] = differing([("duckdb", "2.0.0"), ("duckdb", "1.4.0"), ("duckdb", "")])
    assert told == "some have duckdb 1.4.0, others 2.0.0, and all need the same"
