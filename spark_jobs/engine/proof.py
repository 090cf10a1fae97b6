"""The full proof: all keys below the ends are unique, whatever was proven before.

Hashes of keys are sorted, eight bytes for a key; only keys whose hash occurs twice are then compared as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io

from spark_jobs.engine.columns.records import Records, records_of
from spark_jobs.engine.columns.task_database import reading, task_database
from spark_jobs.engine.log_task import Bounds, LogTask
from spark_jobs.iceberg.log_files import BATCH_RECORDS, alive, read_deletes

KEYS = pa.schema([("log", pa.int32()), ("key", pa.binary())])


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """How many keys a log has, and how many of them more than one record has."""

    keys: int
    twice: int


def count_keys(properties: Mapping[str, str], task: LogTask) -> dict[int, KeyCounts]:
    """Returns partition -> the keys of the log in [log start, end). `task.files`: what is live."""
    io = load_file_io(dict(properties), task.location)
    records = [0] * len(task.works)
    with task_database(task.threads, task.memory_bytes) as database:
        hashes = hashes_twice(_hashes(database, task, io, records))
        again = _repeated(database, task, io, hashes) if len(hashes) else {}
    return {
        work.partition: KeyCounts(records[place] - again.get(place, (0, 0))[0], again.get(place, (0, 0))[1])
        for place, work in enumerate(task.works)
    }


def keyed_records(task: LogTask, io: FileIO) -> Iterator[Records]:
    """Yields the live records with a key in [log start, end)."""
    bounds = Bounds.of(task)
    for _, file in task.numbered_files():
        if file.may_hold(0, int(bounds.end.max())):
            keep = alive(file.records, read_deletes(io, file.before, file))
            for records in records_of(io, task, file, keep):
                inside = records.offset < bounds.end[records.log]
                inside &= records.offset >= bounds.start[records.log]
                yield records.where(inside & ~records.keyless)


def _batches(task: LogTask, io: FileIO, counts: list[int]) -> Iterator[pa.RecordBatch]:
    for records in keyed_records(task, io):
        for log in records.logs():
            counts[log] += int(np.count_nonzero(records.log == log))
        yield pa.RecordBatch.from_arrays([pa.array(records.log, pa.int32()), records.key], schema=KEYS)


def _hashes(database: Any, task: LogTask, io: FileIO, counts: list[int]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    with reading(database, "tail", KEYS, _batches(task, io, counts)):
        rows = database.sql("SELECT hash(key) AS h FROM tail").to_arrow_reader(BATCH_RECORDS)
        parts = [batch.column("h").to_numpy() for batch in rows]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def hashes_twice(hashes: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Returns the hashes that occur more than once."""
    hashes.sort()
    return np.unique(hashes[1:][hashes[1:] == hashes[:-1]])


def _repeated(
    database: Any, task: LogTask, io: FileIO, hashes: np.ndarray[Any, np.dtype[np.uint64]]
) -> dict[int, tuple[int, int]]:
    """Returns place of a log -> records beyond the first of their key, and keys that have any, among the keys with one
    of the hashes."""
    database.register("twice", pa.table({"h": pa.array(hashes, pa.uint64())}))
    with reading(database, "tail", KEYS, _batches(task, io, [0] * len(task.works))):
        rows = database.execute(
            "SELECT log, sum(records - 1)::BIGINT, count(*) FROM (SELECT log, key, count(*) AS records FROM tail "
            "SEMI JOIN twice ON hash(tail.key) = twice.h GROUP BY log, key HAVING count(*) > 1) GROUP BY log"
        ).fetchall()
    return {log: (more, keys) for log, more, keys in rows}
