"""What a task has counted of its logs: measures by name, and tombstones by the entries of the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cleantail.log.winners import Booleans
from spark_jobs.engine.columns.records import Records
from spark_jobs.engine.log_task import LogCounts, LogTask
from spark_jobs.engine.tombstone_entries import EntryTally, Ledgers


@dataclass(slots=True)
class LogTally:
    """Holds the counts of one log: measures by name, and tombstones by entry."""

    counts: Counter[str] = field(default_factory=Counter)
    tombstones: EntryTally = field(default_factory=EntryTally)


class Tally:
    """Counts by log. `logs` has a tally for each of the task's works, in their order."""

    def __init__(self, task: LogTask, ledgers: Ledgers) -> None:
        self.task, self.ledgers = task, ledgers
        self.logs = [LogTally() for _ in task.works]

    def add(self, records: Records, measures: Mapping[str, Booleans]) -> None:
        """Adds to each measure how many records it names, by log."""
        for log in records.logs():
            of_log = records.log == log if len(self.logs) > 1 else slice(None)
            for name, named in measures.items():
                self.logs[log].counts[name] += int(np.count_nonzero(named[of_log]))

    def add_places(self, place: np.ndarray[Any, Any], measures: Mapping[str, Booleans], sign: int = 1) -> None:
        """Does the same for touched records. `place`: number of the log x files of the task + number of the file."""
        log = place // max(len(self.task.files), 1)
        for name, named in measures.items():
            for number, count in enumerate(np.bincount(log[named], minlength=len(self.logs)).tolist()):
                self.logs[number].counts[name] += sign * count

    def count_dirty(self, records_by_log: Mapping[int, int]) -> None:
        """Counts the records of the dirty part."""
        for log, records in records_by_log.items():
            self.logs[log].counts["map_records"] += records

    def add_tombstones(self, records: Records, live: Booleans, guards: Booleans | None = None) -> None:
        """Counts the tombstones among the records, where the ledgers say that there can be any."""
        if records.tombstone is None or not records.tombstone.any():
            return
        for log in records.logs():
            ledger = self.ledgers.get(self.task.works[log].partition)
            chosen = records.tombstone & (records.log == log)
            if ledger is None or not chosen.any():
                continue
            chosen[chosen] = ledger.looked_at(records.offset[chosen])
            offsets = records.offset[chosen]
            held = np.zeros(len(offsets), np.bool_) if guards is None else guards[chosen]
            self.logs[log].tombstones.add(ledger.entry_ends(offsets), live[chosen], held, offsets)

    def result(self) -> list[LogCounts]:
        return [
            LogCounts(work.partition, dict(tally.counts), tally.tombstones.by_entry())
            for work, tally in zip(self.task.works, self.logs, strict=True)
        ]
