"""A log that is more than one task, and whose offset map fits into each of them: the map is merged and shipped.

1. Each share reads its dirty records, and hands back their keys, each with its highest offset.
2. The driver merges these, and Spark ships the map to every share: a key's number is its place there.
3. Each share goes through its files. By `offset` it decides by itself: the map says which record of a key wins.
4. By `timestamp` or `header` records of one key in two shares have to be compared. They are shuffled by the number of
   their key, without the key, and each bucket of numbers decides.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO, load_file_io

from cleantail.log.winners import Ranks, ranks_by_offset
from spark_jobs.engine.columns.copies import DirtyOffsets
from spark_jobs.engine.columns.key_numbers import KEY_AND_OFFSET, TouchedKeys
from spark_jobs.engine.columns.keys_in_database import KeysInDatabase
from spark_jobs.engine.columns.task_database import reading, task_database
from spark_jobs.engine.dirty_part import DirtyPart, dirty_records
from spark_jobs.engine.log_task import LogTask
from spark_jobs.engine.shared.key_buckets import RESULT, Message
from spark_jobs.engine.touched_records import (
    TouchedRecords,
    collected,
    ranks_of_parts,
    remembered_ranks,
    touched_records,
    versioned,
)

NUMBERED, RANKED = "numbered", "ranked"
"""What a message to a bucket holds beside a RESULT: numbered records, or remembered ranks by number."""
Decide = Callable[[LogTask, TouchedRecords, int, Ranks | None, Ranks | None], Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MapShare:
    """Says what shares have read of the dirty part: their keys with their highest offsets, as an Arrow stream of
    each."""

    keys: tuple[bytes, ...]
    offsets: DirtyOffsets

    def __or__(self, other: MapShare) -> MapShare:
        return MapShare(self.keys + other.keys, self.offsets | other.offsets)


@dataclass(frozen=True, slots=True)
class ShippedMap:
    """Holds the keys of all shares, each once with its highest offset, and what they know of the dirty part
    together."""

    keys: bytes
    dirty: DirtyPart


def read_map_share(properties: Mapping[str, str], task: LogTask) -> MapShare:
    """Reads the dirty records of a share."""
    io, offsets = load_file_io(dict(properties), task.location), DirtyOffsets()

    def batches() -> Iterator[pa.RecordBatch]:
        for file, records in dirty_records(task, io):
            offsets.add(file, records)
            yield pa.RecordBatch.from_arrays([records.key, pa.array(records.offset)], schema=KEY_AND_OFFSET)

    highest = 'SELECT key, max("offset") AS "offset" FROM dirty WHERE key IS NOT NULL GROUP BY key'
    with (
        task_database(task.threads, task.memory_bytes) as database,
        reading(database, "dirty", KEY_AND_OFFSET, batches()),
    ):
        keys = database.sql(highest).to_arrow_table()
    return MapShare((_stream_of(keys),), offsets.packed())


def _stream_of(keys: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, keys.schema) as stream:
        stream.write_table(keys)
    stream_bytes: bytes = sink.getvalue().to_pybytes()
    return stream_bytes


def merged_map(task: LogTask, shares: Sequence[MapShare]) -> ShippedMap:
    """Returns what the shares of a task have read together."""
    whole = reduce(or_, shares, MapShare((), DirtyOffsets()))
    no_bounds = TouchedKeys(task.dirty_records, None, None)
    dirty = DirtyPart(replace(task, files=()), no_bounds, whole.offsets.copies(task.files), whole.offsets.records)
    several = len(whole.keys) != 1
    keys = _stream_of(_highest(whole.keys, task.memory_bytes)) if several else whole.keys[0]
    return ShippedMap(keys, dirty)


def _highest(streams: Sequence[bytes], memory_bytes: int) -> pa.Table:
    """Returns each key once, with its highest offset. The database uses all cores of the driver."""
    if not streams:
        return KEY_AND_OFFSET.empty_table()
    with task_database(os.cpu_count() or 1, memory_bytes) as database:
        database.register("dirty", pa.concat_tables(pa.ipc.open_stream(stream).read_all() for stream in streams))
        return database.sql('SELECT key, max("offset") AS "offset" FROM dirty GROUP BY key').to_arrow_table()


def put_into(database: Any, keys: pa.Table) -> TouchedKeys:
    """Makes the shipped keys the database's table `touched`, each with its number."""
    database.register("touched", keys.select(["key"]).append_column("number", pa.array(np.arange(len(keys)))))
    ends = pc.min_max(keys["key"]).as_py()
    return TouchedKeys(len(keys), ends["min"], ends["max"])


def by_numbers(
    properties: Mapping[str, str],
    task: LogTask,
    shipped: ShippedMap,
    read: Callable[[DirtyPart, FileIO], tuple[Iterable[pa.RecordBatch], Callable[[], T]]],
    decide: Decide,
) -> Iterator[tuple[int, Message]]:
    """Goes through a share's files, and yields messages to the buckets. `read`: as in key_buckets.to_buckets."""
    io, keys = load_file_io(dict(properties), task.location), pa.ipc.open_stream(shipped.keys).read_all()
    count = len(keys)
    with task_database(task.threads, task.memory_bytes) as database:
        touched, numbers = put_into(database, keys), KeysInDatabase(database, "number")
        batches, result = read(replace(shipped.dirty, task=task, touched=touched), io)
        records = touched_records(task, numbers, batches)
        if not versioned(task):
            remembered = remembered_ranks(task, io, numbers, count)
            yield 0, (RESULT, decide(task, records, count, remembered, ranks_by_offset(keys["offset"].to_numpy())))
        else:
            yield from _to_buckets(records, count, task.buckets)
            if task.is_first_share:
                ranks = remembered_ranks(task, io, numbers, count)
                yield from _ranks_to_buckets(ranks, task.buckets)
    yield 0, (RESULT, result())


def _bounds(count: int, buckets: int) -> list[int]:
    """Returns where the buckets begin, and the end of the last: each has a range of the numbers."""
    return [count * n // buckets for n in range(buckets + 1)]


def _to_buckets(records: TouchedRecords, count: int, buckets: int) -> Iterator[tuple[int, Message]]:
    bounds = _bounds(count, buckets)
    for bucket, (low, end) in enumerate(zip(bounds, bounds[1:], strict=False)):
        inside = (records.number >= low) & (records.number < end)
        columns = {
            "number": records.number[inside] - low,
            "offset": records.offset[inside],
            "place": records.place[inside],
            "pos": records.pos[inside],
            "flags": records.flags[inside],
            "has": records.versions.has[inside],
            "version": records.versions.version[inside],
        }
        yield bucket, (NUMBERED, (end - low, columns))


def _ranks_to_buckets(ranks: Ranks | None, buckets: int) -> Iterator[tuple[int, Message]]:
    if ranks is None:
        return
    bounds = _bounds(len(ranks.offset), buckets)
    for bucket, (low, end) in enumerate(zip(bounds, bounds[1:], strict=False)):
        known = np.flatnonzero(ranks.known[low:end])
        columns = {
            "number": known,
            "offset": ranks.offset[low:end][known],
            "has": ranks.has[low:end][known],
            "version": ranks.version[low:end][known],
        }
        yield bucket, (RANKED, columns)


def of_numbers(messages: Iterable[Message]) -> tuple[TouchedRecords, int, Ranks | None, list[Any]]:
    """Returns the records of a bucket, how many numbers it has, what is remembered of them, and results of shares."""
    parts, ranks, results, count = [], [], list[Any](), 0
    for kind, content in messages:
        if kind == NUMBERED:
            count, columns = content
            parts.append(columns)
        elif kind == RANKED:
            ranks.append(content)
        else:
            results.append(content)
    return collected(parts), count, ranks_of_parts(ranks, count) if ranks else None, results
