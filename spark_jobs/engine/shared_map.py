"""A log that is more than one task, and whose offset map fits into each of them: the map is merged and shipped.

1. Each share reads its dirty records, and hands back their keys, each with its highest offset.
2. The driver puts these side by side, and Spark ships them to every share, which numbers the keys all in the same way.
3. Each share goes through its files. By `offset` it decides by itself: the map says which record of a key wins.
4. By `timestamp` or `header` records of one key in two shares have to be compared. They are shuffled by the number of
   their key, without the key, and each bucket of numbers decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io

from cleantail.log.ranks.versions import Longs
from cleantail.log.ranks.winners import NO_RECORD, Ranks
from spark_jobs.engine.columns.copies import DirtyOffsets
from spark_jobs.engine.columns.key_numbers import KEY_AND_OFFSET, TouchedKeys
from spark_jobs.engine.columns.task_database import reading, task_database
from spark_jobs.engine.dirty_part import DirtyPart, dirty_records
from spark_jobs.engine.log_task import LogTask
from spark_jobs.engine.shared_log import RESULT, Message
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
    """What shares have read of the dirty part: their keys with their highest offsets, as an Arrow stream of each."""

    keys: tuple[bytes, ...]
    offsets: DirtyOffsets

    def __or__(self, other: MapShare) -> MapShare:
        return MapShare(self.keys + other.keys, self.offsets | other.offsets)


@dataclass(frozen=True, slots=True)
class ShippedMap:
    """The keys of all shares, and what they know of the dirty part together."""

    keys: tuple[bytes, ...]
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
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, keys.schema) as stream:
        stream.write_table(keys)
    return MapShare((sink.getvalue().to_pybytes(),), offsets.packed())


def merged_map(task: LogTask, shares: Sequence[MapShare]) -> ShippedMap:
    """Returns what the shares of a task have read together."""
    whole = reduce(or_, shares, MapShare((), DirtyOffsets()))
    no_bounds = TouchedKeys(task.dirty_records, None, None)
    dirty = DirtyPart(replace(task, files=()), no_bounds, whole.offsets.copies(task.files), whole.offsets.records)
    return ShippedMap(whole.keys, dirty)


@dataclass(frozen=True, slots=True)
class NumberedMap:
    """The map as a share has it: `keys` by number, and the highest dirty offset of each."""

    keys: pa.Array
    highest: Longs

    @classmethod
    def of(cls, shipped: ShippedMap) -> NumberedMap:
        tables = [pa.ipc.open_stream(blob).read_all() for blob in shipped.keys]
        if not tables:
            return cls(pa.array([], pa.large_binary()), np.empty(0, np.int64))
        rows = pa.concat_tables(tables)
        # large, as more than 2 GiB of keys may come together
        encoded = rows["key"].cast(pa.large_binary()).combine_chunks().dictionary_encode()
        highest = np.full(len(encoded.dictionary), NO_RECORD, np.int64)
        np.maximum.at(highest, encoded.indices.to_numpy(), rows["offset"].to_numpy())
        return cls(encoded.dictionary, highest)

    def put_into(self, database: Any) -> TouchedKeys:
        """Makes the database's table `touched`, with the numbers."""
        database.register("shipped", pa.table({"key": self.keys, "number": np.arange(len(self.keys))}))
        database.execute("CREATE TEMP TABLE touched AS SELECT key, number FROM shipped")
        [(low, high)] = database.execute("SELECT min(key), max(key) FROM touched").fetchall()
        return TouchedKeys(len(self.keys), low, high)


def by_numbers(
    properties: Mapping[str, str],
    task: LogTask,
    shipped: ShippedMap,
    read: Callable[[DirtyPart, FileIO], tuple[Iterable[pa.RecordBatch], Callable[[], T]]],
    decide: Decide,
) -> Iterator[tuple[int, Message]]:
    """Goes through a share's files, and yields messages to the buckets. `read`: as in shared_log.to_buckets."""
    io, keys = load_file_io(dict(properties), task.location), NumberedMap.of(shipped)
    count = len(keys.keys)
    with task_database(task.threads, task.memory_bytes) as database:
        touched = keys.put_into(database)
        batches, result = read(replace(shipped.dirty, task=task, touched=touched), io)
        records = touched_records(task, database, batches, number="number")
        if not versioned(task):
            remembered = remembered_ranks(task, io, database, count, number="number")
            yield 0, (RESULT, decide(task, records, count, remembered, _by_offset(keys.highest)))
        else:
            yield from _to_buckets(records, count, task.shares)
            if task.is_first_share:
                ranks = remembered_ranks(task, io, database, count, number="number")
                yield from _ranks_to_buckets(ranks, task.shares)
    yield 0, (RESULT, result())


def _by_offset(highest: Longs) -> Ranks:
    """Returns the best rank of each key by `offset`."""
    return Ranks(np.zeros(len(highest), np.bool_), np.zeros(len(highest), np.int64), highest)


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
