"""Adopt an existing table: one commit sets its mark, its columns and, if requested, format version 3.

`cleantail adopt` calls this module after it has inspected the table (cleantail.adopt.adoption). No DAG does. The commit
reads and writes no record. A table that is already adopted stays unchanged.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from cleantail.adopt.adoption import version_after
from cleantail.codec import FORMAT
from cleantail.config.topic import Topic
from cleantail.config.topic_table import PROPERTY_FORMAT, PROPERTY_TOPIC, RETRIES, require_known_format
from cleantail.errors import CleantailError, TableError
from cleantail.lake.records.topic_columns import PROPERTY_COLUMNS, property_of_columns
from spark_jobs.iceberg.commits import Load, java_message, send
from spark_jobs.iceberg.iceberg_reads import iceberg_table
from spark_jobs.iceberg.java_calls import texts
from spark_jobs.iceberg.log_files import format_version


def adopt_table(spark: SparkSession, topic: Topic, upgrade: bool) -> bool:
    """Commit the missing properties, and return whether any was missing. Raises ConflictError if another commit came
    first in every attempt."""
    name = ".".join(f"`{part}`" for part in (topic.platform.catalog.name, *topic.table.split(".")))
    try:
        return _commit(lambda: iceberg_table(spark, name), topic, upgrade)
    except Py4JJavaError as e:
        raise TableError(f"table {topic.table}: {java_message(e)}") from None


def _commit(load: Load, topic: Topic, upgrade: bool) -> bool:
    if topic.columns is None:
        raise CleantailError(f"topic {topic.topic} has no columns: `cleantail adopt {topic.table}` writes them")
    table = load()
    version = format_version(table)
    new_version = version_after(version, upgrade)
    properties = {
        PROPERTY_TOPIC: topic.topic,
        PROPERTY_FORMAT: str(FORMAT),
        PROPERTY_COLUMNS: property_of_columns(topic.columns),
    }
    properties |= {"format-version": str(new_version)} if version < new_version else {}
    present = texts(table.properties())
    require_known_format(topic.table, present)
    properties |= {name: value for name, value in RETRIES.items() if name not in present}
    snapshot = table.currentSnapshot()
    # An empty commit of format version 3 assigns row ids to the table's records.
    lacks_ids = not topic.columns.has_offsets and snapshot is not None and snapshot.firstRowId() is None
    if all(present.get(key) == value for key, value in properties.items()) and not lacks_ids:
        return False

    def stage(_: Any, transaction: Any) -> None:
        update = transaction.updateProperties()
        for key, value in properties.items():
            update.set(key, value)
        update.commit()
        if lacks_ids:
            transaction.newFastAppend().commit()

    send(load, stage)
    return True
