"""Says what a round does to each log (its work), and how works are shared out to Spark applications in units.

The reason is docs/architecture.md, decision 7.

1. A large partition is a unit of its own: it fills an application.
2. Small partitions are packed together in their order, since the start of a JVM costs more than their work.
3. A unit holds numbers and identifiers that Cleantail made, and nothing of a record: it travels through XCom.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from cleantail.codec import Codec

UNIT_BYTES = 8 << 30
"""A partition of this many live bytes fills a Spark application of its own. Below it the start of a JVM costs more than
the work, since no value is read."""


@dataclass(frozen=True, slots=True)
class PartitionWork:
    """Says what a round does to one log. Starts are inclusive, ends exclusive; bytes are live bytes by the files'
    metadata.

    first_dirty_offset  the map is made from here on; equal to `end_offset` where only retention is due
    end_offset          the round looks at records below it
    log_start_offset    the round drops what is below it
    log_end_offset      one past the highest offset that was ever seen
    bytes               of the whole log: what a unit is packed by
    dirty_records       upper limit of the records in [first dirty, end)
    dirty_bytes         in [first dirty, end)
    read_bytes          in [log start, end)
    source_start        a reconciliation compares with what the brokers have from here on
    source_end          and up to here; None before it has read them
    records             in the log's files: by them it is shared out to tasks. A round counts deleted ones, too
    hold_offset         an expiry leaves tombstones from here on for a reader; None where no reader holds any
    hold_cap_ms         and it does so this long beyond their horizon at most
    fresh_from          an expiry leaves horizons beyond it, which this very run has set, for a later run
    """

    partition: int
    first_dirty_offset: int
    end_offset: int
    log_start_offset: int
    log_end_offset: int
    bytes: int = 0
    dirty_records: int = 0
    hold_offset: int | None = None
    hold_cap_ms: int = 0
    fresh_from: int | None = None
    dirty_bytes: int = 0
    read_bytes: int = 0
    records: int = 0
    source_start: int | None = None
    source_end: int | None = None

    @property
    def only_retention(self) -> bool:
        """Returns whether nothing is compacted: the log start moves, and no record is newly published."""
        return self.first_dirty_offset == self.end_offset

    def ending_at(self, end_offset: int) -> PartitionWork:
        """Returns the same work up to an earlier end. Its dirty bytes are reckoned by the share of the offsets that are
        left."""
        offsets = max(self.end_offset - self.first_dirty_offset, 1)
        dirty_bytes = self.dirty_bytes * (end_offset - self.first_dirty_offset) // offsets
        read_bytes = self.read_bytes - (self.dirty_bytes - dirty_bytes)
        return replace(self, end_offset=end_offset, dirty_bytes=dirty_bytes, read_bytes=read_bytes)


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """Describes one Spark application's share of a round.

    `now_ms` is the clock of the run (Unix ms), `base_snapshot_id` the snapshot that the round reads, and `branch` the
    beginning of the name of the branch that it writes (branch_stem).
    """

    round: str
    unit: int
    now_ms: int
    base_snapshot_id: int
    branch: str
    partitions: tuple[PartitionWork, ...]


WORK_UNIT_JSON: Codec[WorkUnit] = Codec(WorkUnit)


def pack(
    round_id: str, now_ms: int, base_snapshot_id: int, works: Iterable[PartitionWork], unit_bytes: int = UNIT_BYTES
) -> tuple[WorkUnit, ...]:
    """Returns the works, in their order, as units of at most `unit_bytes` live bytes. A larger work is a unit alone."""
    groups: list[list[PartitionWork]] = []
    for work in works:
        if groups and sum(w.bytes for w in groups[-1]) + work.bytes <= unit_bytes:
            groups[-1].append(work)
        else:
            groups.append([work])
    return tuple(
        WorkUnit(round_id, n, now_ms, base_snapshot_id, branch_stem(round_id, n), tuple(group))
        for n, group in enumerate(groups)
    )


def branch_stem(round_id: str, unit: int) -> str:
    """Returns the beginning of the name of a unit's branch; each try of its task adds a time to it."""
    return f"ct_{round_id}_u{unit}"


def round_name(now_ms: int, sequence_number: int) -> str:
    """Returns a name for branches and evidence: the time of the clock given, and the table's sequence number."""
    stamp = datetime.fromtimestamp(min(now_ms, 253_402_300_799_000) / 1000, UTC).strftime("%Y%m%dT%H%M%S")
    return f"{stamp}_{now_ms % 1000:03d}_{sequence_number}"
