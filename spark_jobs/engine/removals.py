"""Find the records that a round removes, in one task.

A record is removed for the first of these reasons that applies (semantics.md 1.4, 3.5, 3.7):

1. `retention`: it is below the log start, and the policy deletes.
2. `copies`: an earlier record of the same offset survives.
3. `invalid`: it has no key, and is below the end.
4. `superseded`: another record of its key wins, or a remembered deletion does.

A file is read only if it can hold such a record by its metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io
from pyroaring import BitMap64

from cleantail.log.winners import Booleans, Ranks
from spark_jobs.engine.dirty_part import DirtyPart, decided_records, is_dirty, read_dirty_part
from spark_jobs.engine.log_task import Bounds, LogRemovals, LogTask
from spark_jobs.engine.task_keys import task_keys
from spark_jobs.engine.task_records import (
    DIRTY,
    Records,
    TouchedRecords,
    batch_of,
    flags_of,
    positions_by_place,
    records_of,
    remembered_ranks,
    touched_records,
    verdict_of,
    versioned,
)
from spark_jobs.iceberg.log_files import LogFile, alive, read_deletes_in_task

RETENTION, COPIES, INVALID, SUPERSEDED = "retention", "copies", "invalid", "superseded"


class Removed:
    """Collects positions by reason, log and file, and the keyless records of each log."""

    def __init__(self) -> None:
        self.positions: dict[str, dict[int, BitMap64]] = {}
        self.keyless: dict[int, tuple[int, int]] = {}
        self.last: dict[int, int] = {}

    def add(self, reason: str, places: Mapping[int, BitMap64]) -> None:
        by_place = self.positions.setdefault(reason, {})
        for place, positions in places.items():
            by_place[place] = by_place[place] | positions if place in by_place else positions

    def add_records(self, reason: str, task: LogTask, file_number: int, records: Records, chosen: Booleans) -> None:
        if chosen.any():
            place = records.log[chosen] * len(task.files) + file_number
            self.add(reason, positions_by_place(place, records.pos[chosen]))

    def add_last(self, records: Records, chosen: Booleans) -> None:
        """Note the highest offset of the chosen records, by log."""
        gone = records.where(chosen)
        for log in gone.logs():
            highest = int(gone.offset[gone.log == log].max())
            self.last[log] = max(self.last.get(log, 0), highest)

    def count_keyless(self, records: Records, chosen: Booleans) -> None:
        for log in np.unique(records.log[chosen]).tolist():
            offsets = records.offset[chosen & (records.log == log)]
            count, first = self.keyless.get(log, (0, int(offsets.min())))
            self.keyless[log] = (count + len(offsets), min(first, int(offsets.min())))

    def result(self, task: LogTask, planned: LogTask) -> LogRemovals:
        """Return the collected records, by partitions and hashes of file names."""
        positions = {reason: _by_log_and_file(task, by_place) for reason, by_place in self.positions.items()}
        keyless = {task.works[log].partition: records for log, records in self.keyless.items()}
        ends = {
            work.partition: work.end_offset
            for work, before in zip(task.works, planned.works, strict=True)
            if work.end_offset != before.end_offset
        }
        last = {task.works[log].partition: offset for log, offset in self.last.items()}
        return LogRemovals(positions, keyless, ends, last)


def _by_log_and_file(task: LogTask, by_place: Mapping[int, BitMap64]) -> dict[tuple[int, int], bytes]:
    """Return the positions by partition and hash of the file's name, with a file's pieces together."""
    files, by_name = len(task.files), dict[tuple[int, int], BitMap64]()
    for place, positions in by_place.items():
        name = task.works[place // files].partition, task.files[place % files].hash
        by_name[name] = by_name[name] | positions if name in by_name else positions
    return {name: positions.serialize() for name, positions in by_name.items()}


def find_removals(properties: Mapping[str, str], task: LogTask) -> LogRemovals:
    """Return the task's removals. `properties`: of PyIceberg's FileIO, with the store's secrets."""
    io = load_file_io(dict(properties), task.location)
    with task_keys(task) as keys:
        dirty = read_dirty_part(task, io, keys)
        removed = Removed()
        records = touched_records(dirty.task, keys, competing(dirty, task, io, removed))
        ranks = remembered_ranks(dirty.task, io, keys, dirty.touched.count)
        add_superseded(removed, records, dirty.touched.count, ranks, dirty.best)
        return removed.result(dirty.task, task)


def read_share(dirty: DirtyPart, io: FileIO) -> tuple[Iterator[pa.RecordBatch], Callable[[], LogRemovals]]:
    """Return a share's records that need a decision by key, and a function that returns its other removals."""
    removed = Removed()
    return competing(dirty, dirty.task, io, removed), lambda: removed.result(dirty.task, dirty.task)


def decide_bucket(
    task: LogTask, records: TouchedRecords, count: int, remembered: Ranks | None, best: Ranks | None = None
) -> LogRemovals:
    """Return the superseded records of a bucket. `best`: as in verdict_of."""
    removed = Removed()
    add_superseded(removed, records, count, remembered, best)
    return removed.result(task, task)


def add_superseded(
    removed: Removed, records: TouchedRecords, count: int, remembered: Ranks | None, best: Ranks | None = None
) -> None:
    """Add the touched records that do not win."""
    verdict = verdict_of(records, count, remembered, best)
    loses = verdict.known & ~verdict.winner
    removed.add(SUPERSEDED, positions_by_place(records.place[loses], records.pos[loses]))


def competing(dirty: DirtyPart, planned: LogTask, io: FileIO, removed: Removed) -> Iterator[pa.RecordBatch]:
    """Yield the records with a key that are below the end, and add to `removed` those with another reason."""
    task, bounds, ends = dirty.task, Bounds.of(dirty.task), Bounds.of(planned).end
    for number, file in task.numbered_files():
        if not _may_lose(file, dirty, bounds, int(ends.max())):
            continue
        copies = dirty.copies.of(file)
        keep = alive(file.records, read_deletes_in_task(io, file.before, file))
        if dirty.decides(file, keep):
            for records, wins in decided_records(dirty, io, file, keep):
                removed.add_records(SUPERSEDED, task, number, records, ~wins)
            continue
        for records in records_of(io, task, file, keep, versions=versioned(task)):
            keyless = records.keyless
            below, past = records.offset < bounds.end[records.log], records.offset < bounds.start[records.log]
            retained = records.offset < bounds.retained[records.log]
            in_dirty = is_dirty(records, bounds)
            copy = copies.among(records, in_dirty) & ~retained
            removed.count_keyless(records, keyless & ~past & (records.offset < ends[records.log]))
            removed.add_records(RETENTION, task, number, records, retained)
            removed.add_records(COPIES, task, number, records, copy)
            removed.add_records(INVALID, task, number, records, keyless & below & ~retained & ~copy)
            rest = below & ~retained & ~copy & ~keyless
            flags = flags_of(task, past) + np.where(in_dirty, DIRTY, 0)
            chosen = records.where(rest)
            yield batch_of(task, number, chosen, flags[rest], chosen.versions(task))


def _may_lose(file: LogFile, dirty: DirtyPart, bounds: Bounds, planned_end: int) -> bool:
    """Return whether, by its metadata, the file can hold a record that is removed or that blocks its log.

    If a log takes several rounds, a keyless record blocks it before the first, even if it lies beyond that round's
    end.
    """
    return (
        file.may_hold(0, int(bounds.retained.max()))
        or (file.null_keys != 0 and file.may_hold(0, planned_end))
        or (file.may_hold(0, int(bounds.end.max())) and (dirty.may_touch(file) or bool(dirty.copies)))
    )
