"""The records of a task's files as columns: log, offset, key, position, and what the round needs beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from cleantail.config.topic_table import HEADERS, KEY, OFFSET, ORDER, PARTITION, TIMESTAMP, TOMBSTONE, VALUE
from cleantail.errors import TableError
from cleantail.log.winners import Booleans, Longs, Numbers, Versions, versions_of
from spark_jobs.engine.log_task import LogTask
from spark_jobs.iceberg.log_files import LogFile, column_batches

VERSION_COLUMN = {"timestamp": (TIMESTAMP,), "header": (HEADERS,), "order": (ORDER,), "offset": ()}


@dataclass(frozen=True, slots=True)
class Records:
    """Holds some records of one file. `log`: the place of each record's log among the task's works. `key` is None where
    it was not asked for; where a task has several logs, it begins with the log, so that equal keys of two logs differ.
    """

    log: Numbers
    offset: Longs
    pos: Longs
    key: pa.Array | None
    tombstone: Booleans | None
    timestamps: pa.Array | None
    headers: pa.Array | None
    orders: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.offset)

    def where(self, chosen: Booleans) -> Records:
        """Returns the chosen records."""
        if chosen.all():
            return self
        mask = pa.array(chosen)
        arrays = (self.timestamps, self.headers, self.orders)
        key, *more = (None if array is None else array.filter(mask) for array in (self.key, *arrays))
        tombstone = None if self.tombstone is None else self.tombstone[chosen]
        return Records(self.log[chosen], self.offset[chosen], self.pos[chosen], key, tombstone, *more)

    def logs(self) -> list[int]:
        """Returns the places of the logs that there are records of."""
        if not len(self):
            return []
        low, high = int(self.log.min()), int(self.log.max())
        return [low] if low == high else np.unique(self.log).tolist()

    @property
    def keyless(self) -> Booleans:
        assert self.key is not None, "keys were not asked for"
        if not self.key.null_count:
            return np.zeros(len(self), np.bool_)
        null: Booleans = pc.is_null(self.key).to_numpy(zero_copy_only=False)
        return null

    def versions(self, task: LogTask) -> Versions:
        """Returns the records' versions by the topic's strategy."""
        return versions_of(self.timestamps, self.headers, len(self), task.configs, task.now_ms, self.orders)


def records_of(
    io: FileIO,
    task: LogTask,
    file: LogFile,
    keep: Booleans,
    keys: bool = True,
    versions: bool = False,
    tombstones: bool = False,
) -> Iterator[Records]:
    """Yields the records of a file that `keep` has, and that are of the task's logs. Raises TableError for a file that
    is not what its metadata say."""
    columns = [*(() if file.log is not None else (PARTITION,)), OFFSET, *((KEY,) if keys else ())]
    columns += VERSION_COLUMN[task.configs.compaction_strategy] if versions else ()
    columns += _tombstone_columns(file, tombstones)
    for at, arrays in column_batches(io, file, task.layout, columns):
        require_place(arrays, file)
        records = _records(task, file, at, arrays, keys, tombstones)
        ours = keep[at : at + len(records)] & (records.log >= 0)
        yield records.where(ours)


def require_place(arrays: Mapping[str, pa.Array], file: LogFile) -> None:
    """Raises TableError for records that no column puts into a log: the file lacks it, and nothing stands for it."""
    read = (OFFSET,) if file.log is not None else (OFFSET, PARTITION)
    if any(name not in arrays or (len(arrays[name]) and arrays[name].null_count == len(arrays[name])) for name in read):
        raise TableError(f"{file.path} has no column for the offset or the partition, by the table's field ids")


def _tombstone_columns(file: LogFile, tombstones: bool) -> Sequence[str]:
    """Returns what has to be read to know tombstones: nothing where the metadata say that the file has none, and no
    value where each record says by itself what it is."""
    if not tombstones or file.null_values == 0:
        return ()
    return (TOMBSTONE,) if file.marked else (VALUE,)


def _records(
    task: LogTask, file: LogFile, at: int, arrays: dict[str, pa.Array], keys: bool, tombstones: bool
) -> Records:
    offset = _numbers(arrays[OFFSET])
    log = _logs(task, file, arrays.get(PARTITION), len(offset))
    key = arrays.get(KEY, pa.nulls(len(offset), pa.binary())) if keys else None
    if key is not None and len(task.works) > 1:
        key = with_log(log, key)
    pos = np.arange(at, at + len(offset), dtype=np.int64)
    flags = _tombstones(file, arrays, len(offset)) if tombstones else None
    more = (arrays.get(name) for name in (TIMESTAMP, HEADERS, ORDER))
    return Records(log, offset, pos, key, flags, *more)


def _logs(task: LogTask, file: LogFile, partitions: pa.Array | None, records: int) -> Any:
    """Returns the place of each record's log among the works; -1 where it is none of the task's."""
    known: Longs = np.array([work.partition for work in task.works], np.int64)
    if partitions is None:
        [place] = np.flatnonzero(known == file.log)
        return np.broadcast_to(np.int32(place), records)
    numbers = _numbers(partitions)
    nearest: Longs = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    return np.where(known[nearest] == numbers, nearest, -1).astype(np.int32)


def _numbers(array: pa.Array) -> Longs:
    numbers: Longs = (array if not array.null_count else pc.fill_null(array, -1)).to_numpy(zero_copy_only=False)
    return numbers


def with_log(log: Numbers, key: pa.Array) -> pa.Array:
    """Returns the keys with four bytes of their log before them; null stays null."""
    prefixes = _prefixes(log)
    return pc.binary_join_element_wise(prefixes, key, pa.scalar(b"", pa.binary()))


def _prefixes(log: Numbers) -> pa.Array:
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(4), len(log), [None, pa.py_buffer(np.ascontiguousarray(log, dtype=">i4").tobytes())]
    )
    return fixed.cast(pa.binary())


def _tombstones(file: LogFile, arrays: dict[str, pa.Array], records: int) -> Booleans:
    """Returns which records are tombstones: by the column that says so, else by values that are null; none where the
    metadata say so, or where the mapping of an adopted table has no value."""
    if file.null_values == 0:
        return np.zeros(records, np.bool_)
    if TOMBSTONE in arrays:
        marks: Booleans = arrays[TOMBSTONE].to_numpy(zero_copy_only=False)
        return marks
    if VALUE in arrays:
        null: Booleans = pc.is_null(arrays[VALUE]).to_numpy(zero_copy_only=False)
        return null
    return np.zeros(records, np.bool_)
