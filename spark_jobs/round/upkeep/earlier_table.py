"""A topic's own table that an earlier version has made gets what newer ones have: PyIceberg writes no version 3."""

from __future__ import annotations

from collections.abc import Mapping

from cleantail.config.topic_table import TOMBSTONE
from cleantail.retries import COMMITS
from spark_jobs.iceberg.tables import TopicTable


def upgrade_table(table: TopicTable, tombstone: bool, properties: Mapping[str, str]) -> None:
    """Adds the column `tombstone`, where that is asked for, and sets properties. Records and snapshots stay as they
    are, and so do the branches of rounds that wait."""
    if tombstone and table.load().schema().findField(TOMBSTONE) is None:
        table.spark.sql(f"ALTER TABLE {table.name} ADD COLUMN `{TOMBSTONE}` boolean")
    if properties:
        COMMITS.run(lambda: table.set_properties(properties))
