"""Start the Spark session of every job: settings from the platform's configuration, secrets from the environment."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import reduce
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from cleantail.config.platform import Platform
from cleantail.errors import CleantailError
from cleantail.home.home_folder import make_home
from cleantail.lake.catalog_settings import jars, jars_directory, spark_conf, spark_secrets
from cleantail.lake.jar_list import AGAIN
from spark_jobs.iceberg.executor_watch import watch_executors
from spark_jobs.iceberg.jvm import quiet_jvm
from spark_jobs.iceberg.jvm.local_files import write_no_checksums
from spark_jobs.iceberg.jvm.quick_answers import acknowledge_at_once
from spark_jobs.iceberg.jvm.quiet_jvm import SUBMITTED
from spark_jobs.iceberg.jvm.session_extensions import make_default_session

CLASSES = (
    "functions",
    "PythonUtils",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.iceberg.spark.Spark3Util",
    "org.apache.iceberg.util.ByteBuffers",
    "PythonRDD",
    "SimplePythonFunction",
    "PythonErrorUtils",
    "org.apache.spark.sql.classic.SparkSession$",
    "org.apache.iceberg.ContentFileParser",
    "org.apache.iceberg.PartitionSpecParser",
    "org.apache.iceberg.ScanTaskParser",
    "org.apache.iceberg.SchemaParser",
    "org.apache.iceberg.parquet.ParquetUtil",
)
"""Classes that are looked up once. PySpark queries the JVM for the first four at each function of a column. It
queries three others at each job, and one at an error. If a class has no package, the JVM searches every jar for it,
once for each package that it could be in."""
PATHS = (
    "org.apache.iceberg.util",
    "org.apache.iceberg.io.OutputFileFactory",
    "org.apache.iceberg.puffin",
    "org.apache.iceberg.DataFiles",
    "org.apache.iceberg.FileFormat",
    "org.apache.iceberg.MetricsConfig",
    "org.apache.iceberg.PartitionData",
    "org.apache.iceberg.ScanTaskParser",
    "org.apache.iceberg.expressions.Expressions",
    "org.apache.hadoop.fs.FileSystem",
    "java.util.ArrayList",
    "java.util.Arrays",
    "java.util.stream.Collectors",
    "java.nio",
    "py4j.reflection.TypeUtil",
)
"""Paths that are looked up once. `jvm.org.apache…` resolves each name in turn, and a name is a package only if no jar
has a class of that name. PySpark uses the last path up to thirteen times for each error of the JVM."""


def start_session(platform: Platform, app_name: str, records: int | None = None) -> SparkSession:
    """Return the running session, or start one. Settings of spark-submit win over the platform's.

    `records`: the number of records that it will read, if known (spark_settings.SMALL_RECORDS). Raises CleantailError
    if the jars are missing.
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
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):  # they quote values of records
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
    if is_new:
        make_default_session(own)
    session = SparkSession.builder.config(map=dict(own)).getOrCreate()
    if is_new:
        watch_executors(session, platform.cleaner.cleantail_executors_lost_ms)
    session.sparkContext.setLogLevel("ERROR")
    jvm: Any = session._jvm
    acknowledge_at_once(jvm._gateway_client)
    _keep_classes(session)
    write_no_checksums(session)
    return session


def begin_session(platform: Platform, app_name: str, workers: bool = True) -> Callable[[], SparkSession]:
    """Start the session in a thread, and return a function that waits for it and raises what start_session raises.

    Meanwhile, for a second or two, Python can import modules. A local master then starts its Python workers, so that
    the first task does not wait for their imports (`workers`: the work has such tasks). A process that ends waits
    for neither.

    PySpark cancels its jobs at Ctrl-C only if the main thread starts the session. Under spark-submit, Ctrl-C ends
    the JVM and all of its jobs.
    """
    is_new = SparkContext._active_spark_context is None
    started: Future[SparkSession] = Future()

    def start() -> None:
        try:
            started.set_result(start_session(platform, app_name))
        except BaseException as e:  # the thread that waits for the session raises it
            started.set_exception(e)
            return
        if is_new and workers:
            _start_workers(started.result().sparkContext)

    threading.Thread(target=start, name="session", daemon=True).start()

    def session() -> SparkSession:
        make_active(started.result())
        return started.result()

    return session


def _start_workers(context: SparkContext) -> None:
    """Start the Python workers of a local master. On a cluster the task would wait for free cores."""
    if str(context.master).startswith("local"):
        with suppress(Exception):  # the process is ending, or the first task with work raises the same error
            context.parallelize([0], 1).foreach(_nothing)


def _nothing(_: int) -> None:
    pass


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


def _keep_classes(session: SparkSession) -> None:
    """Look up classes and packages once. A view of the JVM, or of a package, caches its attributes."""
    for name in CLASSES:
        _kept(session._jvm, name)
    for path in PATHS:
        reduce(_kept, path.split("."), session._jvm)


def _kept(view: Any, name: str) -> Any:
    if name not in vars(view):
        setattr(view, name, getattr(view, name))
    return vars(view)[name]
