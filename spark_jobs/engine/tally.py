"""A task's counts of its logs: measures by name, and tombstones by entry (semantics.md 1.5, 3.3, 3.9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cleantail.config.config_model import LONG_MAX
from cleantail.log.partition_state import Horizon
from cleantail.log.winners import Booleans, Longs
from spark_jobs.engine.log_task import EntryCounts, LogCounts, LogTask
from spark_jobs.engine.task_records import Records


@dataclass(frozen=True, slots=True)
class TombstoneLedger:
    """The horizons of a log's tombstones, for tasks.

    spans        offsets [from, to) that can have live tombstones; a task counts only these
    entries      the ledger after the round's publish; tombstones are counted by the ends of its entries
    due          the ledger of this run; its horizons decide which tombstones below `clean_to` are due
    hold_offset  tombstones from here on are due `hold_cap_ms` later, for a reader; None without a hold
    """

    spans: tuple[tuple[int, int], ...]
    entries: tuple[Horizon, ...] = ()
    due: tuple[Horizon, ...] = ()
    clean_to: int = 0
    hold_offset: int | None = None
    hold_cap_ms: int = 0

    def in_spans(self, offsets: Longs) -> Booleans:
        merged = _merged(self.spans)
        if not merged:
            return np.zeros(len(offsets), np.bool_)
        starts, ends = (np.array(side, np.int64) for side in zip(*merged, strict=True))
        place = np.searchsorted(starts, offsets, "right") - 1
        return (place >= 0) & (offsets < ends[np.maximum(place, 0)])

    def past_horizon(self, offsets: Longs, now_ms: int) -> Booleans:
        """Return, for each offset, whether it is below the first dirty offset and past its horizon. If a reader holds
        the tombstone, the cap of the hold must also have passed."""
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
    """Return the spans in order. Merges spans that touch or overlap."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


@dataclass(slots=True)
class LogTally:
    """Counts of a log: measures by name, and tombstones by the end of their entry (LONG_MAX above the last entry)."""

    counts: Counter[str] = field(default_factory=Counter)
    tombstones: dict[int, EntryCounts] = field(default_factory=dict)

    def add_tombstones(self, ends: Longs, live: Booleans, guards: Booleans, offsets: Longs) -> None:
        """Add tombstones of the base. `live`: whether the branch has each. `guards`: whether a due one guards a key."""
        for end in np.unique(ends).tolist():
            inside = ends == end
            of_guards = offsets[inside & guards]
            added = EntryCounts(
                int(np.count_nonzero(inside)),
                int(np.count_nonzero(inside & live)),
                int(np.count_nonzero(inside & live & guards)),
                int(of_guards.min()) if len(of_guards) else None,
            )
            self.tombstones[end] = self.tombstones.get(end, EntryCounts()) + added

    def result(self, partition: int) -> LogCounts:
        by_entry = {None if end == LONG_MAX else end: counts for end, counts in self.tombstones.items()}
        return LogCounts(partition, dict(self.counts), by_entry)


Ledgers = Mapping[int, TombstoneLedger]


class Tally:
    """Counts by log. `logs` has a tally for each of the task's logs, in the order of its works."""

    def __init__(self, task: LogTask, ledgers: Ledgers) -> None:
        self.task, self.ledgers = task, ledgers
        self.logs = [LogTally() for _ in task.works]

    def add(self, records: Records, measures: Mapping[str, Booleans]) -> None:
        """Add to each measure its number of records, by log."""
        for log in records.logs():
            of_log = records.log == log if len(self.logs) > 1 else slice(None)
            for name, named in measures.items():
                self.logs[log].counts[name] += int(np.count_nonzero(named[of_log]))

    def add_places(self, place: np.ndarray[Any, Any], measures: Mapping[str, Booleans], sign: int = 1) -> None:
        """Add touched records, as `add` does. `place`: number of the log x files of the task + number of the file."""
        log = place // max(len(self.task.files), 1)
        for name, named in measures.items():
            for number, count in enumerate(np.bincount(log[named], minlength=len(self.logs)).tolist()):
                self.logs[number].counts[name] += sign * count

    def count_dirty(self, records_by_log: Mapping[int, int]) -> None:
        for log, records in records_by_log.items():
            self.logs[log].counts["map_records"] += records

    def add_tombstones(self, records: Records, live: Booleans, guards: Booleans | None = None) -> None:
        """Count the tombstones among the records in the ledgers' spans."""
        if records.tombstone is None or not records.tombstone.any():
            return
        for log in records.logs():
            ledger = self.ledgers.get(self.task.works[log].partition)
            chosen = records.tombstone & (records.log == log)
            if ledger is None or not chosen.any():
                continue
            chosen[chosen] = ledger.in_spans(records.offset[chosen])
            offsets = records.offset[chosen]
            held = np.zeros(len(offsets), np.bool_) if guards is None else guards[chosen]
            # of each offset the first end above it, or LONG_MAX above the last entry
            ends = _entry_values(ledger.entries, offsets, [h.end_offset for h in ledger.entries])
            self.logs[log].add_tombstones(ends, live[chosen], held, offsets)

    def result(self) -> list[LogCounts]:
        return [tally.result(work.partition) for work, tally in zip(self.task.works, self.logs, strict=True)]
