"""Starts the JVM of a session: without the lines that every JVM of Spark prints, and without secrets in its arguments.

PySpark would start it by itself, with all settings of the session as arguments, which any user of the machine can list.
Here those that are no secret go there; the rest is set inside. Nor does it get, or the workers that it starts, what a
shell in Airflow's container has of Airflow's (cleantail.home.driver_environment). What the JVM writes to stderr is
passed on but for the lines of NOISE, which say nothing about this run.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from cleantail.home.driver_environment import of_driver

SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, which has started the JVM and knows its settings."""
NOISE = re.compile(
    rb"WARNING: Using incubator modules: "
    rb'|Setting default log level to "'
    rb"|To adjust logging level use sc\.setLogLevel"
    rb'|Setting Spark log level to "'
)


def start(settings: Mapping[str, str]) -> None:
    """Starts the JVM that the next session will find. Does nothing where there is one, or under spark-submit."""
    if SUBMITTED in os.environ or SparkContext._gateway is not None:
        return
    reading, writing = os.pipe()
    threading.Thread(target=_pass_on, args=(reading,), name="stderr of the JVM", daemon=True).start()
    try:
        conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        launch: Callable[..., Any] = launch_gateway
        with _environment_of_driver():
            gateway = launch(conf, {"stderr": writing})
        SparkContext._ensure_initialized(gateway=gateway)
    finally:
        os.close(writing)


@contextmanager
def _environment_of_driver() -> Iterator[None]:
    """Takes away, while the JVM starts, what is not to be in its environment: PySpark gives it a copy of the whole
    one."""
    withheld = {name: os.environ[name] for name in os.environ.keys() - of_driver(os.environ).keys()}
    for name in withheld:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(withheld)


def _pass_on(reading: int) -> None:
    """Writes line by line to stderr, until the JVM ends."""
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if not NOISE.match(line):
                os.write(2, line)
