"""The records of a table's logs as messages to the buckets in which they meet the brokers' keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io

from cleantail.errors import CleantailError
from cleantail.log.winners import Booleans
from spark_jobs.engine.columns.records import Records, records_of
from spark_jobs.engine.columns.task_database import task_database
from spark_jobs.engine.log_task import Bounds, LogTask
from spark_jobs.engine.shared.key_buckets import RESULT, Message
from spark_jobs.engine.shared.shares import task_of_share
from spark_jobs.engine.source.broker_keys import in_buckets
from spark_jobs.engine.tasks import Failed
from spark_jobs.iceberg.log_files import LogFile, alive, all_of, read_deletes_in_task

TABLE = "table"
"""What a message to a bucket holds: records of the table."""
BEFORE, AFTER = 1, 2
"""Bits of `state`: whether the base has the record, and whether the branch has it."""
TABLE_KEYS = pa.schema(
    [
        ("log", pa.int32()),
        ("key", pa.binary()),
        ("offset", pa.int64()),
        ("tombstone", pa.bool_()),
        ("file", pa.int64()),
        ("pos", pa.int64()),
        ("state", pa.int8()),
    ]
)
Counting = Callable[[LogTask, Records, Booleans, Booleans], None]
"""Is shown the records of one batch, and which of them the base and the branch have."""


def messages_of_share(
    properties: Mapping[str, str],
    tasks: Any,
    buckets: int,
    counting: Callable[[LogTask], tuple[Counting, Callable[[], Any]]] | None,
    share: tuple[int, tuple[int, ...]],
) -> Iterator[tuple[int, Message]]:
    """Yields (bucket, records below the end of their log), and to the first bucket what a check has counted of all of
    them, or what went wrong. `share`: which of the broadcast tasks, and the numbers of its files."""
    number, files = share
    task = task_of_share(tasks.value[number], files)
    count, result = counting(task) if counting else (None, None)
    try:
        io = load_file_io(dict(properties), task.location)
        batches = (_batch(task, *each) for each in _records(task, io, count))
        with task_database(1, task.memory_bytes // max(task.threads, 1)) as database:
            for bucket, blob in in_buckets(database, TABLE_KEYS, batches, buckets):
                yield bucket, (TABLE, blob)
        if result:
            yield 0, (RESULT, result())
    except CleantailError as e:
        yield 0, (RESULT, Failed(e))


def _records(
    task: LogTask, io: FileIO, count: Counting | None
) -> Iterator[tuple[LogFile, Records, Booleans, Booleans]]:
    for _, file in task.numbered_files():
        before = alive(file.records, read_deletes_in_task(io, file.before, file))
        after = before
        if count:
            deleted = all_of(file.records) if file.lost else read_deletes_in_task(io, file.after, file)
            after = alive(file.records, deleted)
        for records in records_of(io, task, file, before | after, tombstones=True):
            if count:
                count(task, records, before[records.pos], after[records.pos])
            yield file, records, before, after


def _batch(task: LogTask, file: LogFile, records: Records, before: Booleans, after: Booleans) -> pa.RecordBatch:
    assert len(task.works) == 1 and records.tombstone is not None, "a topic's own table has one log in a file"
    bounds = Bounds.of(task)
    chosen = records.where((records.offset < bounds.end[0]) & (records.offset >= bounds.retained[0]))
    state = np.where(before[chosen.pos], BEFORE, 0) + np.where(after[chosen.pos], AFTER, 0)
    arrays = [
        pa.array(np.full(len(chosen), task.works[0].partition), pa.int32()),
        chosen.key,
        pa.array(chosen.offset, pa.int64()),
        pa.array(chosen.tombstone, pa.bool_()),
        pa.array(np.full(len(chosen), file.hash), pa.int64()),
        pa.array(chosen.pos, pa.int64()),
        pa.array(state, pa.int8()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=TABLE_KEYS)
