"""What Spark's workers need of Python is told before the first task: what they lack, and what they have in a version
that does not do."""

from __future__ import annotations

import json

from packaging.specifiers import SpecifierSet

from spark_jobs.engine.workers import environment
from spark_jobs.engine.workers.environment import PACKAGES, differing, needed_versions, problems
from tests.jobs.round.test_rounds import NOW, offsets, record


def test_workers_of_the_drivers_own_python_have_what_tasks_import(spark):
    assert problems(spark.sparkContext, 2) == []


def test_a_missing_package_and_one_of_a_wrong_version_are_reported(spark, monkeypatch):
    needed = {**needed_versions(), "duckdb": SpecifierSet("<0.2")}
    monkeypatch.setattr(environment, "needed_versions", lambda: needed)
    monkeypatch.setattr(environment, "PACKAGES", (*PACKAGES, "no-such-package"))
    missing, old = sorted(problems(spark.sparkContext, 2), reverse=True)
    assert missing == "no-such-package is not installed"
    assert old.startswith("it has duckdb ") and old.endswith(", and <0.2 is needed")


def test_a_command_changes_nothing_where_workers_lack_a_package(workshop, monkeypatch):
    """Only workers of a local master have the driver's own Python. The session is that of all tests."""
    topic = workshop.topic("workers-lack")
    workshop.ok("ingest", topic, "--file", workshop.file("a.jsonl", [record(i, "k", "v") for i in range(3)]))
    spark = {"master": "spark://cluster:7077", "insecure": True}
    (workshop.config / "defaults.yaml").write_text(json.dumps({"platform": {"spark": spark}}))
    monkeypatch.setattr(environment, "PACKAGES", (*PACKAGES, "no-such-package"))
    code, _, err = workshop.run("compact", topic, "--now", NOW)
    assert code == 2 and "the Python of Spark's workers cannot run Cleantail's tasks: " in err
    assert "no-such-package is not installed" in err and "make worker-environment" in err
    assert offsets(workshop.read(topic)) == [0, 1, 2]


def test_workers_need_the_package_versions_that_cleantail_requires():
    needed = needed_versions()
    assert not needed["duckdb"].contains("0.1.0") and not needed["pyiceberg"].contains("0.11.0")
    assert not needed["pyarrow"].contains("1.0.0"), "which PyIceberg asks for"
    assert needed.keys() == set(PACKAGES)


def test_workers_that_have_two_versions_of_duckdb_would_hash_a_key_in_two_ways():
    assert list(differing([("duckdb", "1.4.0"), ("duckdb", "1.4.0"), ("numpy", "1"), ("numpy", "2")])) == []
    [told] = differing([("duckdb", "2.0.0"), ("duckdb", "1.4.0"), ("duckdb", "")])
    assert told == "some have duckdb 1.4.0, others 2.0.0, and all need the same"
