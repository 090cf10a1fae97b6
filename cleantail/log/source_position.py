"""How far a topic was read from its source: one table property, changed only in the commit that appends. Pure.

For a topic in Kafka (SourcePosition, semantics.md 3.10):

1. The position is the end of the offsets that were read, not the largest offset in the table. A log may end with
   markers of transactions, aborted records and offsets that the broker's cleaner removed. The table has none of these.
2. Under read_committed the position is the last stable offset. So an open transaction bounds what is cleaned, as in
   Kafka.
3. Under read_uncommitted the table also has records beyond the last stable offset. The position stores that offset, and
   no round goes beyond it.
4. If the brokers may have dropped deletions before they were read (cleantail.kafka.read_plan), the position records
   that until a reconciliation is published.

For a table that a sink fills (SnapshotPosition):

1. The position names the last snapshot of the source that was read. Records that later snapshots appended are new.
2. The log end is the highest offset that was read, plus one.
3. A change that a read skipped (source.table.on_change: continue) stays in the position, for warnings and an alert.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import ConfigDict

from cleantail.codec import Codec, FormatNumber
from cleantail.human import duration, instant
from cleantail.log.partition_state import PartitionState

PROPERTY_SNAPSHOT_POSITION = "cleantail.source.table"
"""Table property: the SnapshotPosition as JSON."""
GAPS_KEPT = 100
"""Maximum number of gaps that a position keeps: the newest. The evidence has all of them."""
SUBJECT = "source table"
"""The subject of an alert about a gap in a source table."""
_NO_MORE = ConfigDict(extra="forbid")
PROPERTY_POSITION = "cleantail.source.kafka"
"""Table property: the SourcePosition as JSON."""
HINDERED_REPORTED_MS = 86_400_000
"""How long Cleantail reports possibly forgotten deletions that no reconciliation can repair."""
GAPS_SHOWN = 3
"""Maximum number of gaps among a log's warnings: the newest."""


@dataclass(frozen=True, slots=True, order=True)
class Gap:
    """Offsets [from_offset, to_offset) of a partition that the brokers no longer had when they were to be read.

    `at_ms` is the time of the read (Unix ms).
    """

    __pydantic_config__ = _NO_MORE

    partition: int
    from_offset: int
    to_offset: int
    at_ms: int

    @property
    def text(self) -> str:
        return (
            f"partition {self.partition}: offsets {self.from_offset} to {self.to_offset - 1} were deleted in Kafka "
            "before they were read"
        )

    @property
    def subject(self) -> str:
        return f"partition {self.partition}"

    @property
    def occurrence(self) -> str:
        """Return the key that separates this gap from the next of its partition."""
        return f"to {self.to_offset}"

    @property
    def config(self) -> str:
        """Return the config that let the read continue."""
        return "source.kafka.on_gap: continue"


@dataclass(frozen=True, slots=True, order=True)
class Forgotten:
    """Offsets [from_offset, to_offset) of a partition in which the brokers' cleaner may have removed tombstones before
    they were read.

    `holes` counts the offsets that had no record. `retention_ms` is the source topic's delete.retention.ms, `at_ms` the
    time of the read (Unix ms). `hindrance` is why no reconciliation can repair the loss; empty if one can.
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
        what = "deletions may be missing" if self.hindrance else "reconcile needed"
        way_out = self.hindrance or "a reconciliation removes these"
        return (
            f"{what}, partition {self.partition}: offsets {self.from_offset} to {self.to_offset - 1} were read later "
            f"than delete.retention.ms ({duration(self.retention_ms)}) of the topic in Kafka allows, and {self.holes} "
            f"of them were deleted in Kafka: deletions may be among them, of keys that are alive here; {way_out}"
        )

    def with_earlier(self, earlier: Forgotten) -> Forgotten:
        """Merge this with an earlier finding in the same log."""
        low, end = min(self.from_offset, earlier.from_offset), max(self.to_offset, earlier.to_offset)
        return replace(self, from_offset=low, to_offset=end, holes=self.holes + earlier.holes)


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """What the table has of its topic in Kafka: everything below `next_offsets`, by partition.

    `topic_id` is Kafka's: a recreated topic has another id. `read_id` is unique to the ingestion that wrote the
    position. `read_at_ms` is when the log ends were fetched (Unix ms). `open_from` has the last stable offset of each
    partition from which records of open transactions were read. `as_of_ms` is when each log last had nothing unread
    (Unix ms). With `delete_retention_ms`, the source topic's config at the last read, that time shows whether the
    brokers may have forgotten deletions. `forgotten` has at most one entry for a log.
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
    version: FormatNumber = field(kw_only=True)

    def forgotten_of(self, partition: int, state: PartitionState, now_ms: int) -> Forgotten | None:
        """Return the offsets that the brokers may have forgotten in a log. None if a reconciliation has repaired them.

        A loss that no reconciliation can repair is reported for a day.
        """
        for entry in self.forgotten:
            over = entry.hindrance and now_ms - entry.at_ms >= HINDERED_REPORTED_MS
            if entry.partition == partition and not over and not state.is_reconciled(entry.to_offset, entry.at_ms):
                return entry
        return None

    def gaps_of(self, partition: int) -> tuple[Gap, ...]:
        return tuple(gap for gap in self.gaps if gap.partition == partition)

    def as_json(self) -> str:
        return _POSITION_JSON.text(replace(self, gaps=self.gaps[-GAPS_KEPT:]))


_POSITION_JSON: Codec[SourcePosition] = Codec(SourcePosition)


def parse_position(text: str, table: str) -> SourcePosition:
    """Parse what `as_json` wrote. Raises TableError, naming the table and the property.

    An unknown field is an error: the position is written back, and would lose that field.
    """
    return _POSITION_JSON.value(text, f"{table}: property {PROPERTY_POSITION}")


def position_of(properties: Mapping[str, str], table: str) -> SourcePosition | None:
    """Parse the position in a table's properties; None if the topic was never read from Kafka."""
    text = properties.get(PROPERTY_POSITION)
    return parse_position(text, table) if text is not None else None


@dataclass(frozen=True, slots=True, order=True)
class SnapshotGap:
    """A change of the source table that a read skipped. `at_ms` is the time of the read (Unix ms).

    `change`: this snapshot (with its operation, and its time in Unix ms) removed or changed records that may have been
    read. `history`: the snapshots after this one were gone before they were read.
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
        snapshot = f"snapshot {self.snapshot_id} of {instant(self.snapshot_ms)} UTC"
        if self.kind == "change":
            return f"{snapshot} ({self.operation}) of {self.table} removed or changed records, which was skipped"
        return (
            f"{snapshot} of {self.table} is no longer in its history: records that came late after it, below the "
            "offsets that were read, were skipped"
        )

    @property
    def subject(self) -> str:
        return SUBJECT

    @property
    def occurrence(self) -> str:
        return f"snapshot {self.snapshot_id}"

    @property
    def config(self) -> str:
        return "source.table.on_change: continue"

    @property
    def partition(self) -> None:
        """Return None: a gap of a source table belongs to no single partition."""
        return None


@dataclass(frozen=True, slots=True)
class SnapshotPosition:
    """What a topic has of its source table: everything up to a snapshot.

    `catalog` and `table` are the names in the YAML. `table_uuid` is Iceberg's: a recreated table has another UUID.
    `next_offsets` has, by partition, the highest offset that was read, plus one. `read_id` is unique to the ingestion
    that wrote the position. `read_at_ms` is when the snapshots were listed (Unix ms).
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
    version: FormatNumber = field(kw_only=True)

    @property
    def name(self) -> str:
        return f"{self.catalog}.{self.table}"

    @property
    def open_from(self) -> Mapping[int, int]:
        """Return nothing: a sink commits no open transaction."""
        return {}

    def gaps_of(self, partition: int) -> tuple[SnapshotGap, ...]:
        """Return the gaps, oldest first, for the lowest partition only, so that each is reported once."""
        return self.gaps if partition == min(self.next_offsets, default=None) else ()

    def forgotten_of(self, partition: int, state: PartitionState, now_ms: int) -> None:
        """Return None: a sink's table drops no deletions."""
        return

    def as_json(self) -> str:
        """Return one line of JSON with sorted keys: equal positions are equal texts."""
        return _SNAPSHOT_POSITION_JSON.text(replace(self, gaps=self.gaps[-GAPS_KEPT:]))


_SNAPSHOT_POSITION_JSON: Codec[SnapshotPosition] = Codec(SnapshotPosition)


def parse_snapshot_position(text: str, table: str) -> SnapshotPosition:
    """Parse what `as_json` wrote. Raises TableError, naming the table and the property."""
    return _SNAPSHOT_POSITION_JSON.value(text, f"{table}: property {PROPERTY_SNAPSHOT_POSITION}")


def snapshot_position_of(properties: Mapping[str, str], table: str) -> SnapshotPosition | None:
    """Parse the position in a table's properties; None if the topic was never read from a table."""
    text = properties.get(PROPERTY_SNAPSHOT_POSITION)
    return parse_snapshot_position(text, table) if text is not None else None


ReadPosition = SourcePosition | SnapshotPosition


def read_position_of(properties: Mapping[str, str], table: str) -> ReadPosition | None:
    """Return how far a topic was read. None if no read has filled the table.

    If a topic was read from a sink's table first and then from Kafka, the position in Kafka is returned.
    """
    return position_of(properties, table) or snapshot_position_of(properties, table)


def with_source_ends(states: Mapping[int, PartitionState], position: ReadPosition | None) -> dict[int, PartitionState]:
    """Return the states with the source's log ends, even if the last offsets below them hold no record."""
    known = dict(states)
    for partition, offset in (position.next_offsets if position else {}).items():
        state = known.get(partition, PartitionState())
        if offset > 0 and (state.log_end_offset or 0) < offset:
            known[partition] = replace(state, log_end_offset=offset)
    return known
