"""Adapter: when the brokers of a topic were last asked and had nothing new, a property of Cleantail's own namespace.

Such a look commits nothing to the table, so the position does not know of it. A look is of one position, by its
`read_id`: once that has moved, on or back, the look says nothing any more.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass

from cleantail.codec import Codec
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import TableError
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.own_namespace import namespace_properties, property_name, write_properties
from cleantail.log.source_position import SourcePosition

logger = logging.getLogger("cleantail.kafka")

PROPERTY_LOOKED = "cleantail.looked."
"""So begins the name of a property that keeps a look; a hash of the topic follows."""


@dataclass(frozen=True, slots=True)
class Look:
    """Says when (Unix ms) a table at this position had all that its topic had."""

    topic: str
    read_id: str
    at_ms: int


LOOK_JSON: Codec[Look] = Codec(Look)


def write_look(topic: Topic, platform: Platform, position: SourcePosition, at_ms: int) -> None:
    """Keeps the look in the place of the topic's last one. Nothing that goes wrong here makes a read fail: without it a
    reconciliation may be asked for that is not needed."""
    look = Look(topic.topic, position.read_id, at_ms)
    name = property_name(PROPERTY_LOOKED, topic.topic)
    try:
        write_properties(open_catalog(platform, os.environ), topic.own_namespace, {name: LOOK_JSON.text(look)}, set())
    except Exception as e:  # whatever the catalog's driver raises
        logger.warning("when %s was last asked for is not kept: %s", topic.topic, type(e).__name__)


def last_look_ms(topic: Topic, platform: Platform, position: SourcePosition | None) -> int:
    """Returns when (Unix ms) the table, at the position that it has now, last had all of its topic; 0 where nobody
    knows."""
    if position is None:
        return 0
    properties = namespace_properties(open_catalog(platform, os.environ), topic.own_namespace)
    name = property_name(PROPERTY_LOOKED, topic.topic)
    if name not in properties:
        return 0
    try:
        look = LOOK_JSON.value(properties[name], f"namespace property {name}")
    except TableError as e:
        logger.warning("%s; it is passed over", e)
        return 0
    return look.at_ms if (look.topic, look.read_id) == (topic.topic, position.read_id) else 0
