"""Start the JVM of a session quietly, without secrets in its arguments, and with folders that only its owner can open.

PySpark would start the JVM with all settings of the session as arguments, which any user of the machine can list. Here
only the settings without secrets are arguments; the others are set inside the JVM. The JVM and its workers do not
inherit the Airflow variables that a shell in Airflow's container has (cleantail.home.driver_process). The JVM's
stderr is passed on without the lines of NOISE, which every JVM of Spark prints.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from cleantail.erasure.erased_keys import ERASURE_KEY
from cleantail.errors import OutsideError, printable
from cleantail.home.driver_process import of_driver

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


def start(settings: Mapping[str, str]) -> None:
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
