"""Adapter: what a topic's table says of its source, through PyIceberg, without Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from cleantail.catalogs import load_table, open_catalog
from cleantail.config import Platform, Topic
from cleantail.kafka.positions import PROPERTY_POSITION, SourcePosition, position_of
from cleantail.kafka.read_plan import BrokerTopic, ReadPlan, plan_read
from cleantail.table_metadata import log_ends


@dataclass(frozen=True, slots=True)
class TablePosition:
    """One moment of a table. `text`: the property as it is, None where there is none; `ends`: its log ends, where
    nothing was read from Kafka yet."""

    text: str | None
    position: SourcePosition | None
    ends: Mapping[int, int]

    def plan(self, topic: Topic, broker: BrokerTopic, now_ms: int) -> ReadPlan:
        """What the next read is to do. Raises as plan_read does."""
        on_gap = topic.source.kafka.on_gap if topic.source.kafka else "fail"
        return plan_read(self.position, self.ends, broker, topic.source.isolation, on_gap, now_ms)


def table_position(topic: Topic, platform: Platform) -> TablePosition:
    """Where the table is; that of a table which is not there yet is the beginning. Raises TableError."""
    table = load_table(open_catalog(platform, os.environ), topic, platform)
    if table is None:
        return TablePosition(None, None, {})
    position = position_of(table.properties, topic.table)
    ends = {} if position is not None else log_ends(table)
    return TablePosition(table.properties.get(PROPERTY_POSITION), position, ends)
