"""Readers' hold: removal of a tombstone waits for the slowest registered reader, up to a cap (semantics.md 3.9). Pure.

A position is the next offset that the reader will read, as Kafka's committed offsets are. So a reader at offset 7 has
read the tombstone at 6 and not the one at 7. Module cleantail.lake.runs.reader_properties keeps the positions.
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
    """Returns the namespace that keeps the positions of a topic's readers: that of its table."""
    return topic.table.rpartition(".")[0]


def hold_offset(readers: Iterable[Reader], partition: int) -> int | None:
    """Returns the position of the log's slowest reader; None where nobody is registered."""
    return min((r.offset for r in readers if r.partition == partition), default=None)


def left_behind(readers: Iterable[Reader], last_removed: Mapping[int, int]) -> list[Reader]:
    """Returns the readers that had not read a tombstone when it was removed. `last_removed` maps a partition to the
    highest offset of a removed tombstone."""
    return [r for r in readers if r.partition in last_removed and r.offset <= last_removed[r.partition]]
