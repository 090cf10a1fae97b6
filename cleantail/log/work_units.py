"""Work units: how the logs of a round are shared out to Spark applications (docs/architecture.md, decision 7).

1. A large partition is a unit of its own: it fills an application.
2. Small partitions are packed together in their order, since the start of a JVM costs more than their work.
3. A unit holds numbers and identifiers that Cleantail made, and nothing of a record: it travels through XCom.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cleantail.codec import Codec

UNIT_BYTES = 8 << 30
"""A partition of this many live bytes fills a Spark application of its own. Below it the start of a JVM costs more than
the work, since no value is read."""


@dataclass(frozen=True, slots=True)
class PartitionWork:
    """Says what a round does to one log. It looks at records below `end_offset` and drops those below
    `log_start_offset`.

    `first_dirty_offset == end_offset` where only retention is due. Ends are exclusive, starts inclusive. Tombstones
    from `hold_offset` on wait for a reader, at most `hold_cap_ms` beyond their horizon. `dirty_records` is an upper
    limit of the records that the files may have in [first dirty, end). `dirty_bytes` and `read_bytes` are live bytes in
    [first dirty, end) and in [log start, end), by the files' metadata. This very run has set the horizons from
    `fresh_from` on, so their tombstones go in a later one.
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
    """Describes one Spark application's share of a round."""

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
    """Returns the works, in their order, as units of at most `unit_bytes` live bytes; one that is larger is a unit of
    its own."""
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
