"""Readers' hold: removal of a tombstone waits for the slowest registered reader, up to a cap (semantics.md 3.9).

Positions live beside the tables, as properties of the topic table's namespace: light to write from any client of the
catalog, without a commit to the table itself. A position is the next offset that the reader will read, as Kafka's
committed offsets are.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cleantail.errors import CleantailError, TableError
from cleantail.topic import Topic

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

logger = logging.getLogger("cleantail.readers")

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
    catalog.create_namespace_if_not_exists(_namespace(topic))
    text = json.dumps(asdict(reader), ensure_ascii=True, sort_keys=True)
    catalog.update_namespace_properties(_namespace(topic), updates={_property(reader): text})
    return reader


def remove(catalog: Catalog, topic: Topic, name: str, partition: int | None = None) -> list[Reader]:
    """Forgets a reader, in one log or in all; returns the positions that it had."""
    found = [r for r in registered(catalog, topic) if r.name == name and partition in (None, r.partition)]
    if found:
        catalog.update_namespace_properties(_namespace(topic), removals={_property(r) for r in found})
    return found


def registered(catalog: Catalog, topic: Topic) -> tuple[Reader, ...]:
    """The topic's readers by partition and name. Raises TableError for a property of this topic that is not a position;
    one that says no topic, or another's, is passed over with a warning."""
    from pyiceberg.exceptions import NoSuchNamespaceError

    try:
        properties = catalog.load_namespace_properties(_namespace(topic))
    except NoSuchNamespaceError:
        return ()
    found = [reader for reader in _parsed(properties, topic.topic) if reader.topic == topic.topic]
    return tuple(sorted(found, key=lambda r: (r.partition, r.name)))


def _parsed(properties: Mapping[str, str], topic: str) -> Iterable[Reader]:
    """The positions; those of other topics may be there or not."""
    for name, text in properties.items():
        if not name.startswith(PROPERTY_READER):
            continue
        document = _document(text)
        if _is_reader(document):
            yield Reader(**document)
        elif document.get("topic") == topic:
            raise TableError(f"namespace property {name} is not a reader's position: {text[:200]!r}")
        else:
            logger.warning("namespace property %s is not a reader's position, and is passed over", name)


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


def _property(reader: Reader) -> str:
    identity = json.dumps([reader.topic, reader.name, reader.partition])
    return PROPERTY_READER + hashlib.sha256(identity.encode()).hexdigest()[:32]


def _namespace(topic: Topic) -> str:
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
