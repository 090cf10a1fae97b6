"""The work of a round on each log, divided among Spark applications. Pure.

A round consists of work units, one Spark application each (docs/architecture.md, decision 7):

1. A large partition is a separate unit, because it fills an application.
2. Small partitions are packed together in their order, because the start of a JVM takes longer than their work.
3. A unit has only numbers and identifiers that Cleantail made, and no part of a record, because it is in an XCom.

In a group's DAG one application takes a pack of topics (cleantail.log.topic_packs).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from cleantail.codec import Codec
from cleantail.human import LAST_MOMENT_MS

UNIT_BYTES = 8 << 30
"""Live bytes at which a partition fills a Spark application."""


@dataclass(frozen=True, slots=True)
class PartitionWork:
    """The work of a round on one log. Starts are inclusive, ends exclusive. Bytes are live bytes by the files'
    metadata.

    first_dirty_offset  start of the offset map; equal to `end_offset` if only retention is due
    end_offset          the round reads records below it
    log_start_offset    the round drops records below it
    log_end_offset      one past the highest offset ever seen
    bytes               of the whole log; decides how units are packed
    dirty_records       upper limit of the records in [first dirty, end)
    dirty_bytes         in [first dirty, end)
    read_bytes          in [log start, end)
    source_start        a reconciliation compares with the brokers' records from here on
    source_end          and up to here; None before it has read them
    records             in the log's files, including deleted records; decides the size of tasks
    hold_offset         an expiry leaves tombstones from here on for a reader; None if no reader blocks any
    hold_cap_ms         an expiry waits for that reader at most this long beyond their horizon
    fresh_from          an expiry leaves horizons beyond this offset for a later run, because this run has set them
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
        """Return whether the round only moves the log start, without a compaction."""
        return self.first_dirty_offset == self.end_offset

    def ending_at(self, end_offset: int) -> PartitionWork:
        """Return the same work up to an earlier end. Estimates the dirty bytes from the share of offsets."""
        offsets = max(self.end_offset - self.first_dirty_offset, 1)
        dirty_bytes = self.dirty_bytes * (end_offset - self.first_dirty_offset) // offsets
        read_bytes = self.read_bytes - (self.dirty_bytes - dirty_bytes)
        return replace(self, end_offset=end_offset, dirty_bytes=dirty_bytes, read_bytes=read_bytes)


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """One Spark application's share of a round.

    `now_ms`: the clock of the run (Unix ms). `base_snapshot_id`: the snapshot that the round reads. `branch`: beginning
    of the name of the branch that it writes (branch_stem).
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
    """Pack the works, in their order, into units of at most `unit_bytes` live bytes. A larger work has its own unit."""
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
