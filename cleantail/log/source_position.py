"""Says how far a table has read its topic in Kafka: one table property, changed only in the commit that appends.

1. It is not the largest offset in the table: a log ends with markers of transactions, aborted records and what the
   broker's cleaner has removed, and none of these are in the table.
2. The log end of what was read is the position (semantics.md 3.10). Under read_committed that is the last stable
   offset, so an open transaction bounds what is cleaned, as in Kafka.
3. Under read_uncommitted records beyond the last stable offset are there as well. The position remembers that offset,
   and no round goes beyond it.
4. Where the brokers may have forgotten deletions before they were read (cleantail.kafka.forgotten), the position says
   so until a reconciliation is published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from pydantic import ConfigDict

from cleantail.codec import Codec
from cleantail.human import duration, instant
from cleantail.log.partition_state import PartitionState

PROPERTY_SNAPSHOT_POSITION = "cleantail.source.table"
"""Table property: the SnapshotPosition as JSON."""
POSITION_VERSION: Literal[1] = 1
GAPS_KEPT = 100
"""The number of the newest gaps that a position keeps; the evidence has all of them."""
SUBJECT = "source table"
"""What an alert about a gap is about."""
_NO_MORE = ConfigDict(extra="forbid")
PROPERTY_POSITION = "cleantail.source.kafka"
"""Table property: the SourcePosition as JSON."""
HINDERED_TOLD_MS = 86_400_000
"""How long it is told that something may be forgotten which no reconciliation can mend."""
GAPS_SHOWN = 3
"""The number of the newest gaps that are among a log's warnings."""


@dataclass(frozen=True, slots=True, order=True)
class SnapshotGap:
    """Describes what a read has passed over.

    kind `change`: the snapshot, of this operation and time (Unix ms), has removed or changed records that may have been
    read before. kind `history`: the snapshots after this one had gone before they were read. `at_ms` is when the read
    was.
    """

    __pydantic_config__ = _NO_MORE

    kind: Literal["change", "history"]
    table: str
    snapshot_id: int
    operation: str
    snapshot_ms: int
    at_ms: int

    @property
    def text(self) -> str:
        """Returns what may be missing or too many, for a sentence."""
        snapshot = f"snapshot {self.snapshot_id} of {instant(self.snapshot_ms)} UTC"
        if self.kind == "change":
            return f"{snapshot} ({self.operation}) of {self.table} removed or changed records, which was passed over"
        return (
            f"{snapshot} of {self.table} is not in its history any more: records that came late after it, below the "
            "offsets that were read, were passed over"
        )

    @property
    def subject(self) -> str:
        """Returns what an alert says that it is about."""
        return SUBJECT

    @property
    def occurrence(self) -> str:
        """Returns what tells this gap from the next."""
        return f"snapshot {self.snapshot_id}"

    @property
    def config(self) -> str:
        """Returns what let the read go on."""
        return "source.table.on_change: continue"

    @property
    def partition(self) -> None:
        """Returns None: it is of no one partition."""
        return None


@dataclass(frozen=True, slots=True)
class SnapshotPosition:
    """Describes what the table has of its source: everything up to a snapshot of it.

    `catalog` and `table` are as the YAML named them (the platform's own catalog by its name), and `table_uuid` is
    Iceberg's, which a table that is made anew does not keep. `next_offsets` has, by partition, the highest offset that
    came, and one more. `read_id` tells the ingestion that wrote the position from every other one. `read_at_ms` is when
    the snapshots were looked at (Unix ms).
    """

    __pydantic_config__ = _NO_MORE

    catalog: str
    table: str
    table_uuid: str
    branch: str
    snapshot_id: int
    snapshot_ms: int
    next_offsets: Mapping[int, int]
    read_id: str
    read_at_ms: int
    gaps: tuple[SnapshotGap, ...] = ()

    @property
    def name(self) -> str:
        """Returns the source with its catalog."""
        return f"{self.catalog}.{self.table}"

    @property
    def open_from(self) -> Mapping[int, int]:
        """Returns nothing: a sink commits no open transaction."""
        return {}

    def gaps_of(self, partition: int) -> tuple[SnapshotGap, ...]:
        """Returns the gaps, oldest first. They are of no one partition, and told once, with the lowest."""
        return self.gaps if partition == min(self.next_offsets, default=None) else ()

    def forgotten_of(self, partition: int, state: PartitionState, now_ms: int) -> None:
        """Returns None: what a sink's table has is not forgotten by anybody."""
        return

    def as_json(self) -> str:
        """Returns the position as one line of JSON with sorted keys, so that equal positions are equal texts."""
        kept = replace(self, gaps=self.gaps[-GAPS_KEPT:])
        written = _WrittenSnapshotPosition(**_fields(kept, SnapshotPosition), version=POSITION_VERSION)
        return _SNAPSHOT_POSITION_JSON.text(written)


@dataclass(frozen=True, slots=True, kw_only=True)
class _WrittenSnapshotPosition(SnapshotPosition):
    """Describes a position as its text has it."""

    version: Literal[1]


_SNAPSHOT_POSITION_JSON: Codec[_WrittenSnapshotPosition] = Codec(_WrittenSnapshotPosition)


def parse_snapshot_position(text: str, table: str) -> SnapshotPosition:
    """Parses what `as_json` wrote. Raises TableError, naming the table, when the property is not a position that this
    version can read."""
    written = _SNAPSHOT_POSITION_JSON.value(text, f"{table}: property {PROPERTY_SNAPSHOT_POSITION}")
    return SnapshotPosition(**_fields(written, SnapshotPosition))


def snapshot_position_of(properties: Mapping[str, str], table: str) -> SnapshotPosition | None:
    """Returns the position that a table's properties hold; None for one that was never read from a table."""
    text = properties.get(PROPERTY_SNAPSHOT_POSITION)
    return parse_snapshot_position(text, table) if text is not None else None


@dataclass(frozen=True, slots=True, order=True)
class Gap:
    """Describes offsets [from_offset, to_offset) of a partition that had gone from the brokers before they were read.
    `at_ms` is when a read found that (Unix ms)."""

    __pydantic_config__ = _NO_MORE

    partition: int
    from_offset: int
    to_offset: int
    at_ms: int

    @property
    def text(self) -> str:
        """Returns what is missing, for a sentence."""
        return (
            f"partition {self.partition}: offsets {self.from_offset} to {self.to_offset - 1} had gone from the brokers "
            "before they were read"
        )

    @property
    def subject(self) -> str:
        """Returns what an alert says that it is about."""
        return f"partition {self.partition}"

    @property
    def occurrence(self) -> str:
        """Returns what tells this gap from the next of its partition."""
        return f"to {self.to_offset}"

    @property
    def config(self) -> str:
        """Returns what let the read go on."""
        return "source.kafka.on_gap: continue"


@dataclass(frozen=True, slots=True, order=True)
class Forgotten:
    """Describes offsets [from_offset, to_offset) of a partition in which the brokers' cleaner may have removed
    tombstones before they were read.

    `holes` is how many of the offsets had no record, `retention_ms` the source topic's delete.retention.ms and `at_ms`
    when the read was (Unix ms). `hindrance` says why no reconciliation can mend it, and is empty where one can.
    """

    __pydantic_config__ = _NO_MORE

    partition: int
    from_offset: int
    to_offset: int
    holes: int
    retention_ms: int
    at_ms: int
    hindrance: str = ""

    @property
    def text(self) -> str:
        """Returns what may be wrong, for a sentence."""
        what = "deletions may be missing" if self.hindrance else "reconcile needed"
        way_out = self.hindrance or "a reconciliation removes these"
        return (
            f"{what}, partition {self.partition}: offsets {self.from_offset} to {self.to_offset - 1} were read later "
            f"than delete.retention.ms ({duration(self.retention_ms)}) of the topic in Kafka allows, and {self.holes} "
            f"of them had gone: deletions may be among them, of keys that are alive here; {way_out}"
        )

    def with_earlier(self, earlier: Forgotten) -> Forgotten:
        """Returns this and what was found before it in the same log, as one."""
        low, end = min(self.from_offset, earlier.from_offset), max(self.to_offset, earlier.to_offset)
        return replace(self, from_offset=low, to_offset=end, holes=self.holes + earlier.holes)


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Describes what the table has of its topic: everything below `next_offsets`, by partition.

    `topic_id` is Kafka's, which a topic that is made anew does not keep. `read_id` tells the ingestion that wrote the
    position from every other one. `read_at_ms` is when the log ends were asked for (Unix ms). `open_from` has, of the
    partitions of which records of open transactions were read, the last stable offset. `as_of_ms` and
    `delete_retention_ms` are what the next read tells by whether the brokers have forgotten anything: when each log
    last had nothing that was not read (Unix ms), and the source topic's config at the last read. `forgotten` has one
    entry at most for a log.
    """

    __pydantic_config__ = _NO_MORE

    cluster_id: str
    topic: str
    topic_id: str
    next_offsets: Mapping[int, int]
    isolation: str
    read_id: str
    read_at_ms: int
    gaps: tuple[Gap, ...] = ()
    open_from: Mapping[int, int] = field(default_factory=dict)
    as_of_ms: Mapping[int, int] = field(default_factory=dict)
    delete_retention_ms: int | None = None
    forgotten: tuple[Forgotten, ...] = ()

    def forgotten_of(self, partition: int, state: PartitionState, now_ms: int) -> Forgotten | None:
        """Returns what the brokers may have forgotten of a log, None where no read says so, or where a reconciliation
        has seen to it. What none can see to is told for a day."""
        for entry in self.forgotten:
            over = entry.hindrance and now_ms - entry.at_ms >= HINDERED_TOLD_MS
            if entry.partition == partition and not over and not state.is_reconciled(entry.to_offset, entry.at_ms):
                return entry
        return None

    def gaps_of(self, partition: int) -> tuple[Gap, ...]:
        """Returns the gaps of one partition, oldest first."""
        return tuple(gap for gap in self.gaps if gap.partition == partition)

    def as_json(self) -> str:
        """Returns the position as one line of JSON with sorted keys, so that equal positions are equal texts."""
        kept = replace(self, gaps=self.gaps[-GAPS_KEPT:])
        return _POSITION_JSON.text(_Written(**_fields(kept, SourcePosition), version=POSITION_VERSION))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written(SourcePosition):
    """Describes a position as its text has it."""

    version: Literal[1]


_POSITION_JSON: Codec[_Written] = Codec(_Written)


def parse_position(text: str, table: str) -> SourcePosition:
    """Parses what `as_json` wrote. Raises TableError, naming the table, when the property is not a position that this
    version can read: one with an unknown field it cannot, since what is read is written again."""
    written = _POSITION_JSON.value(text, f"{table}: property {PROPERTY_POSITION}")
    return SourcePosition(**_fields(written, SourcePosition))


def _fields(position: ReadPosition, kind: type[ReadPosition]) -> dict[str, Any]:
    return {field.name: getattr(position, field.name) for field in fields(kind)}


def position_of(properties: Mapping[str, str], table: str) -> SourcePosition | None:
    """Returns the position that a table's properties hold; None for a table that was never read from Kafka."""
    text = properties.get(PROPERTY_POSITION)
    return parse_position(text, table) if text is not None else None


ReadPosition = SourcePosition | SnapshotPosition
"""How far a topic was read from its source."""


def read_position_of(properties: Mapping[str, str], table: str) -> ReadPosition | None:
    """Returns how far a topic was read; None for one that no read has filled. A table that was read from a sink's table
    first and then from Kafka is as far as Kafka was read: that went on behind the other."""
    return position_of(properties, table) or snapshot_position_of(properties, table)


def with_source_ends(states: Mapping[int, PartitionState], position: ReadPosition | None) -> dict[int, PartitionState]:
    """Returns the states of a topic's logs with the log ends of its source, also where the last offsets below them
    hold no record."""
    known = dict(states)
    for partition, offset in (position.next_offsets if position else {}).items():
        state = known.get(partition, PartitionState())
        if offset > 0 and (state.log_end_offset or 0) < offset:
            known[partition] = replace(state, log_end_offset=offset)
    return known
