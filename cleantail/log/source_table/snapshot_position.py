"""Says how far a topic was read from a table that a sink fills: one table property, changed only in the commit that
appends.

1. It names the last snapshot of the source that was read. What the snapshots after it have appended is new.
2. The log end of what was read is the highest offset that came, and one more.
3. What a read had to pass over (source.table.on_change: continue) stays in it, for warnings and an alert.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from pydantic import ConfigDict

from cleantail.codec import Codec
from cleantail.human import instant
from cleantail.log.partition_state import PartitionState

PROPERTY_SNAPSHOT_POSITION = "cleantail.source.table"
"""Table property: the SnapshotPosition as JSON."""
POSITION_VERSION: Literal[1] = 1
GAPS_KEPT = 100
"""The number of the newest gaps that a position keeps; the evidence has all of them."""
SUBJECT = "source table"
"""What an alert about a gap is about."""
_NO_MORE = ConfigDict(extra="forbid")


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
        return _POSITION_JSON.text(_Written(**_fields(kept), version=POSITION_VERSION))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written(SnapshotPosition):
    """Describes a position as its text has it."""

    version: Literal[1]


_POSITION_JSON: Codec[_Written] = Codec(_Written)


def parse_snapshot_position(text: str, table: str) -> SnapshotPosition:
    """Parses what `as_json` wrote. Raises TableError, naming the table, when the property is not a position that this
    version can read."""
    return SnapshotPosition(**_fields(_POSITION_JSON.value(text, f"{table}: property {PROPERTY_SNAPSHOT_POSITION}")))


def snapshot_position_of(properties: Mapping[str, str], table: str) -> SnapshotPosition | None:
    """Returns the position that a table's properties hold; None for one that was never read from a table."""
    text = properties.get(PROPERTY_SNAPSHOT_POSITION)
    return parse_snapshot_position(text, table) if text is not None else None


def _fields(position: SnapshotPosition) -> dict[str, Any]:
    return {field.name: getattr(position, field.name) for field in fields(SnapshotPosition)}
