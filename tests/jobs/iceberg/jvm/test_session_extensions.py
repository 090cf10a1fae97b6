"""The session that a job starts has the extensions of its settings, and none that Spark's jars offer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.ml.functions import array_to_vector
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

ANOTHER_SPARK = """
import os, sys
from pathlib import Path
from cleantail.config.loading import load_platform
from spark_jobs.iceberg.jvm import session_extensions
from spark_jobs.iceberg.session import start_session
from tests.jobs.iceberg.jvm.test_session_extensions import has_mllib

session_extensions.EXTENSIONS = "spark.app.name"  # which no class has: as where this Spark has no such constructor
session = start_session(load_platform(Path(sys.argv[1])), "no.such.Extension")
session.sql("CREATE NAMESPACE cleantail.ns")
session.sql("CREATE TABLE cleantail.ns.t (a INT) USING iceberg")
session.sql("ALTER TABLE cleantail.ns.t ADD PARTITION FIELD a")  # by Iceberg's extension alone
print(has_mllib(session), session.conf.get("spark.sql.session.timeZone"), session.sparkContext.appName)
"""


def has_mllib(session: SparkSession) -> bool:
    """By a function that only the extension of MLlib's jar brings."""
    try:
        session.range(1).select(array_to_vector(F.array(F.lit(1.0)))).collect()
    except AnalysisException:
        return False
    return True


def test_the_session_has_icebergs_extension_and_none_of_mllib(spark: SparkSession) -> None:
    assert not has_mllib(spark)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS cleantail.extensions")
    spark.sql("CREATE TABLE cleantail.extensions.t (a INT) USING iceberg")
    spark.sql("ALTER TABLE cleantail.extensions.t ADD PARTITION FIELD a")
    spark.sql("DROP TABLE cleantail.extensions.t")


@pytest.mark.integration
def test_where_the_session_cannot_be_made_so_pyspark_makes_it(home: Path, tmp_path: Path) -> None:
    (tmp_path / "defaults.yaml").write_text(json.dumps({"platform": {"spark": {"master": "local[1]"}}}))
    env = os.environ | {"CLEANTAIL_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", ANOTHER_SPARK, str(tmp_path)]
    run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200)
    assert (run.returncode, run.stdout.split()) == (0, ["True", "UTC", "no.such.Extension"]), run.stderr
