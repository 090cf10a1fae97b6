"""The dirty part of a task's logs: which keys it touches, which records are copies, and where the map is full."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO

from cleantail.log.task_shares import round_end
from cleantail.log.winners import Booleans, Longs, Ranks, ranks_by_offset
from spark_jobs.engine.columns.copies import Copies, DirtyOffsets
from spark_jobs.engine.columns.key_numbers import KEY_AND_OFFSET, TouchedKeys
from spark_jobs.engine.columns.offset_set import OffsetSet
from spark_jobs.engine.columns.records import Records, records_of
from spark_jobs.engine.columns.task_keys import TaskKeys
from spark_jobs.engine.log_task import Bounds, LogTask
from spark_jobs.iceberg.log_files import LogFile, alive, read_deletes_in_task

FileName = tuple[int, int]
"""The hash of a file's name, and the number of its piece."""


def name_of(file: LogFile) -> FileName:
    """Returns by what a file is known in this task."""
    return file.hash, file.piece


@dataclass(frozen=True, slots=True)
class LastRecords:
    """Holds the last dirty record of each key, where that alone says which record wins: by `offset`.

    `offsets`: by the key's number; `winners`: the same, to be asked. `files`: the dirty records of each file that has
    no others by its bounds, without their keys, so that nobody reads it again to see which of them win.
    """

    offsets: Longs
    winners: OffsetSet
    files: Mapping[FileName, Sequence[Records]]


@dataclass(frozen=True, slots=True)
class DirtyPart:
    """Says what the first pass over a task's files has found. `task` is as it was given, with the ends at which its
    maps are full. `touched`: the keys, which TaskKeys has. `last`: None where more has to be compared."""

    task: LogTask
    touched: TouchedKeys
    copies: Copies
    records: Mapping[int, int]
    last: LastRecords | None = None

    @property
    def best(self) -> Ranks | None:
        """Returns the best rank of each touched key, where it is known."""
        return None if self.last is None else ranks_by_offset(self.last.offsets)

    def decides(self, file: LogFile, keep: Booleans) -> bool:
        """Returns whether it is known which records of a file win: all that `keep` has are dirty, and were met."""
        met = None if self.last is None else self.last.files.get(name_of(file))
        return met is not None and sum(map(len, met)) == np.count_nonzero(keep)

    def may_touch(self, file: LogFile) -> bool:
        """Returns whether the file can have a touched key, by its bounds. Where several logs have one task their keys
        begin with the log, and bounds say nothing of them."""
        return len(self.task.works) > 1 or file.may_hold_keys(self.touched.low, self.touched.high)


def read_dirty_part(task: LogTask, io: FileIO, keys: TaskKeys) -> DirtyPart:
    """Reads the dirty part, [first dirty offset, end) of each log, and numbers its keys."""
    first = _FirstPass(task, io)
    touched = keys.number(first.batches())
    if task.max_keys is not None and first.last_keyed >= 0:
        [work] = task.works
        end = round_end(keys.offset_of_key(task.max_keys), first.last_keyed, work.end_offset)
        if end < work.end_offset:
            task, touched = replace(task, works=(work.ending_at(end),)), keys.leave_below(end)
    copies, last = first.offsets.copies(task.files), None
    if first.by_offset and not copies:
        by_number = keys.last_offsets()
        last = LastRecords(by_number, OffsetSet(by_number), first.files)
    return DirtyPart(task, touched, copies, first.offsets.records, last)


class _FirstPass:
    """Reads the dirty records once, and keeps what later steps ask of them.

    `last_keyed`: the highest offset of a record with a key, where the map may be full; -1 without any. `by_offset`: the
    last dirty record of each key wins. `files`: as LastRecords has them.
    """

    def __init__(self, task: LogTask, io: FileIO) -> None:
        self.offsets, self.last_keyed, self.by_offset = DirtyOffsets(), -1, _by_offset(task)
        self.files: dict[FileName, list[Records]] = {}
        self._task, self._io = task, io

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the keys and the offsets of the records, as TaskKeys takes them."""
        for file, records in dirty_records(self._task, self._io):
            if len(records):
                self._keep(file, records)
            yield pa.RecordBatch.from_arrays([records.key, pa.array(records.offset)], schema=KEY_AND_OFFSET)

    def _keep(self, file: LogFile, records: Records) -> None:
        self.offsets.add(file, records)
        keyless = records.keyless
        self.by_offset = self.by_offset and not keyless.any()
        if self._task.max_keys is not None and not keyless.all():
            self.last_keyed = max(self.last_keyed, int(records.offset[~keyless].max()))
        if self.by_offset and _is_dirty_file(self._task, file):
            self.files.setdefault(name_of(file), []).append(replace(records, key=None))


def _by_offset(task: LogTask) -> bool:
    """Returns whether the last dirty record of a key wins, and its offset names it, as far as the task tells: in one
    log, by `offset`, with no remembered deletions and no map that may be full before the end."""
    by_offset = task.configs.compaction_strategy == "offset" and not task.remembered.files
    return by_offset and len(task.works) == 1 and task.max_keys is None


def _is_dirty_file(task: LogTask, file: LogFile) -> bool:
    """Returns whether all records of the file are dirty, by its bounds."""
    [work] = task.works
    return file.log is not None and file.lies_in(work.first_dirty_offset, work.end_offset)


def decided_records(
    dirty: DirtyPart, io: FileIO, file: LogFile, keep: Booleans, tombstones: bool = False
) -> Iterator[tuple[Records, Booleans]]:
    """Yields the records of a file that the dirty part decides, without their keys, and which of them win. The file is
    read again only where it has `tombstones` that are asked for."""
    assert dirty.last is not None, "decides(file, keep) was asked"
    met: Iterable[Records] = dirty.last.files[name_of(file)]
    if tombstones and file.null_values != 0:
        met = records_of(io, dirty.task, file, keep, keys=False, tombstones=True)
    for records in met:
        if len(records):
            yield records, dirty.last.winners.among(records.offset)


def dirty_records(task: LogTask, io: FileIO) -> Iterator[tuple[LogFile, Records]]:
    """Yields the records of the dirty part that the base has, batch by batch."""
    bounds = Bounds.of(task)
    low, end = int(bounds.first.min()), int(bounds.end.max())
    for _, file in task.numbered_files():
        if file.may_hold(low, end):
            keep = alive(file.records, read_deletes_in_task(io, file.before, file))
            for records in records_of(io, task, file, keep):
                yield file, records.where(is_dirty(records, bounds))


def is_dirty(records: Records, bounds: Bounds) -> Booleans:
    """Returns which records lie in the dirty part."""
    inside: Booleans = np.logical_and(
        records.offset >= bounds.first[records.log], records.offset < bounds.end[records.log]
    )
    return inside
