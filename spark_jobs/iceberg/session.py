"""Start the Spark session of every job: settings from the platform's configuration, secrets from the environment.

PySpark would start the JVM with all settings of the session as arguments, which any user of the machine can list. Here
only the settings without secrets are arguments; the others are set inside the JVM. The JVM and its workers do not
inherit the Airflow variables that a shell in Airflow's container has (cleantail.home.driver_process). The JVM's
stderr is passed on without the lines of NOISE, which every JVM of Spark prints. Only the owner can open the folders of
an application.

The JVM writes an answer in portions of 8 KiB. Its socket delays a small portion until the previous one is acknowledged
(Nagle's algorithm). Linux acknowledges 40 ms later, because it waits for the next command to do so. Examples of such
long answers are the properties of a table with fifty rounds, or the descriptions of about ten files. So before each
read the socket gets the option TCP_QUICKACK, which lasts until the next command is sent. On a system without this
option, connections stay as Py4J creates them.
"""

from __future__ import annotations

import atexit
import io
import logging
import os
import re
import shutil
import socket
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from cleantail.config.platform import Platform
from cleantail.erasure.erased_keys import ERASURE_KEY
from cleantail.errors import CleantailError, OutsideError, printable
from cleantail.home.driver_process import of_driver
from cleantail.home.home_folder import make_home
from cleantail.lake.jar_list import AGAIN
from cleantail.lake.spark_settings import jars, jars_directory, spark_conf, spark_secrets
from spark_jobs.iceberg.executor_watch import watch_executors


def start_session(platform: Platform, app_name: str, records: int | None = None) -> SparkSession:
    """Return the running session, or start one. Settings of spark-submit win over the platform's. `records`: to read,
    if known (spark_settings.SMALL_RECORDS). Raises CleantailError if the jars are missing."""
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
    folders = private_folders({**settings, "spark.master": master}) if is_new else {}
    settings |= folders
    start_jvm(settings)
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


QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)


def acknowledge_at_once(client: Any) -> None:
    """Make a gateway client's connections acknowledge at once: this thread's present one, and all later ones."""
    if "_create_new_connection" in vars(client):
        return  # done by an earlier call
    create = client._create_new_connection

    def create_acknowledging() -> Any:
        connection = create()
        acknowledge(connection)
        return connection

    client._create_new_connection = create_acknowledging
    if (connection := client.get_thread_connection()) is not None:
        acknowledge(connection)


def acknowledge(connection: Any) -> None:
    """Make one connection acknowledge at once. No answer may be in transit."""
    if QUICK_ACK is not None and not isinstance(connection.stream.raw, _Acknowledging):
        connection.stream = io.BufferedReader(_Acknowledging(connection.stream.detach(), connection.socket))


class _Acknowledging(io.RawIOBase):
    """Reads from a socket, and sets the option before each read."""

    def __init__(self, received: io.RawIOBase, connected: socket.socket) -> None:
        self._received, self._connected = received, connected

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        assert QUICK_ACK is not None
        self._connected.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)
        return self._received.readinto(buffer)

    def close(self) -> None:
        super().close()
        self._received.close()


SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, which has started the JVM and has its settings."""
LOCAL_DIRS = "SPARK_LOCAL_DIRS"
LAST_LINES, LAST_LINES_S, MOST_CHARS = 5, 5.0, 500
"""Limits of the JVM's output in an error about its start: number of lines, seconds to wait for them, characters."""
NOISE = re.compile(
    rb"WARNING: Using incubator modules: "
    rb'|Setting default log level to "'
    rb"|To adjust logging level use sc\.setLogLevel"
    rb'|Setting Spark log level to "'
)


def private_folders(settings: Mapping[str, str]) -> dict[str, str]:
    """Create the folders of an application, for its owner alone (0700), and return the settings that name them.

    They contain shuffled and cached records, broadcasts of keys and the sockets of Python's workers. Spark creates
    such folders with the system's default modes, which let every user of the machine read. Their parent folders are
    those of SPARK_LOCAL_DIRS or `spark.local.dir`, else the system's temporary folder. The created folders are deleted
    when the process ends.

    Executors of a cluster get all settings of their driver. The folder of sockets does not exist on their hosts, so
    on a cluster that setting is left out. Spark then uses the temporary folder of each host.
    """
    parents = os.environ.get(LOCAL_DIRS) or settings.get("spark.local.dir") or tempfile.gettempdir()
    made = []
    for parent in parents.split(","):
        os.makedirs(parent.strip(), exist_ok=True)  # as Spark does
        made.append(tempfile.mkdtemp(prefix="cleantail-spark-", dir=parent.strip()))
    folders = {"spark.local.dir": ",".join(made)}
    if settings.get("spark.master", "local").startswith("local"):
        made.append(tempfile.mkdtemp(prefix="cleantail-spark-"))  # a socket's path has at most 108 bytes
        folders["spark.python.unix.domain.socket.dir"] = made[-1]
    for folder in made:
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if LOCAL_DIRS in os.environ:  # Spark prefers the variable to the setting
        os.environ[LOCAL_DIRS] = folders["spark.local.dir"]
    return folders


def start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM that the next session uses. Does nothing if a JVM is running, or under spark-submit."""
    if SUBMITTED in os.environ or SparkContext._gateway is not None:
        return
    reading, writing = os.pipe()
    last = deque[bytes](maxlen=LAST_LINES)
    reader = threading.Thread(target=_pass_on, args=(reading, last), name="stderr of the JVM", daemon=True)
    reader.start()
    stderr = os.fdopen(writing, "wb")
    try:
        conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        launch: Callable[..., Any] = launch_gateway
        with _environment_of_driver():
            gateway = launch(conf, {"stderr": stderr})
        SparkContext._ensure_initialized(gateway=gateway)
    except PySparkRuntimeError as e:
        if "JAVA_GATEWAY" not in str(e):
            raise
        stderr.close()  # so that the reader ends
        reader.join(LAST_LINES_S)
        raise OutsideError(not_started(list(last))) from None
    finally:
        stderr.close()


def not_started(lines: Sequence[bytes]) -> str:
    """Return why the JVM did not start. `lines`: the last lines that it wrote to stderr."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin") if home else None)
    if java is None:
        where = f"JAVA_HOME is {home}, and has no bin/java" if home else "there is no java on PATH"
        return f"Spark did not start: {where}. Java 17 or newer must be on PATH, or JAVA_HOME set"
    texts = [line.decode(errors="replace").strip() for line in lines if b"spark-class: line" not in line]
    reason = "; ".join(text for text in texts if text)[:MOST_CHARS] or "it wrote nothing to stderr"
    if "UnsupportedClassVersionError" in reason:
        return f"Spark did not start: {java} is too old. Java 17 or newer must be on PATH, or JAVA_HOME set"
    return f"Spark did not start with {java}: {reason}. Check memory and `platform: spark: conf:`"


@contextmanager
def _environment_of_driver() -> Iterator[None]:
    """Remove variables that the JVM must not inherit from the environment while it starts. PySpark passes it a copy of
    the whole environment, and the Python workers of this machine inherit that copy. ERASURE_KEY is removed too, because
    only this process marks keys."""
    passed = of_driver(os.environ).keys() - {ERASURE_KEY}
    withheld = {name: text for name, text in os.environ.items() if name not in passed}
    for name in withheld:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(withheld)


def _pass_on(reading: int, last: deque[bytes]) -> None:
    """Copy the JVM's output line by line to stderr, until the JVM ends, and keep the last lines."""
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if not NOISE.match(line):
                last.append(line)
                os.write(2, printable(line.decode(errors="replace")).encode())
