"""Readers' hold: removal of a tombstone waits for the slowest registered reader, up to a cap (semantics.md 3.9).

Positions live beside the tables, as properties of the topic table's namespace: light to write from any client of the
catalog, without a commit to the table itself. A position is the next offset that the reader will read, as Kafka's
committed offsets are.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from cleantail.errors import CleantailError, TableError
from cleantail.topic import Topic

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

PROPERTY_READER = "cleantail.reader."
"""+ a hash of topic, name and partition: catalogs bound the length of a property's name."""
NAME_CHARS = 100


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader's position in one log: everything below `offset` is read. `at_ms`: when it said so, Unix ms."""

    topic: str
    name: str
    partition: int
    offset: int
    at_ms: int


def set_position(
    catalog: Catalog, topic: Topic, name: str, partition: int, offset: int, now_ms: int | None = None
) -> Reader:
    """Registers the reader, or moves its position, also backwards.

    Raises CleantailError for a name that cannot be, and TableError for a partition that the topic does not have, where
    the position would hold nothing. A topic without records has none yet, and any may come.
    """
    _require_name(name)
    _require_partition(catalog, topic, partition)
    at_ms = int(time.time() * 1000) if now_ms is None else now_ms
    reader = Reader(topic.topic, name, partition, offset, at_ms)
    catalog.create_namespace_if_not_exists(namespace_of(topic))
    text = json.dumps(asdict(reader), ensure_ascii=True, sort_keys=True)
    catalog.update_namespace_properties(namespace_of(topic), updates={_property(reader): text})
    return reader


def remove(catalog: Catalog, topic: Topic, name: str, partition: int | None = None) -> list[Reader]:
    """Forgets a reader, in one log or in all; returns the positions that it had."""
    found = [r for r in registered(catalog, topic) if r.name == name and partition in (None, r.partition)]
    if found:
        catalog.update_namespace_properties(namespace_of(topic), removals={_property(r) for r in found})
    return found


def registered(catalog: Catalog, topic: Topic) -> tuple[Reader, ...]:
    """The topic's readers by partition and name. Raises TableError for a property that is not a position."""
    return registered_in(catalog, namespace_of(topic)).get(topic.topic, ())


def registered_in(catalog: Catalog, namespace: str) -> dict[str, tuple[Reader, ...]]:
    """Topic -> its readers by partition and name, of every topic of the namespace that has any, in one call to the
    catalog. Raises TableError for a property that is not a position."""
    from pyiceberg.exceptions import NoSuchNamespaceError

    try:
        properties = catalog.load_namespace_properties(namespace)
    except NoSuchNamespaceError:
        return {}
    found: dict[str, list[Reader]] = {}
    for reader in sorted(_parsed(properties), key=lambda r: (r.partition, r.name)):
        found.setdefault(reader.topic, []).append(reader)
    return {topic: tuple(of_topic) for topic, of_topic in found.items()}


def _parsed(properties: Mapping[str, str]) -> Iterable[Reader]:
    for name, text in properties.items():
        if name.startswith(PROPERTY_READER):
            try:
                yield Reader(**json.loads(text))
            except (ValueError, TypeError) as e:
                raise TableError(f"namespace property {name} is not a reader's position: {e}: {text[:200]!r}") from e


def _property(reader: Reader) -> str:
    identity = json.dumps([reader.topic, reader.name, reader.partition])
    return PROPERTY_READER + hashlib.sha256(identity.encode()).hexdigest()[:32]


def namespace_of(topic: Topic) -> str:
    """Where the positions of a topic's readers are: beside its table."""
    return topic.table.rpartition(".")[0]


def _require_partition(catalog: Catalog, topic: Topic, partition: int) -> None:
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    from cleantail.table_metadata import log_ends, require_partition

    try:
        table = catalog.load_table(topic.table)
    except (NoSuchTableError, NoSuchNamespaceError):
        return
    require_partition(topic, partition, log_ends(table))


def _require_name(name: str) -> None:
    if not (0 < len(name) <= NAME_CHARS and name.isprintable()):
        raise CleantailError(f"reader name {name!r} is not allowed: 1 to {NAME_CHARS} printable characters")


def hold_offset(readers: Iterable[Reader], partition: int) -> int | None:
    """The position of the log's slowest reader; None where nobody is registered."""
    return min((r.offset for r in readers if r.partition == partition), default=None)


def left_behind(readers: Iterable[Reader], last_gone: Mapping[int, int]) -> list[Reader]:
    """Readers that have not read a tombstone which has gone. `last_gone`: partition -> its highest offset."""
    return [r for r in readers if r.partition in last_gone and r.offset <= last_gone[r.partition]]
