"""Register readers of a topic: each has a position in a log, and tombstones wait for it (docs/reading.md).

A position is a property of Cleantail's own namespace. An impossible position is refused.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.lake.catalogs import require_undamaged
from cleantail.lake.evaluate import log_states
from cleantail.lake.own_namespace import (
    READER_JSON,
    namespace_properties,
    property_of,
    readers_of,
    write_properties,
)
from cleantail.lake.table_metadata import require_partition, table_facts
from cleantail.log.horizons import Reader

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


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
    """Register the reader, or move its position. Only `back` allows moving it backwards.

    Raises CleantailError for an invalid name, for an offset outside the log, and for an offset below the reader's own.
    A position beyond the log's end would never block anything. Raises TableError for a partition that the topic does
    not have. If the topic has no records yet, any partition is allowed.
    """
    if not (0 < len(name) <= NAME_CHARS and name.isprintable()):
        raise CleantailError(f"reader name {name!r} is not allowed: 1 to {NAME_CHARS} printable characters")
    _require_in_log(catalog, topic, partition, offset)
    if not back:
        position = next((r for r in registered(catalog, topic) if (r.name, r.partition) == (name, partition)), None)
        if position is not None and offset < position.offset:
            raise CleantailError(
                f"reader {name} is at offset {position.offset} of partition {partition}: {offset} would move it back, "
                "and tombstones in between may be gone; nothing was changed. To move it back, use --back (back=True)"
            )
    at_ms = int(time.time() * 1000) if now_ms is None else now_ms
    reader = Reader(topic.topic, name, partition, offset, at_ms)
    write_properties(catalog, topic.own_namespace, {property_of(reader): READER_JSON.text(reader)}, set())
    return reader


def _require_in_log(catalog: Catalog, topic: Topic, partition: int, offset: int) -> None:
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        table = catalog.load_table(topic.table)
    except (NoSuchTableError, NoSuchNamespaceError):
        return
    except Exception as e:
        require_undamaged(topic.table, e)
        raise
    logs = {log.partition: log for log in log_states(topic, table_facts(table), 0)}
    require_partition(topic, partition, logs)
    log = logs.get(partition)
    if log is not None and not log.log_start_offset <= offset <= log.log_end_offset:
        raise CleantailError(
            f"offset {offset} is not in partition {partition} of topic {topic.topic}; nothing was changed. A reader's "
            f"next offset is from {log.log_start_offset} (log start) to {log.log_end_offset} (log end: all is read)"
        )


def remove(catalog: Catalog, topic: Topic, name: str, partition: int | None = None) -> list[Reader]:
    """Remove a reader from one log or from all. Returns the positions that it had."""
    removed = [r for r in registered(catalog, topic) if r.name == name and partition in (None, r.partition)]
    if removed:
        write_properties(catalog, topic.own_namespace, {}, {property_of(r) for r in removed})
    return removed


def registered(catalog: Catalog, topic: Topic) -> tuple[Reader, ...]:
    """Return the topic's readers by partition and name. Raises TableError as readers_of does."""
    return readers_of(topic, namespace_properties(catalog, topic.own_namespace))
