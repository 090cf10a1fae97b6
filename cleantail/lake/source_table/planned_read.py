"""Adapter: how far a topic has come in its source table, and what the next read would bring.

A topic goes on from another source only where positions make that safe: a read of a table begins in a topic's table
that has nothing yet, or goes on from its own position. A read of Kafka may go on behind one of a table, as it may
behind files.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import SourceError
from cleantail.lake.catalogs import kept_catalog, load_table
from cleantail.lake.records.log_bounds import log_ends
from cleantail.lake.source_table.source_snapshots import described_source, table_source_of
from cleantail.lake.table_metadata import properties_that_count
from cleantail.log.snapshot_plan import PORTION_BYTES, SnapshotPlan, SourceTable, plan_snapshots
from cleantail.log.source_position import (
    PROPERTY_SNAPSHOT_POSITION,
    SnapshotPosition,
    position_of,
    snapshot_position_of,
)

if TYPE_CHECKING:
    from pyiceberg.table import Table

_ANOTHER_TABLE = (
    "Give the topic another table in its YAML (table: …) to read the source from its start; the table of before stays "
    "as it is; nothing was appended"
)


@dataclass(frozen=True, slots=True)
class OwnPosition:
    """Describes one moment of the topic's own table. `text` is the position as it stands, None where there is none."""

    text: str | None = None
    position: SnapshotPosition | None = None
    snapshot_id: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """Says what a read would bring now, None where nothing is new, with what it was planned on."""

    at: OwnPosition
    source: SourceTable
    plan: SnapshotPlan | None


def planned_read(topic: Topic, platform: Platform, now_ms: int) -> PlannedRead:
    """Looks at both tables. Raises SourceError, TableError and OutsideError for everything that forbids to read."""
    table = load_table(kept_catalog(platform, os.environ), topic, platform)
    at = _own_position(topic, table)
    source = described_source(topic, platform)
    plan = plan_snapshots(at.position, source, table_source_of(topic).on_change, now_ms, PORTION_BYTES)
    if plan is not None and table is not None:
        _require_nothing_of_others(topic, table, at.position)
    return PlannedRead(at, source, plan)


def is_table_read(topic: Topic, platform: Platform, now_ms: int) -> bool:
    """Returns whether the topic has all that its source table has. Raises as planned_read does."""
    return planned_read(topic, platform, now_ms).plan is None


def own_position(topic: Topic, platform: Platform) -> OwnPosition:
    """Returns where the topic's table is. Raises SourceError for one that was read from Kafka."""
    return _own_position(topic, load_table(kept_catalog(platform, os.environ), topic, platform))


def _own_position(topic: Topic, table: Table | None) -> OwnPosition:
    if table is None:
        return OwnPosition()
    properties = properties_that_count(table)
    if kafka := position_of(properties, topic.table):
        raise SourceError(
            f"table {topic.table} of topic {topic.topic} was read from {kafka.topic} in Kafka, and what of the source "
            f"table came from there nobody knows. {_ANOTHER_TABLE}"
        )
    text = properties.get(PROPERTY_SNAPSHOT_POSITION)
    position = snapshot_position_of(properties, topic.table)
    return OwnPosition(text, position, table.metadata.current_snapshot_id)


def _require_nothing_of_others(topic: Topic, table: Table, position: SnapshotPosition | None) -> None:
    """Raises SourceError where files have brought what is still to come from the source: it may have been cleaned
    since, and would come a second time."""
    known = position.next_offsets if position else {}
    beyond = {p: end for p, end in sorted(log_ends(table).items()) if end > known.get(p, 0)}
    if beyond:
        partition, end = next(iter(beyond.items()))
        raise SourceError(
            f"table {topic.table} of topic {topic.topic} has records up to offset {end - 1} of partition {partition} "
            f"that did not come from its source table, which was read up to {known.get(partition, 0)}. {_ANOTHER_TABLE}"
        )
