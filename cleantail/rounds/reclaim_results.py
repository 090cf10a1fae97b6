"""Says what a reclaim has done: what its task hands on, and `cleantail reclaim` prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cleantail.codec import Codec

RECLAIMED = (
    "rewritten_files",
    "new_files",
    "expired_snapshots",
    "orphans_removed",
    "failed_branches_dropped",
    "evidence_files_merged",
    "side_snapshots_expired",
    "side_orphans_removed",
)
"""Counts of a reclaim, as its result names them, in the order in which people read them."""


@dataclass(frozen=True, slots=True)
class RewrittenFiles:
    """Holds data files that were rewritten: how many there were, how many took their place, and the bytes that the
    table has fewer for it."""

    files: int
    new_files: int
    freed_bytes: int


@dataclass(frozen=True, slots=True)
class ReclaimResult:
    """Says why there was something to reclaim, or nothing, and how much of what went. `side_`: of the side tables."""

    reasons: tuple[str, ...] = ()
    reclaimed_bytes: int = 0
    rewritten_files: int = 0
    new_files: int = 0
    expired_snapshots: int = 0
    orphans_removed: int = 0
    failed_branches_dropped: int = 0
    evidence_files_merged: int = 0
    side_snapshots_expired: int = 0
    side_orphans_removed: int = 0
    ok: bool = True

    @property
    def counts(self) -> Mapping[str, int]:
        """Returns the counts by their names in RECLAIMED."""
        return {name: getattr(self, name) for name in RECLAIMED}

    def with_files(self, rewritten: RewrittenFiles) -> ReclaimResult:
        """Returns this result with what rewriting more files has done."""
        return replace(
            self,
            rewritten_files=self.rewritten_files + rewritten.files,
            new_files=self.new_files + rewritten.new_files,
            reclaimed_bytes=self.reclaimed_bytes + rewritten.freed_bytes,
        )


RECLAIM_RESULT_JSON: Codec[ReclaimResult] = Codec(ReclaimResult)
