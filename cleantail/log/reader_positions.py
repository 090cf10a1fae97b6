"""Holds the positions of registered readers, for which the removal of tombstones waits (semantics.md 3.9). Pure.

1. A position is the next offset that the reader will read, as Kafka's committed offsets are. So a reader at offset 7
   has read the tombstone at 6 and not the one at 7.
2. Of a log's readers the slowest decides. Where nobody is registered, nothing waits.
3. The hold has a cap (cleantail.log.tombstones). Where that lets a tombstone go that a reader has not read, the reader
   is left behind, and an alert says so.

Module cleantail.lake.runs.reader_properties keeps the positions in the namespace of the topic's table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cleantail.config.topic import Topic


@dataclass(frozen=True, slots=True)
class Reader:
    """Describes a reader's position in one log: it has read everything below `offset`, and said so at `at_ms` (Unix
    ms)."""

    topic: str
    name: str
    partition: int
    offset: int
    at_ms: int


def namespace_of(topic: Topic) -> str:
    """Returns the namespace that keeps the positions of a topic's readers, its releases and its answers."""
    return topic.own_namespace


def hold_offset(readers: Iterable[Reader], partition: int) -> int | None:
    """Returns the position of the log's slowest reader; None where nobody is registered (2)."""
    return min((r.offset for r in readers if r.partition == partition), default=None)


def left_behind(readers: Iterable[Reader], last_removed: Mapping[int, int]) -> list[Reader]:
    """Returns the readers that had not read a tombstone when it was removed (3). `last_removed` maps a partition to the
    highest offset of a removed tombstone."""
    return [r for r in readers if r.partition in last_removed and r.offset <= last_removed[r.partition]]
