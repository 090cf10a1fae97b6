"""A session that starts beside the imports of a job."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cleantail.config.loading import load_platform
from cleantail.errors import CleantailError
from spark_jobs.iceberg import session as sessions
from spark_jobs.iceberg.session import begin_session


def test_the_session_is_the_one_that_runs_and_the_active_one_of_whoever_waits_for_it(spark, workshop):
    session = begin_session(workshop.platform(), "any")
    assert session() is spark
    assert spark._jvm.org.apache.spark.sql.classic.SparkSession.getActiveSession().isDefined()


def test_what_keeps_a_session_from_starting_is_raised_where_it_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "topics").mkdir()
    monkeypatch.setattr(sessions, "jars", lambda platform, env: [])
    session = begin_session(load_platform(tmp_path, os.environ | {"CLEANTAIL_HOME": str(tmp_path)}), "any")
    for _ in range(2):
        with pytest.raises(CleantailError, match="no Spark jars in"):
            session()
