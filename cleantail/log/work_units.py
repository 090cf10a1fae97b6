"""What a round does to each log, and how its work is divided among Spark applications. Pure.

A round is made of work units, one Spark application each (docs/architecture.md, decision 7):

1. A large partition is a separate unit: it fills an application.
2. Small partitions are packed together in their order, because a JVM takes longer to start than their work takes.
3. A unit holds numbers and identifiers that Cleantail made, and nothing of a record, because it is in an XCom.

In a group's DAG one application takes a pack of topics (cleantail.log.topic_packs).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from cleantail.codec import Codec
from cleantail.human import LAST_MOMENT_MS

UNIT_BYTES = 8 << 30
"""Live bytes of a partition that fills a Spark application of its own."""


@dataclass(frozen=True, slots=True)
class PartitionWork:
    """What a round does to one log. Starts are inclusive, ends exclusive. Bytes are live bytes by the files' metadata.

    first_dirty_offset  the offset map is made from here on; equal to `end_offset` if only retention is due
    end_offset          the round reads records below it
    log_start_offset    the round drops records below it
    log_end_offset      one past the highest offset ever seen
    bytes               of the whole log: what a unit is packed by
    dirty_records       upper limit of the records in [first dirty, end)
    dirty_bytes         in [first dirty, end)
    read_bytes          in [log start, end)
    source_start        a reconciliation compares with the brokers' records from here on
    source_end          and up to here; None before it has read them
    records             in the log's files, deleted ones included: what tasks are sized by
    hold_offset         an expiry leaves tombstones from here on for a reader; None if no reader blocks any
    hold_cap_ms         an expiry waits for that reader at most this long beyond their horizon
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
        """Return whether nothing is compacted: only the log start moves."""
        return self.first_dirty_offset == self.end_offset

    def ending_at(self, end_offset: int) -> PartitionWork:
        """Return the same work up to an earlier end. Its dirty bytes are estimated from the share of its offsets."""
        offsets = max(self.end_offset - self.first_dirty_offset, 1)
        dirty_bytes = self.dirty_bytes * (end_offset - self.first_dirty_offset) // offsets
        read_bytes = self.read_bytes - (self.dirty_bytes - dirty_bytes)
        return replace(self, end_offset=end_offset, dirty_bytes=dirty_bytes, read_bytes=read_bytes)


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """One Spark application's share of a round.

    `now_ms` is the clock of the run (Unix ms), `base_snapshot_id` the snapshot that the round reads. The name of the
    branch that it writes begins with `branch` (branch_stem).
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
    """Pack the works, in their order, into units of at most `unit_bytes` live bytes. A larger work is a unit alone."""
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


ROUND_BRANCH = "ct_"
"""Prefix of the branches of rounds."""


def branch_stem(round_id: str, unit: int) -> str:
    """Return the beginning of the name of a unit's branch. Each try of its task appends a time."""
    return f"{ROUND_BRANCH}{round_id}_u{unit}"


def round_name(now_ms: int, sequence_number: int) -> str:
    """Return a name for branches and evidence: the clock's time in UTC, and the table's sequence number."""
    stamp = datetime.fromtimestamp(min(now_ms, LAST_MOMENT_MS) / 1000, UTC).strftime("%Y%m%dT%H%M%S")
    return f"{stamp}_{now_ms % 1000:03d}_{sequence_number}"
