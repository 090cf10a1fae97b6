"""Adapter: the position of a topic's table in Kafka, through PyIceberg, and whether there is anything to read.

A property of Cleantail's own namespace stores when the brokers were last queried and had nothing new. Such a query does
not change the table, so the position does not contain its time. The property is valid for one position, by its
`read_id`, until the position moves.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from cleantail.codec import Codec
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, TableError
from cleantail.kafka.read_plan import BrokerTopic, ReadPlan, plan_read
from cleantail.kafka.source_topic import Brokers
from cleantail.lake.catalogs import kept_catalog, load_table, open_catalog
from cleantail.lake.own_namespace import namespace_properties, property_name, write_properties
from cleantail.lake.records.latest_state import log_ends
from cleantail.lake.table_metadata import properties_that_count
from cleantail.log.source_position import PROPERTY_POSITION, SourcePosition, position_of

logger = logging.getLogger("cleantail.kafka")

PROPERTY_CAUGHT_UP = "cleantail.looked."
"""Prefix of the property's name. A hash of the topic follows."""


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """When (Unix ms) a table at this position had all that its topic had."""

    topic: str
    read_id: str
    at_ms: int


CAUGHT_UP_JSON: Codec[CaughtUp] = Codec(CaughtUp)


def write_caught_up(topic: Topic, position: SourcePosition, at_ms: int) -> None:
    """Store the time of this query in place of the last one.

    Errors are only logged: at worst, a needless reconciliation is requested.
    """
    caught_up = CaughtUp(topic.topic, position.read_id, at_ms)
    name = property_name(PROPERTY_CAUGHT_UP, topic.topic)
    try:
        write_properties(
            open_catalog(topic.platform), topic.own_namespace, {name: CAUGHT_UP_JSON.text(caught_up)}, set()
        )
    except Exception as e:  # catalog drivers raise any type
        logger.warning("the time of the last query for %s was not stored: %s", topic.topic, type(e).__name__)


def last_caught_up_ms(topic: Topic, position: SourcePosition | None) -> int:
    """Return when (Unix ms) the table, at its current position, last had all of its topic; 0 if unknown."""
    if position is None:
        return 0
    properties = namespace_properties(open_catalog(topic.platform), topic.own_namespace)
    return caught_up_in(properties, topic, position)


def caught_up_in(properties: Mapping[str, str], topic: Topic, position: SourcePosition | None) -> int:
    """Return last_caught_up_ms from the properties of the topic's own namespace."""
    name = property_name(PROPERTY_CAUGHT_UP, topic.topic)
    if position is None or name not in properties:
        return 0
    try:
        caught_up = CAUGHT_UP_JSON.value(properties[name], f"namespace property {name}")
    except TableError as e:
        logger.warning("%s; it is ignored", e)
        return 0
    return caught_up.at_ms if (caught_up.topic, caught_up.read_id) == (topic.topic, position.read_id) else 0


@dataclass(frozen=True, slots=True)
class TablePosition:
    """The position of a table at one moment.

    `text` is the stored property, None if the table lacks it. `ends` are the table's log ends at `snapshot_id`, if
    nothing was read from Kafka yet.
    """

    text: str | None
    position: SourcePosition | None
    ends: Mapping[int, int]
    snapshot_id: int | None = None

    @property
    def next_offsets(self) -> Mapping[int, int]:
        """Return partition -> the offset at which the next read begins, without partitions that were never read."""
        return self.position.next_offsets if self.position is not None else self.ends

    def plan(self, topic: Topic, broker: BrokerTopic, now_ms: int) -> ReadPlan:
        """Plan the next read. Raises as plan_read does."""
        on_gap = topic.source.kafka.on_gap if topic.source.kafka else "fail"
        return plan_read(self.position, self.ends, broker, topic.source.isolation, on_gap, now_ms)


def table_position(topic: Topic) -> TablePosition:
    """Return the table's position. A table that does not exist yet is at the beginning. Raises TableError."""
    table = load_table(kept_catalog(topic.platform), topic)
    if table is None:
        return TablePosition(None, None, {})
    properties = properties_that_count(table)
    position = position_of(properties, topic.table)
    ends = {} if position is not None else log_ends(table)
    snapshot_id = table.metadata.current_snapshot_id
    return TablePosition(properties.get(PROPERTY_POSITION), position, ends, snapshot_id)


def position_after_files(topic: Topic) -> TablePosition:
    """Return the table's position, including the records of files since the last read from Kafka.

    If the topic's source is files, no record of them is read again. Raises TableError.
    """
    at = table_position(topic)
    table = load_table(kept_catalog(topic.platform), topic)
    if at.position is None or topic.source.kafka is not None or table is None:
        return at
    known = at.position.next_offsets
    ends = {p: max(end, known.get(p, 0)) for p, end in log_ends(table).items()}
    return replace(at, position=replace(at.position, next_offsets={**known, **ends}))


def unread_offsets(topic: Topic, settings: Mapping[str, str], now_ms: int) -> int | None:
    """Return how many offsets the next read passes, or None if the table has all that may be read.

    If None, stores the time of this query. Raises CleantailError for everything that prevents a read, before Spark is
    started.
    """
    require_own_table(topic)
    broker = Brokers(settings, topic.stall_timeout_ms).describe(topic.kafka_topic)
    at = table_position(topic)
    plan = at.plan(topic, broker, now_ms)
    if at.position is None or plan.offsets or plan.gaps:
        return plan.offsets
    write_caught_up(topic, at.position, now_ms)
    return None


def require_own_table(topic: Topic) -> None:
    """Raise CleantailError if another writer fills the topic's table."""
    if topic.columns is not None:
        raise CleantailError(f"topic {topic.topic} has an adopted table, which its sink fills: nothing was appended")
