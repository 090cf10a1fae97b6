"""The Spark session of every job: settings from the platform's configuration, secrets from the environment."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkConf
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from cleantail.config.platform import Platform
from cleantail.errors import CleantailError
from cleantail.home.private_files import make_home
from cleantail.lake.catalog_settings import jars, jars_directory, spark_conf, spark_secrets
from spark_jobs.iceberg import quiet_jvm
from spark_jobs.iceberg.quiet_jvm import SUBMITTED


def start_session(platform: Platform, app_name: str, records: int | None = None) -> SparkSession:
    """Returns the running session, or starts one. Under spark-submit the settings submitted there win over the
    platform's. `records`: how many it is going to read, where that is known (spark_settings.SMALL_RECORDS). Raises
    CleantailError when the jars are not there."""
    if not jars(platform, os.environ) and SUBMITTED not in os.environ:
        raise CleantailError(
            f"no Spark jars in {jars_directory(platform, os.environ)}: run `make setup`, or name them in CLEANTAIL_JARS"
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if platform.spark.master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else workers elsewhere could not call the driver back
    logging.getLogger("py4j").setLevel(logging.WARNING)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):  # they quote values of records
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    make_home(platform.home)
    settings = spark_conf(platform, os.environ, records)
    quiet_jvm.start(settings)
    submitted = SparkConf() if SUBMITTED in os.environ else None
    builder = SparkSession.builder.appName(app_name)
    for key, value in (settings | spark_secrets(platform, os.environ)).items():
        if submitted is None or not submitted.contains(key):
            builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def grouped_by_log(spark: SparkSession, grouped: bool) -> Iterator[None]:
    """Makes plans inside read all files of a log in one task, where `grouped`: then its keys meet without a shuffle."""
    setting = "spark.sql.iceberg.planning.preserve-data-grouping"
    spark.conf.set(setting, str(grouped).lower())
    try:
        yield
    finally:
        spark.conf.unset(setting)
