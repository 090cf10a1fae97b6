"""The full proof of a log that is more than one task.

1. Each share sends the hashes of its keys to buckets, so that equal hashes come together: eight bytes for a key.
2. A bucket returns the hashes that it has met twice. Without any, all keys are unique.
3. Else the keys with such a hash come together in the same way, and are compared as they are.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io import load_file_io

from cleantail.config.platform import Platform
from cleantail.errors import CleantailError
from cleantail.lake.catalogs import file_io_properties
from cleantail.log.ranks.versions import Booleans
from spark_jobs.engine.columns.key_filter import Hashes
from spark_jobs.engine.columns.task_database import task_database
from spark_jobs.engine.log_task import LogTask
from spark_jobs.engine.shared.key_buckets import blobs, bucket_of, hashed, slices_by
from spark_jobs.engine.shared.shares import Share, shares_of, task_of_share
from spark_jobs.engine.tasks import Failed, described, require_done, require_python
from spark_jobs.engine.unique_keys import KEYS, KeyCounts, all_hashes, hashes_twice, key_batches, repeated_keys
from spark_jobs.iceberg.tables import TopicTable

HASHES, COUNT, KEYS_OF_BUCKET = "hashes", "count", "keys"
"""What a message to a bucket holds: hashes, the records of a share by log, or keys with a hash that is met twice."""
Message = tuple[str, Any]


def count_shared_keys(table: TopicTable, platform: Platform, task: LogTask) -> dict[int, KeyCounts]:
    """Returns partition -> the keys of the log in [log start, end), as count_keys does."""
    context, store = table.spark.sparkContext, file_io_properties(table.topic, platform, os.environ)
    require_python(context, platform)
    shipped = context.broadcast(task)
    try:
        with described(context, f"prove that all keys of {table.topic.topic} are unique"):
            found = _in_buckets(context, task, partial(_hashes_of_share, store, shipped), _twice)
            twice = np.concatenate([np.empty(0, np.uint64), *(part for kind, part in found if kind == HASHES)])
            again = []
            if len(twice):
                sent = context.broadcast(np.sort(twice))
                try:
                    again = _in_buckets(context, task, partial(_keys_of_share, store, shipped, sent), _repeated)
                finally:
                    sent.destroy()
    finally:
        shipped.destroy()
    return _counts(task, [part for kind, part in found if kind == COUNT], [part for _, part in again])


def _in_buckets(context: Any, task: LogTask, of_share: Any, of_bucket: Any) -> list[Message]:
    shares = shares_of(task)
    sent = context.parallelize(shares, len(shares)).flatMap(of_share)
    return require_done(sent.partitionBy(task.shares, int).values().mapPartitions(of_bucket).collect())


def _hashes_of_share(store: Mapping[str, str], shipped: Any, share: Share) -> Iterator[tuple[int, Any]]:
    task: LogTask = task_of_share(shipped.value, share)
    io, records = load_file_io(dict(store), task.location), [0] * len(task.works)
    try:
        with task_database(task.threads, task.memory_bytes) as database:
            hashes = all_hashes(database, key_batches(task, io, records))
    except CleantailError as e:
        yield 0, Failed(e)
        return
    for bucket, places in slices_by(bucket_of(hashes, task.shares)):
        yield bucket, (HASHES, hashes[places])
    yield 0, (COUNT, records)


def _twice(messages: Iterator[Any]) -> Iterator[Any]:
    parts = []
    for message in messages:
        if isinstance(message, Failed) or message[0] == COUNT:
            yield message
        else:
            parts.append(message[1])
    if parts:
        yield HASHES, hashes_twice(np.concatenate(parts))


def _keys_of_share(store: Mapping[str, str], shipped: Any, sent: Any, share: Share) -> Iterator[tuple[int, Any]]:
    task: LogTask = task_of_share(shipped.value, share)
    io, twice = load_file_io(dict(store), task.location), sent.value
    try:
        with task_database(task.threads, task.memory_bytes) as database:
            keys = hashed(database, KEYS, key_batches(task, io, [0] * len(task.works)))
            for bucket, blob in blobs(keys, partial(_is_among, twice), task.shares):
                yield bucket, (KEYS_OF_BUCKET, blob)
    except CleantailError as e:
        yield 0, Failed(e)


def _is_among(ordered: Hashes, hashes: Hashes) -> Booleans:
    place = np.minimum(np.searchsorted(ordered, hashes), len(ordered) - 1)
    among: Booleans = ordered[place] == hashes
    return among


def _repeated(messages: Iterator[Any]) -> Iterator[Any]:
    tables = []
    for message in messages:
        if isinstance(message, Failed):
            yield message
        else:
            tables.append(pa.ipc.open_stream(message[1]).read_all())
    if tables:
        yield KEYS_OF_BUCKET, repeated_keys(pa.concat_tables(tables))


def _counts(task: LogTask, records: list[list[int]], again: list[dict[int, tuple[int, int]]]) -> dict[int, KeyCounts]:
    more, keys = Counter[int](), Counter[int]()
    for part in again:
        for log, (records_more, keys_twice) in part.items():
            more[log] += records_more
            keys[log] += keys_twice
    total = [sum(of_log) for of_log in zip(*records, strict=True)]
    return {work.partition: KeyCounts(total[place] - more[place], keys[place]) for place, work in enumerate(task.works)}
