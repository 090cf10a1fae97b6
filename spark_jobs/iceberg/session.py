"""The Spark session of every job: settings from the platform's configuration, secrets from the environment."""

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
"""The first four PySpark asks the JVM for at every function of a column, three others at every job, one at an error.
One without its package is looked for in every jar, once for each package that it could be in."""
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
"""What `jvm.org.apache…` goes through, name by name: that one is a package is known once no jar has a class of it. By
the last of them PySpark asks of each error of the JVM up to thirteen times what it is an instance of."""


def start_session(platform: Platform, app_name: str, records: int | None = None) -> SparkSession:
    """Return the running session, or starts one. Under spark-submit the settings submitted there win over the
    platform's. `records`: how many it is going to read, where that is known (spark_settings.SMALL_RECORDS). Raises
    CleantailError when the jars are not there."""
    jar_files = platform.spark.jars_of_cluster or jars(platform)
    if not jar_files and SUBMITTED not in os.environ:
        raise CleantailError(f"no Spark jars in {jars_directory(platform)}: {AGAIN}")
    # by the environment alone PySpark knows which Python its workers have
    os.environ.setdefault("PYSPARK_PYTHON", platform.spark.conf.get("spark.pyspark.python", sys.executable))
    if platform.spark.master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else workers elsewhere could not call the driver back
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
    """Begin to start the session, and return how to get it: that waits for it, and raise what start_session raises.

    The JVM makes a session for a second or two, in which Python can import what the work needs. A local master then
    starts its Python workers, whose imports the first task would wait for; not where the work has no such task
    (`workers`). A process that ends waits for neither. PySpark cancels its jobs at Ctrl-C only where the main thread
    starts the session; at a job of spark-submit Ctrl-C ends the JVM too, and with it all of them.
    """
    is_new = SparkContext._active_spark_context is None
    started: Future[SparkSession] = Future()

    def start() -> None:
        try:
            started.set_result(start_session(platform, app_name))
        except BaseException as e:  # whoever waits for the session raises it
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
    """Has a local master start its Python workers. A cluster would look for room for the task."""
    if str(context.master).startswith("local"):
        with suppress(Exception):  # the process ends, or the first task that has work will say the same
            context.parallelize([0], 1).foreach(_nothing)


def _nothing(_: int) -> None:
    """Is what the first task does."""


def make_active(session: SparkSession) -> None:
    """Make the session the active one of this thread. The JVM reads the settings of a catalog that it opens from the
    active session, and a thread that Python starts has none: it would not find the catalog."""
    jvm: Any = session._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)


def is_gone(session: SparkSession) -> bool:
    """Return whether the session's JVM has ended. The call that met its end says so; each later one is only refused,
    as any other connection may be."""
    jvm: Any = session._jvm
    try:
        jvm.java.lang.System.nanoTime()
    except Exception:  # whatever the connection to it raises
        return True
    return False


def _keep_classes(session: SparkSession) -> None:
    """Looks classes and packages up once: a view of the JVM, or of a package, asks only for what it has not got."""
    for name in CLASSES:
        _kept(session._jvm, name)
    for path in PATHS:
        reduce(_kept, path.split("."), session._jvm)


def _kept(view: Any, name: str) -> Any:
    if name not in vars(view):
        setattr(view, name, getattr(view, name))
    return vars(view)[name]
