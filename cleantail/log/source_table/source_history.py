"""Says what a source table is at one moment: the snapshots of its branch, and what each has done. Pure.

1. A snapshot's summary counts what its writer has added and removed. A count that is left out is 0, as long as the
   writer counts at all.
2. Of a writer that counts nothing anything is possible: its snapshot may have added files, and unless it is an append
   it may have removed some.
3. A `replace` writes records anew that were there before. It neither brings nor removes any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cleantail.human import instant, whole_number

APPEND, REPLACE = "append", "replace"
_REMOVALS = (
    "deleted-data-files",
    "deleted-records",
    "added-delete-files",
    "added-position-delete-files",
    "added-equality-delete-files",
    "added-position-deletes",
    "added-equality-deletes",
    "added-dvs",
    "removed-delete-files",
    "removed-dvs",
)
"""Iceberg's entries of a snapshot's summary that count what it has taken away."""
_ADDITIONS = ("added-data-files", "added-records")
"""Those that count what it has brought."""
_KEEPS_COUNTS = "total-records"
"""The entry by which it is known that a writer counts at all: what it did not do is left out of a summary."""


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """Describes a snapshot of the source. `removes`: whether it has taken records away, or may have; `adds`: whether it
    has added data files, or may have, and how many bytes; `total_bytes`: of all files that it has, 0 where its writer
    does not say."""

    snapshot_id: int
    parent_id: int | None
    at_ms: int
    operation: str
    removes: bool
    adds: bool = True
    added_bytes: int = 0
    total_bytes: int = 0

    @classmethod
    def of_summary(
        cls, snapshot_id: int, parent_id: int | None, at_ms: int, operation: str, summary: Mapping[str, str]
    ) -> SourceSnapshot:
        """Returns what a snapshot has done, by its operation and its summary, as the rules of the module docstring read
        these."""
        removed, added = (any(_count(summary, name) for name in names) for names in (_REMOVALS, _ADDITIONS))
        unknown = not (removed or added or _KEEPS_COUNTS in summary)
        removes = operation != REPLACE and (removed or (unknown and operation != APPEND))
        sizes = _count(summary, "added-files-size"), _count(summary, "total-files-size")
        return cls(snapshot_id, parent_id, at_ms, operation, removes, added or unknown, *sizes)

    @property
    def is_read_by_itself(self) -> bool:
        """Returns whether it has added files which no scan of appends brings."""
        return self.adds and self.operation not in (APPEND, REPLACE)

    @property
    def text(self) -> str:
        """Names it in a sentence."""
        return f"snapshot {self.snapshot_id} of {instant(self.at_ms)} UTC ({self.operation})"


def _count(summary: Mapping[str, str], name: str) -> int:
    """Returns a count of the summary; 0 also for a text that is no number, which another writer may have put there."""
    return whole_number(summary.get(name, "0")) or 0


@dataclass(frozen=True, slots=True)
class SourceTable:
    """Describes the source at one moment. `history`: the ancestry of its branch, newest first, as far as it is kept;
    `kept`: the ids of all its snapshots, each with that of its parent."""

    catalog: str
    table: str
    uuid: str
    branch: str
    history: tuple[SourceSnapshot, ...]
    kept: Mapping[int, int | None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Returns the table with its catalog."""
        return f"{self.catalog}.{self.table}"
