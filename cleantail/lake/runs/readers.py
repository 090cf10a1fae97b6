"""Adapter: the positions of readers, which are properties of the namespace of their topic's table.

Any client of the catalog writes one quickly, without a commit to the table itself.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cleantail.config.topic import Topic
from cleantail.errors import TableError
from cleantail.log.reader_positions import Reader, namespace_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

logger = logging.getLogger("cleantail.readers")

PROPERTY_READER = "cleantail.reader."
"""+ a hash of topic, name and partition: catalogs bound the length of a property's name."""


def remove(catalog: Catalog, topic: Topic, name: str, partition: int | None = None) -> list[Reader]:
    """Forgets a reader, in one log or in all; returns the positions that it had."""
    found = [r for r in registered(catalog, topic) if r.name == name and partition in (None, r.partition)]
    if found:
        catalog.update_namespace_properties(namespace_of(topic), removals={property_of(r) for r in found})
    return found


def registered(catalog: Catalog, topic: Topic) -> tuple[Reader, ...]:
    """The topic's readers by partition and name. Raises TableError for a property of this topic that is not a position;
    one that says no topic, or another's, is passed over with a warning."""
    readers, broken = registered_in(catalog, namespace_of(topic))
    if topic.topic in broken:
        raise TableError(broken[topic.topic])
    for problem in broken.values():
        logger.warning("%s; it is passed over", problem)
    return readers.get(topic.topic, ())


def registered_in(catalog: Catalog, namespace: str) -> tuple[dict[str, tuple[Reader, ...]], dict[str, str]]:
    """Topic -> its readers by partition and name, of every topic of the namespace that has any, in one call to the
    catalog; and topic -> what is wrong with a property of it that is not a position. One that names no topic is passed
    over with a warning."""
    from pyiceberg.exceptions import NoSuchNamespaceError

    try:
        properties = catalog.load_namespace_properties(namespace)
    except NoSuchNamespaceError:
        return {}, {}
    positions: dict[str, list[Reader]] = {}
    broken: dict[str, str] = {}
    for name, text in sorted(properties.items()):
        if not name.startswith(PROPERTY_READER):
            continue
        document = _document(text)
        if _is_reader(document):
            positions.setdefault(document["topic"], []).append(Reader(**document))
        elif isinstance(document.get("topic"), str):
            broken[document["topic"]] = f"namespace property {name} is not a reader's position: {text[:200]!r}"
        else:
            logger.warning("namespace property %s is not a reader's position, and is passed over", name)
    in_order = {topic: sorted(readers, key=lambda r: (r.partition, r.name)) for topic, readers in positions.items()}
    return {topic: tuple(readers) for topic, readers in in_order.items()}, broken


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _is_reader(document: Mapping[str, Any]) -> bool:
    """Whether there is all of a Reader and nothing else, each of its type. A bool is no number."""
    numbers, texts = ("partition", "offset", "at_ms"), ("topic", "name")
    return (
        document.keys() == {*numbers, *texts}
        and all(type(document[key]) is int and document[key] >= 0 for key in numbers)
        and all(type(document[key]) is str for key in texts)
    )


def property_of(reader: Reader) -> str:
    identity = json.dumps([reader.topic, reader.name, reader.partition])
    return PROPERTY_READER + hashlib.sha256(identity.encode()).hexdigest()[:32]
