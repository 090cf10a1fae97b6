"""Adapter: the positions of readers, which are properties of the namespace of their topic's table.

Any client of the catalog writes one quickly, without a commit to the table itself.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, TableError
from cleantail.log.reader_positions import Reader, namespace_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

logger = logging.getLogger("cleantail.readers")

PROPERTY_READER = "cleantail.reader."
"""+ a hash of topic, name and partition: catalogs bound the length of a property's name."""
NAME_CHARS = 100


def set_position(
    catalog: Catalog,
    topic: Topic,
    name: str,
    partition: int,
    offset: int,
    now_ms: int | None = None,
    *,
    back: bool = False,
) -> Reader:
    """Registers the reader, or moves its position: backwards only with `back`.

    Raises CleantailError for a name that cannot be, for an offset outside the log (beyond its end the position would
    hold nothing, ever), and for one below the reader's own; TableError for a partition that the topic does not have. A
    topic without records has none yet, and any may come.
    """
    _require_name(name)
    _require_in_log(catalog, topic, partition, offset)
    if not back:
        _require_ahead(registered(catalog, topic), name, partition, offset)
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


def _property(reader: Reader) -> str:
    identity = json.dumps([reader.topic, reader.name, reader.partition])
    return PROPERTY_READER + hashlib.sha256(identity.encode()).hexdigest()[:32]


def _require_in_log(catalog: Catalog, topic: Topic, partition: int, offset: int) -> None:
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    from cleantail.lake.runs.evaluate import log_states
    from cleantail.lake.table_metadata import require_partition, table_facts

    try:
        table = catalog.load_table(topic.table)
    except (NoSuchTableError, NoSuchNamespaceError):
        return
    logs = {log.partition: log for log in log_states(topic, table_facts(table), 0)}
    require_partition(topic, partition, logs)
    log = logs.get(partition)
    if log is not None and not log.log_start_offset <= offset <= log.log_end_offset:
        raise CleantailError(
            f"offset {offset} is not in partition {partition} of topic {topic.topic}; nothing was changed. A reader's "
            f"next offset is from {log.log_start_offset} (log start) to {log.log_end_offset} (log end: all is read)"
        )


def _require_ahead(readers: Iterable[Reader], name: str, partition: int, offset: int) -> None:
    own = next((r for r in readers if (r.name, r.partition) == (name, partition)), None)
    if own is not None and offset < own.offset:
        raise CleantailError(
            f"reader {name} is at offset {own.offset} of partition {partition}: {offset} would move it back, and "
            "tombstones in between may be gone; nothing was changed. --back (back=True) does it"
        )


def _require_name(name: str) -> None:
    if not (0 < len(name) <= NAME_CHARS and name.isprintable()):
        raise CleantailError(f"reader name {name!r} is not allowed: 1 to {NAME_CHARS} printable characters")
