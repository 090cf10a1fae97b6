"""Adapter: a reader says how far it is. Its position is refused where it cannot be one."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.lake.own_namespace import READER_JSON, property_of, registered, write_properties
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
    write_properties(catalog, topic.own_namespace, {property_of(reader): READER_JSON.text(reader)}, set())
    return reader


def _require_in_log(catalog: Catalog, topic: Topic, partition: int, offset: int) -> None:
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    from cleantail.lake.catalogs import require_undamaged
    from cleantail.lake.runs.evaluate import log_states
    from cleantail.lake.table_metadata import require_partition, table_facts

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


def _require_ahead(readers: Iterable[Reader], name: str, partition: int, offset: int) -> None:
    position = next((r for r in readers if (r.name, r.partition) == (name, partition)), None)
    if position is not None and offset < position.offset:
        raise CleantailError(
            f"reader {name} is at offset {position.offset} of partition {partition}: {offset} would move it back, and "
            "tombstones in between may be gone; nothing was changed. --back (back=True) does it"
        )


def _require_name(name: str) -> None:
    if not (0 < len(name) <= NAME_CHARS and name.isprintable()):
        raise CleantailError(f"reader name {name!r} is not allowed: 1 to {NAME_CHARS} printable characters")
