"""A cluster of tests and benchmarks starts by this Python, and its failure shows why."""

import time

import pytest

from differential.spark_cluster import ClusterError, spark_cluster


@pytest.fixture
def not_activated(monkeypatch):
    """The environment of a shell in which no environment of Python is activated."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "VIRTUAL_ENV"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.deep
@pytest.mark.integration
def test_a_cluster_starts_where_the_environment_of_its_python_is_not_activated(not_activated, tmp_path):
    """tests/jobs/test_cluster.py starts one with the environment of the tests."""
    with spark_cluster(tmp_path, workers=1) as address:
        assert address.startswith("spark://")


def test_a_cluster_that_cannot_start_shows_the_end_of_its_log_at_once(not_activated, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    began = time.monotonic()
    with pytest.raises(ClusterError, match="The end of their log:\n.*no-java/bin/java"), spark_cluster(tmp_path):
        pass
    assert time.monotonic() - began < 30
