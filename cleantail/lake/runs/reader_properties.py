"""Adapter: the positions of readers, which are properties of Cleantail's own namespace."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cleantail.codec import Codec
from cleantail.config.topic import Topic
from cleantail.errors import TableError
from cleantail.lake.namespaces import namespace_properties, property_name, topic_of_value, write_properties
from cleantail.log.horizons import Reader

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

logger = logging.getLogger("cleantail.readers")

PROPERTY_READER = "cleantail.reader."
"""So begins the name of a property that keeps a position; a hash of topic, name and partition follows."""
READER_JSON: Codec[Reader] = Codec(Reader)


def remove(catalog: Catalog, topic: Topic, name: str, partition: int | None = None) -> list[Reader]:
    """Forgets a reader, in one log or in all; returns the positions that it had."""
    removed = [r for r in registered(catalog, topic) if r.name == name and partition in (None, r.partition)]
    if removed:
        write_properties(catalog, topic.own_namespace, {}, {property_of(r) for r in removed})
    return removed


def registered(catalog: Catalog, topic: Topic) -> tuple[Reader, ...]:
    """Returns the topic's readers by partition and name. Raises TableError as readers_of does."""
    return readers_of(topic, namespace_properties(catalog, topic.own_namespace))


def readers_of(topic: Topic, properties: Mapping[str, str]) -> tuple[Reader, ...]:
    """Returns the topic's readers by partition and name, from its namespace's properties. Raises TableError for a
    property of this topic that is not a position; one that says no topic, or another's, is passed over with a
    warning."""
    readers, broken = readers_in(properties)
    if topic.topic in broken:
        raise TableError(broken[topic.topic])
    for problem in broken.values():
        logger.warning("%s; it is passed over", problem)
    return readers.get(topic.topic, ())


def readers_in(properties: Mapping[str, str]) -> tuple[dict[str, tuple[Reader, ...]], dict[str, str]]:
    """Returns topic -> its readers by partition and name, of every topic of a namespace that has any; and topic -> what
    is wrong with a property of it that is not a position. One that names no topic is passed over with a warning."""
    positions: dict[str, list[Reader]] = {}
    broken: dict[str, str] = {}
    for name, text in sorted(properties.items()):
        if not name.startswith(PROPERTY_READER):
            continue
        where = f"namespace property {name}"
        try:
            reader = _position(text, where)
            positions.setdefault(reader.topic, []).append(reader)
        except TableError as e:
            if (topic := topic_of_value(text)) is not None:
                broken[topic] = str(e)
            else:
                logger.warning("%s is not a reader's position, and is passed over", where)
    in_order = {topic: sorted(readers, key=lambda r: (r.partition, r.name)) for topic, readers in positions.items()}
    return {topic: tuple(readers) for topic, readers in in_order.items()}, broken


def _position(text: str, where: str) -> Reader:
    """Parses a position. Raises TableError, naming `where`, for what is none."""
    try:
        reader = READER_JSON.value(text, where)
    except TableError as e:
        raise TableError(f"{where} is not a reader's position: {e}") from None
    if min(reader.partition, reader.offset, reader.at_ms) < 0:
        raise TableError(f"{where} is not a reader's position: a number of it is below 0")
    return reader


def property_of(reader: Reader) -> str:
    """Returns the name of the property that keeps the reader's position."""
    return property_name(PROPERTY_READER, reader.topic, reader.name, reader.partition)
