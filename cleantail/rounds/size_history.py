"""Says how large a table was over time, and what compaction has saved: from the summaries of its snapshots.

A summary is part of the table's metadata, so nothing is opened to know it. Snapshots that have expired are unknown:
the history is as long as cleantail.snapshot.retention.ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cleantail.human import whole_number
from cleantail.log.segments import DataFile
from cleantail.rounds.rollback import OPERATION, REGISTERED_ONCE, ROUNDS

ROUNDED_BYTES = 1024
"""Two estimates of bytes that differ by less agree."""


@dataclass(frozen=True, slots=True)
class SizePoint:
    """Describes a table as one snapshot left it. `live_bytes` are file bytes x share of records that are not
    deleted."""

    at_ms: int
    operation: str
    file_bytes: int
    live_bytes: int
    reclaimed_bytes: int


@dataclass(frozen=True, slots=True)
class Saved:
    """Says what compaction has saved. `hidden_bytes`: in files now, of records that delete files hide; falls when a
    rewrite frees them. `reclaimed_bytes`: freed by rewrites, as far as known. `so_far_bytes`: what all published rounds
    have hidden from readers, by their evidence; falls only when rounds are undone, and None while nobody has counted
    it. A record's bytes are its share of its file's: an estimate."""

    hidden_bytes: int
    reclaimed_bytes: int
    so_far_bytes: int | None = None

    @property
    def unrecorded(self) -> bool:
        """Returns whether more is hidden now than the evidence has counted, as by rounds of a version that did not
        record it. Both are rounded, file by file and round by round: so little is no difference."""
        missing = self.hidden_bytes - (self.so_far_bytes or 0)
        return self.so_far_bytes is not None and missing > max(self.hidden_bytes // 100, ROUNDED_BYTES)


def size_point(at_ms: int, operation: str, summary: Mapping[str, str]) -> SizePoint:
    """Returns the point of one snapshot; counts that its writer left out are 0."""
    file_bytes = _number(summary, "total-files-size")
    records, deleted = _number(summary, "total-records"), _number(summary, "total-position-deletes")
    live = file_bytes * max(records - deleted, 0) // records if records else 0
    freed = _number(summary, "removed-files-size") - _number(summary, "added-files-size")
    # files that are registered once from then on free no byte
    reclaimed = max(freed, 0) if operation == "replace" and summary.get(OPERATION) != REGISTERED_ONCE else 0
    return SizePoint(at_ms, summary.get(OPERATION) or operation, file_bytes, live, reclaimed)


def last_round_at_ms(points: Iterable[SizePoint]) -> int | None:
    """Returns when a round was last published, by the wall clock; None where no kept snapshot is of one."""
    return max((p.at_ms for p in points if p.operation in ROUNDS), default=None)


def _number(summary: Mapping[str, str], name: str) -> int:
    return whole_number(summary.get(name) or "0") or 0


def saved(
    files: Iterable[DataFile], points: Iterable[SizePoint], recorded_bytes: int = 0, so_far_bytes: int | None = None
) -> Saved:
    """Returns what compaction has saved in one table. `recorded_bytes`: reclaimed as the evidence has it, which knows
    it for good, but not of reclaims by earlier versions; the snapshots may know of those."""
    kept = sum(p.reclaimed_bytes for p in points)
    return Saved(sum(f.size_bytes - f.live_bytes for f in files), max(kept, recorded_bytes), so_far_bytes)
