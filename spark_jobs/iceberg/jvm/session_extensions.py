"""Create the JVM's session with only the extensions that its settings name.

Spark itself also loads the extensions of its jars. MLlib's are two functions for vectors, which Cleantail does not
use. To describe their types, Spark starts Scala's reflection, which delays the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext

EXTENSIONS = "spark.sql.extensions"


def make_default_session(settings: Mapping[str, str]) -> None:
    """Start the context with these settings in addition to Spark's own, and create the session that PySpark then finds
    in the JVM.

    If this version of Spark creates sessions in another way, PySpark creates the session as usual.
    """
    context = SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
    try:
        _make(context)
    except (Py4JError, TypeError):  # the class or the constructor does not exist
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
