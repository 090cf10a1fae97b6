"""A source table in the running session: its catalog is told to Spark when it is needed, and not before.

So its login is in the settings of a driver that reads from it, and neither on a command line nor in any other driver.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from cleantail.config.platform import Platform
from cleantail.config.topic_source import TableSource
from cleantail.errors import OutsideError, SourceError
from cleantail.lake import client_properties
from spark_jobs.iceberg.commits import java_message
from spark_jobs.iceberg.iceberg_reads import iceberg_table

REDACTION, HIDDEN = "spark.sql.redaction.options.regex", "(?i)url|spark[.]sql[.]catalog[.]"
"""Which settings of a session Spark shows no value of: it would show those that are set while it runs with each query,
on its pages and in its event log."""


@dataclass(frozen=True, slots=True)
class SessionTable:
    """Is a source table in the session; `name` is quoted, `shown` is for people."""

    spark: SparkSession
    name: str
    shown: str

    @classmethod
    def of(cls, spark: SparkSession, source: TableSource, platform: Platform) -> SessionTable:
        """Tells Spark the source's catalog, unless it is the platform's own, which it knows."""
        if source.catalog is not None:
            _register(spark, platform.reading(source.catalog))
        catalog = source.catalog or platform.catalog.name
        name = ".".join(f"`{part}`" for part in (catalog, *source.name.split(".")))
        return cls(spark, name, source.named_in(platform.catalog.name))

    def load(self, uuid: str) -> Any:
        """Returns the Iceberg `Table`. Raises SourceError where it is not the one of this uuid, and OutsideError where
        Spark cannot have it."""
        try:
            table = iceberg_table(self.spark, self.name)
        except Py4JJavaError as e:
            raise OutsideError(f"{self.shown} cannot be loaded: {java_message(e)}; nothing was appended") from None
        if str(table.uuid()) != uuid:
            raise SourceError(f"{self.shown} was recreated while it was looked at; nothing was appended")
        return table


def _register(spark: SparkSession, reading: Platform) -> None:
    prefix = f"spark.sql.catalog.{reading.catalog.name}"
    properties = client_properties.spark_catalog(reading) | client_properties.spark_secrets(reading, os.environ)
    spark.conf.set(REDACTION, HIDDEN)
    spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
    for key, value in properties.items():
        spark.conf.set(f"{prefix}.{key}", value)
