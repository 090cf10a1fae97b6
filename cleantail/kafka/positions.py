"""How far a table has read its topic in Kafka: one table property, changed only in the commit that appends.

It is not the largest offset in the table: a log ends with markers of transactions, aborted records and what the
broker's cleaner has removed, and none of these are in the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cleantail.errors import TableError
from cleantail.partition_state import PartitionState

PROPERTY_POSITION = "cleantail.source.kafka"
"""Table property: the SourcePosition as JSON."""
VERSION = 1
GAPS_KEPT = 100
"""Of the newest gaps; the evidence has all of them."""


@dataclass(frozen=True, slots=True, order=True)
class Gap:
    """Offsets [from_offset, to_offset) of a partition that had gone from the brokers before they were read. `at_ms`:
    when a read found that (Unix ms)."""

    partition: int
    from_offset: int
    to_offset: int
    at_ms: int

    @property
    def text(self) -> str:
        return (
            f"partition {self.partition}: offsets {self.from_offset} to {self.to_offset - 1} had gone from the brokers "
            "before they were read"
        )


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """What the table has of its topic: everything below `next_offsets`, by partition.

    `topic_id` is Kafka's, which a topic that is made anew does not keep. `read_id` tells the ingestion that wrote it
    from every other one. `read_at_ms`: when the log ends were asked for (Unix ms).
    """

    cluster_id: str
    topic: str
    topic_id: str
    next_offsets: Mapping[int, int]
    isolation: str
    read_id: str
    read_at_ms: int
    gaps: tuple[Gap, ...] = field(default=())

    def as_json(self) -> str:
        """One line, keys sorted, so that equal positions are equal texts."""
        fields: dict[str, Any] = {
            "version": VERSION,
            "cluster_id": self.cluster_id,
            "topic": self.topic,
            "topic_id": self.topic_id,
            "next_offsets": {str(p): offset for p, offset in sorted(self.next_offsets.items())},
            "isolation": self.isolation,
            "read_id": self.read_id,
            "read_at_ms": self.read_at_ms,
            "gaps": [[g.partition, g.from_offset, g.to_offset, g.at_ms] for g in self.gaps[-GAPS_KEPT:]],
        }
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def parse_position(text: str, table: str) -> SourcePosition:
    """Raises TableError, naming the table, when the property is not a position that this version can read."""
    try:
        fields = json.loads(text)
        if fields.pop("version") != VERSION:
            raise ValueError("unknown version")
        gaps = tuple(Gap(*(int(number) for number in gap)) for gap in fields.pop("gaps"))
        offsets = {int(p): int(offset) for p, offset in fields.pop("next_offsets").items()}
        return SourcePosition(**fields, next_offsets=offsets, gaps=gaps)
    except (ValueError, TypeError, KeyError, AttributeError) as e:
        raise TableError(f"{table}: property {PROPERTY_POSITION} cannot be read: {e}: {text[:200]!r}") from e


def position_of(properties: Mapping[str, str], table: str) -> SourcePosition | None:
    """None for a table that was never read from Kafka."""
    text = properties.get(PROPERTY_POSITION)
    return parse_position(text, table) if text is not None else None


def with_source_ends(
    states: Mapping[int, PartitionState], position: SourcePosition | None
) -> dict[int, PartitionState]:
    """The states of a topic's logs with the log ends of its source: the log end of what was read is the last stable
    offset (semantics.md 3.10), also where the last offsets below it hold no record."""
    known = dict(states)
    for partition, offset in (position.next_offsets if position else {}).items():
        state = known.get(partition, PartitionState())
        if offset > 0 and (state.log_end_offset or 0) < offset:
            known[partition] = replace(state, log_end_offset=offset)
    return known
