"""Tombstones by the entries of a log's ledger, over columns (semantics.md 1.5, 3.3, 3.9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cleantail.config.config_model import LONG_MAX
from cleantail.log.partition_state import Horizon
from cleantail.log.winners import Booleans, Longs
from spark_jobs.engine.log_task import EntryCounts


@dataclass(frozen=True, slots=True)
class TombstoneLedger:
    """Says what a task knows of a log's tombstones.

    spans        offsets [from, to) where live tombstones can be; elsewhere none are looked for
    entries      the ledger as it is once the round is published: by its ends they are counted
    due          the ledger as this run is to take it: by its horizons they are due, below `clean_to`
    hold_offset  tombstones from here on are due `hold_cap_ms` later, for a reader; None where no reader holds any
    """

    spans: tuple[tuple[int, int], ...]
    entries: tuple[Horizon, ...] = ()
    due: tuple[Horizon, ...] = ()
    clean_to: int = 0
    hold_offset: int | None = None
    hold_cap_ms: int = 0

    def looked_at(self, offsets: Longs) -> Booleans:
        """Returns which of the offsets lie in the spans."""
        merged = _merged(self.spans)
        if not merged:
            return np.zeros(len(offsets), np.bool_)
        starts, ends = (np.array(side, np.int64) for side in zip(*merged, strict=True))
        place = np.searchsorted(starts, offsets, "right") - 1
        return (place >= 0) & (offsets < ends[np.maximum(place, 0)])

    def entry_ends(self, offsets: Longs) -> Longs:
        """Returns the end of the entry that each offset is in: the first round whose end is above it; LONG_MAX above
        the last."""
        return _entry_values(self.entries, offsets, [h.end_offset for h in self.entries])

    def past_horizon(self, offsets: Longs, now_ms: int) -> Booleans:
        """Returns whose horizon has come, below the clean point; of those that a reader has not read, once the cap of
        its hold has passed, too."""
        horizon_ms = _entry_values(self.due, offsets, [h.horizon_ms for h in self.due])
        if self.hold_offset is not None:
            later = np.where(horizon_ms > LONG_MAX - self.hold_cap_ms, LONG_MAX, horizon_ms + self.hold_cap_ms)
            horizon_ms = np.where(offsets >= self.hold_offset, later, horizon_ms)
        past: Booleans = (horizon_ms <= now_ms) & (offsets < self.clean_to) & (horizon_ms != LONG_MAX)
        return past


def _entry_values(entries: Sequence[Horizon], offsets: Longs, values: Sequence[int]) -> Longs:
    ends = np.array([h.end_offset for h in entries], np.int64)
    return np.array([*values, LONG_MAX], np.int64)[np.searchsorted(ends, offsets, "right")]


def _merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the spans in order, those that touch or overlap as one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


@dataclass(slots=True)
class EntryTally:
    """Counts the tombstones of a log by the end of their entry."""

    counts: dict[int, EntryCounts] = field(default_factory=dict)

    def add(self, ends: Longs, live: Booleans, guards: Booleans, offsets: Longs) -> None:
        """Adds tombstones of the base: which of them the branch still has, and which are due but guard a key."""
        for end in np.unique(ends).tolist():
            inside = ends == end
            of_guards = offsets[inside & guards]
            added = EntryCounts(
                int(np.count_nonzero(inside)),
                int(np.count_nonzero(inside & live)),
                int(np.count_nonzero(inside & live & guards)),
                int(of_guards.min()) if len(of_guards) else None,
            )
            self.counts[end] = self.counts.get(end, EntryCounts()) + added

    def by_entry(self) -> dict[int | None, EntryCounts]:
        """Returns the counts by the entry's end, None above the last entry."""
        return {None if end == LONG_MAX else end: counts for end, counts in self.counts.items()}


Ledgers = Mapping[int, TombstoneLedger]
"""Partition -> what a task knows of that log's tombstones."""
