"""The tables beside a topic's own: versions of deleted keys, records without a key, and those that it cannot hold.

Rows leave them by DELETE, which leaves the bytes in older snapshots, as it does in a topic table: `reclaim` lets those
go.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.config.topic_table import KEYLESS_SUFFIX, LEDGER_SUFFIX, PROPERTY_SIDE_OF, UNHOLDABLE_SUFFIX
from cleantail.lake.catalogs import load_any, open_catalog

if TYPE_CHECKING:
    from pyiceberg.table import Table

SUFFIXES = (LEDGER_SUFFIX, KEYLESS_SUFFIX, UNHOLDABLE_SUFFIX)


def side_tables(topic: Topic, platform: Platform) -> dict[str, Table]:
    """Returns suffix -> the topic's side table, of those that there are; one of the name that is not the topic's is
    none."""
    catalog, tables = open_catalog(platform, os.environ), {}
    for suffix in SUFFIXES:
        table = load_any(catalog, f"{topic.table}{suffix}", platform)
        if table is not None and table.properties.get(PROPERTY_SIDE_OF) == topic.topic:
            tables[suffix] = table
    return tables


def side_due(topic: Topic, platform: Platform, now_ms: int) -> bool:
    """Returns whether a side table has snapshots past cleantail.snapshot.retention.ms that no reader sees."""
    oldest_kept_ms = now_ms - topic.config.cleantail_snapshot_retention_ms
    return any(
        snapshot.timestamp_ms < oldest_kept_ms and snapshot != table.current_snapshot()
        for table in side_tables(topic, platform).values()
        for snapshot in table.snapshots()
    )
