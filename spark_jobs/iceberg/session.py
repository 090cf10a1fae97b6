"""Start the Spark session of every job: settings from the platform's configuration, secrets from the environment."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from cleantail.config.platform import Platform
from cleantail.errors import CleantailError
from cleantail.home.home_folder import make_home
from cleantail.lake.jar_list import AGAIN
from cleantail.lake.spark_settings import jars, jars_directory, spark_conf, spark_secrets
from spark_jobs.iceberg.executor_watch import watch_executors
from spark_jobs.iceberg.jvm import quiet_jvm
from spark_jobs.iceberg.jvm.quick_answers import acknowledge_at_once
from spark_jobs.iceberg.jvm.quiet_jvm import SUBMITTED


def start_session(platform: Platform, app_name: str, records: int | None = None) -> SparkSession:
    """Return the running session, or start one. Settings of spark-submit win over the platform's.

    `records`: the number of records that the session will read, if known (spark_settings.SMALL_RECORDS). Raises
    CleantailError if the jars are missing.
    """
    jar_files = platform.spark.jars_of_cluster or jars(platform)
    if not jar_files and SUBMITTED not in os.environ:
        raise CleantailError(f"no Spark jars in {jars_directory(platform)}: {AGAIN}")
    # PySpark reads the Python of its workers from the environment only
    os.environ.setdefault("PYSPARK_PYTHON", platform.spark.conf.get("spark.pyspark.python", sys.executable))
    if platform.spark.master.startswith("local"):
        # otherwise workers on other hosts could not call the driver back
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):  # these quote values of records
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    make_home(platform.home)
    settings = spark_conf(platform, records)
    submitted = SparkConf() if SUBMITTED in os.environ else None
    master = (submitted and submitted.get("spark.master")) or platform.spark.master
    is_new = SparkContext._active_spark_context is None
    folders = quiet_jvm.private_folders({**settings, "spark.master": master}) if is_new else {}
    settings |= folders
    quiet_jvm.start(settings)
    own = {"spark.app.name": app_name}
    for key, value in (settings | spark_secrets(platform)).items():
        if submitted is None or key in folders or not submitted.contains(key):
            own[key] = value
    session = SparkSession.builder.config(map=dict(own)).getOrCreate()
    if is_new:
        watch_executors(session, platform.cleaner.cleantail_executors_lost_ms)
    session.sparkContext.setLogLevel("ERROR")
    jvm: Any = session._jvm
    acknowledge_at_once(jvm._gateway_client)
    # Hadoop would write a file of checksums for each file on a local disk, which only Hadoop reads
    jvm.org.apache.hadoop.fs.FileSystem.getLocal(session._jsc.hadoopConfiguration()).setWriteChecksum(False)
    return session


def make_active(session: SparkSession) -> None:
    """Make the session the active one of this thread. A thread that Python starts has no active session, and without
    it the JVM does not find the settings of a catalog."""
    jvm: Any = session._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)


def is_gone(session: SparkSession) -> bool:
    """Return whether the session's JVM has ended. Only the first failed call reports that. Later calls fail with a
    refused connection, which can have other causes."""
    jvm: Any = session._jvm
    try:
        jvm.java.lang.System.nanoTime()
    except Exception:  # any error of the connection
        return True
    return False
