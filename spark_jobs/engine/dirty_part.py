"""The dirty part of a task's logs: which keys it touches, which records are copies, and where the map is full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO

from cleantail.log.policy.offset_map import round_end
from cleantail.log.ranks.versions import Booleans
from spark_jobs.engine.columns.copies import Copies, DirtyOffsets
from spark_jobs.engine.columns.key_numbers import (
    KEY_AND_OFFSET,
    TouchedKeys,
    number_keys,
    offset_of_key,
    without_keys_from,
)
from spark_jobs.engine.columns.records import Records, records_of
from spark_jobs.engine.log_task import Bounds, LogTask
from spark_jobs.iceberg.log_files import LogFile, alive, read_deletes


@dataclass(frozen=True, slots=True)
class DirtyPart:
    """Says what the first pass over a task's files has found. `task` is as it was given, with the ends at which its
    maps are full. `touched` is the database's table of that name."""

    task: LogTask
    touched: TouchedKeys
    copies: Copies
    records: Mapping[int, int]

    def may_touch(self, file: LogFile) -> bool:
        """Returns whether the file can have a touched key, by its bounds. Where several logs have one task their keys
        begin with the log, and bounds say nothing of them."""
        return len(self.task.works) > 1 or file.may_hold_keys(self.touched.low, self.touched.high)


def read_dirty_part(task: LogTask, io: FileIO, database: Any) -> DirtyPart:
    """Reads the dirty part, [first dirty offset, end) of each log, and numbers its keys."""
    offsets, last_keyed = DirtyOffsets(), [-1]

    def batches() -> Iterator[pa.RecordBatch]:
        for file, records in dirty_records(task, io):
            offsets.add(file, records)
            if len(records) and task.max_keys is not None and not records.keyless.all():
                last_keyed[0] = max(last_keyed[0], int(records.offset[~records.keyless].max()))
            yield pa.RecordBatch.from_arrays([records.key, pa.array(records.offset)], schema=KEY_AND_OFFSET)

    touched = number_keys(database, batches())
    if task.max_keys is not None and last_keyed[0] >= 0:
        [work] = task.works
        end = round_end(offset_of_key(database, task.max_keys), last_keyed[0], work.end_offset)
        if end < work.end_offset:
            task, touched = replace(task, works=(work.ending_at(end),)), without_keys_from(database, end)
    return DirtyPart(task, touched, offsets.copies(task.files), offsets.records)


def dirty_records(task: LogTask, io: FileIO) -> Iterator[tuple[LogFile, Records]]:
    """Yields the records of the dirty part that the base has, batch by batch."""
    bounds = Bounds.of(task)
    low, end = int(bounds.first.min()), int(bounds.end.max())
    for _, file in task.numbered_files():
        if file.may_hold(low, end):
            keep = alive(file.records, read_deletes(io, file.before, file))
            for records in records_of(io, task, file, keep):
                yield file, records.where(is_dirty(records, bounds))


def is_dirty(records: Records, bounds: Bounds) -> Booleans:
    """Returns which records lie in the dirty part."""
    inside: Booleans = np.logical_and(
        records.offset >= bounds.first[records.log], records.offset < bounds.end[records.log]
    )
    return inside
