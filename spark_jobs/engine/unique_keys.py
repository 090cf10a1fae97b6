"""The full proof in one task: all keys below the ends are unique, whatever was proven before.

A few keys are compared as they are. Of more, hashes are sorted, eight bytes for a key; only keys whose hash occurs
twice are then compared as they are.
A log of several tasks is proven by spark_jobs.engine.shared.unique_shared_keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO, load_file_io

from spark_jobs.engine.columns.key_filter import Hashes
from spark_jobs.engine.columns.records import Records, records_of
from spark_jobs.engine.columns.task_database import reading, task_database
from spark_jobs.engine.columns.task_keys import held_batches, held_bytes
from spark_jobs.engine.log_task import Bounds, LogTask
from spark_jobs.iceberg.log_files import BATCH_RECORDS, alive, read_deletes_in_task

KEYS = pa.schema([("log", pa.int32()), ("key", pa.binary())])
Repeated = dict[int, tuple[int, int]]
"""Place of a log -> records beyond the first of their key, and keys that have any."""


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """Says how many keys a log has, and how many of them more than one record has."""

    keys: int
    twice: int


def count_keys(properties: Mapping[str, str], task: LogTask) -> dict[int, KeyCounts]:
    """Returns partition -> the keys of the log in [log start, end). `task.files`: what is live."""
    io = load_file_io(dict(properties), task.location)
    records = [0] * len(task.works)
    held, more = held_batches(key_batches(task, io, records), held_bytes(task))
    if more is None:
        again = repeated_keys(pa.Table.from_batches(held, KEYS))
    else:
        with task_database(task.threads, task.memory_bytes) as database:
            hashes = hashes_twice(all_hashes(database, chain(held, more)))
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
            keep = alive(file.records, read_deletes_in_task(io, file.before, file))
            for records in records_of(io, task, file, keep):
                inside = records.offset < bounds.end[records.log]
                inside &= records.offset >= bounds.start[records.log]
                yield records.where(inside & ~records.keyless)


def key_batches(task: LogTask, io: FileIO, counts: list[int]) -> Iterator[pa.RecordBatch]:
    """Yields (log, key) of these records, and adds to `counts` how many each log has."""
    for records in keyed_records(task, io):
        for log in records.logs():
            counts[log] += int(np.count_nonzero(records.log == log))
        yield pa.RecordBatch.from_arrays([pa.array(records.log, pa.int32()), records.key], schema=KEYS)


def all_hashes(database: Any, batches: Iterable[pa.RecordBatch]) -> Hashes:
    """Returns the hash of each key of the batches (KEYS)."""
    with reading(database, "tail", KEYS, batches):
        rows = database.sql("SELECT hash(key) AS h FROM tail").to_arrow_reader(BATCH_RECORDS)
        parts = [batch.column("h").to_numpy() for batch in rows]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def hashes_twice(hashes: Hashes) -> Hashes:
    """Returns the hashes that occur more than once."""
    hashes.sort()
    return np.unique(hashes[1:][hashes[1:] == hashes[:-1]])


def _repeated(database: Any, task: LogTask, io: FileIO, hashes: Hashes) -> Repeated:
    """Returns what is repeated among the keys with one of the hashes."""
    database.register("twice", pa.table({"h": pa.array(hashes, pa.uint64())}))
    with reading(database, "tail", KEYS, key_batches(task, io, [0] * len(task.works))):
        keys = database.sql("SELECT tail.* FROM tail SEMI JOIN twice ON hash(tail.key) = twice.h").to_arrow_table()
    return repeated_keys(keys)


def repeated_keys(keys: pa.Table) -> Repeated:
    """Returns the same for keys (log, key)."""
    counted = keys.group_by(["log", "key"]).aggregate([([], "count_all")])
    twice = counted.filter(pc.greater(counted["count_all"], 1))
    by_log = twice.group_by("log").aggregate([("count_all", "sum"), ([], "count_all")]).to_pylist()
    return {row["log"]: (row["count_all_sum"] - row["count_all"], row["count_all"]) for row in by_log}
