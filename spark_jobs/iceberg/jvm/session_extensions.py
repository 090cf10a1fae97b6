"""Makes the JVM's session with the extensions that its settings name, and with no others.

Spark's own way also loads those that its jars offer. With MLlib among the jars these are two functions for vectors,
which nobody calls here, and to describe their types Scala's reflection starts, while everything waits for the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext

EXTENSIONS = "spark.sql.extensions"


def make_default_session(settings: Mapping[str, str]) -> None:
    """Start the context with these settings beside Spark's own, and make the session that PySpark then finds in the
    JVM; its settings are those of the context. Where this Spark's session is made in another way, PySpark makes it as
    ever."""
    context = SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
    try:
        _make(context)
    except (Py4JError, TypeError):  # no such class, or no such constructor
        return


def _make(context: SparkContext) -> None:
    jvm: Any = context._jvm
    extensions = jvm.org.apache.spark.sql.SparkSessionExtensions()
    for name in context.getConf().get(EXTENSIONS, "").split(","):
        if name.strip():
            reduce(getattr, name.strip().split("."), jvm)().apply(extensions)
    nothing, no_settings = jvm.scala.Option.empty(), jvm.PythonUtils.toScalaMap(jvm.java.util.HashMap())
    of_session = jvm.org.apache.spark.sql.classic.SparkSession
    session = of_session(context._jsc.sc(), nothing, nothing, extensions, no_settings, no_settings)
    of_session.setDefaultSession(session)
