"""Adapter: the properties of Cleantail's own namespace, which store readers' positions, releases and answers.

Any client of the catalog can write a property quickly, without a commit to the table. Catalogs limit the length of a
property's name, and usually of its value. So a name ends in a hash, and the value contains its subject.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleantail.codec import Codec, digest_of
from cleantail.config.topic import Topic
from cleantail.errors import TableError
from cleantail.log.horizons import Reader
from cleantail.retries import settled
from cleantail.rounds.approval import ANSWER_JSON, Answer

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


@dataclass(frozen=True, slots=True)
class _Owned:
    """The fields that all these values share."""

    topic: str


_OWNER_JSON: Codec[_Owned] = Codec(_Owned)


def namespace_properties(catalog: Catalog, namespace: str) -> dict[str, str]:
    """Read the properties in one call. Empty if the namespace does not exist."""
    from pyiceberg.exceptions import NoSuchNamespaceError

    try:
        return dict(catalog.load_namespace_properties(namespace))
    except NoSuchNamespaceError:
        return {}


def write_properties(catalog: Catalog, namespace: str, updates: Mapping[str, str], removals: set[str]) -> None:
    """Write and remove properties; no property may be in both sets.

    Creates the namespace only if it is missing, because a login may change properties but not create namespaces.
    """
    from pyiceberg.exceptions import NoSuchNamespaceError

    def write() -> None:
        catalog.update_namespace_properties(namespace, removals=removals, updates=dict(updates))

    try:
        settled(write)
    except NoSuchNamespaceError:

        def create_and_write() -> None:
            catalog.create_namespace_if_not_exists(namespace)
            write()

        settled(create_and_write, unsure=NoSuchNamespaceError)


def property_name(prefix: str, *identity: object) -> str:
    """Return the prefix and a hash of the subject. Two topics never share a property, even if their names are alike."""
    return prefix + digest_of(identity)


def topic_of_value(text: str) -> str | None:
    """Return the topic that a value names, even if the rest of the value cannot be read."""
    try:
        return _OWNER_JSON.value(text, "").topic
    except TableError:
        return None


logger = logging.getLogger("cleantail.readers")

PROPERTY_READER = "cleantail.reader."
"""Prefix of a property that stores a position. A hash of topic, name and partition follows."""
READER_JSON: Codec[Reader] = Codec(Reader)


def readers_of(topic: Topic, properties: Mapping[str, str]) -> tuple[Reader, ...]:
    """Return the topic's readers by partition and name, from its namespace's properties.

    Raises TableError if a property of this topic is not a position. Other invalid properties are skipped with a
    warning.
    """
    readers, broken = readers_in(properties)
    if topic.topic in broken:
        raise TableError(broken[topic.topic])
    for problem in broken.values():
        logger.warning("%s; it is skipped", problem)
    return readers.get(topic.topic, ())


def readers_in(properties: Mapping[str, str]) -> tuple[dict[str, tuple[Reader, ...]], dict[str, str]]:
    """Return the readers of every topic in a namespace, and the errors of topics with an invalid property.

    The first result is topic -> its readers by partition and name. The second is topic -> error text. An invalid
    property that names no topic is skipped with a warning.
    """
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
                logger.warning("%s is not a reader's position and is skipped", where)
    in_order = {topic: sorted(readers, key=lambda r: (r.partition, r.name)) for topic, readers in positions.items()}
    return {topic: tuple(readers) for topic, readers in in_order.items()}, broken


def _position(text: str, where: str) -> Reader:
    """Parse a position. Raises TableError, naming `where`, if the text is not a position."""
    try:
        reader = READER_JSON.value(text, where)
    except TableError as e:
        raise TableError(f"{where} is not a reader's position: {e}") from None
    if min(reader.partition, reader.offset, reader.at_ms) < 0:
        raise TableError(f"{where} is not a reader's position: it has a number below 0")
    return reader


def property_of(reader: Reader) -> str:
    """Return the name of the property that stores the reader's position."""
    return property_name(PROPERTY_READER, reader.topic, reader.name, reader.partition)


PROPERTY_ANSWER = "cleantail.answer."
"""Prefix of a property that stores an answer about a round. A hash of topic and kind follows."""


def read_answer(catalog: Catalog, topic: Topic, kind: str) -> Answer | None:
    """Return the last question about the topic's rounds of this kind, with its answer if any. Raises TableError."""
    name = property_name(PROPERTY_ANSWER, topic.topic, kind)
    text = namespace_properties(catalog, topic.own_namespace).get(name)
    if text is None:
        return None
    try:
        answer = ANSWER_JSON.value(text, "it")
    except TableError as e:
        raise TableError(f"namespace property {name} is not an answer about a round: {e}") from None
    return answer if answer.topic == topic.topic else None


def write_answer(catalog: Catalog, topic: Topic, answer: Answer) -> None:
    """Store the question or the answer, in place of the last one of its kind."""
    name = property_name(PROPERTY_ANSWER, topic.topic, answer.kind)
    write_properties(catalog, topic.own_namespace, {name: ANSWER_JSON.text(answer)}, set())
