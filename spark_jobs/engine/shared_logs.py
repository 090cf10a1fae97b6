"""Logs of several tasks: the tasks' side. Records that must be compared with those of another share meet in a bucket.

If the offset map fits into each task, it is merged and shipped:

1. Each share reads its dirty records, and returns their keys, each with its highest offset.
2. The driver merges these, and Spark ships the map to every share: a key's number is its place in the map.
3. Each share reads its files. With strategy `offset` a share decides alone, because the map has the winner of each key.
4. With `timestamp` or `header`, records of one key in two shares must be compared. Spark shuffles them by the number of
   their key, without the key. Each bucket of numbers decides about its records.

Otherwise shares find candidates by a filter, and buckets of keys decide:

1. Each share reads its dirty records, and returns a filter of their keys' hashes, and their offsets by file.
2. The filters are merged by OR, and the driver finds copies by the offsets of each file.
3. Each share reads its files. Records that pass the filter are shuffled by a hash of their key, so that all records of
   a key reach one bucket. All other records are counted in the share.
4. Each bucket numbers its keys and decides like the only task of a log. A bucket compares keys byte by byte, so it
   recognizes a key that passed the filter without a dirty record (semantics.md 3.11).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO, load_file_io

from cleantail.log.winners import Booleans, Ranks, ranks_by_offset
from spark_jobs.engine.log_task import LogTask
from spark_jobs.engine.removals import DirtyOffsets, DirtyPart, dirty_records
from spark_jobs.engine.task_records import (
    KEY_AND_OFFSET,
    REMEMBERED,
    KeysInDatabase,
    TouchedKeys,
    TouchedRecords,
    collected,
    ranks_of_parts,
    reading,
    remembered_batches,
    remembered_ranks,
    schema_of,
    task_database,
    touched_records,
    versioned,
)
from spark_jobs.iceberg.log_files import BATCH_RECORDS

BITS_PER_KEY = 16
"""Bits of the filter for each key. About one of sixteen other keys passes, and the bucket recognizes it."""
MOST_BITS = 1 << 31
"""Maximum size of a filter, 256 MiB. A full filter lets more other keys pass."""
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Bits by the lowest part of a hash. The number of bits is a power of two."""

    bits: npt.NDArray[np.uint8]

    @classmethod
    def for_keys(cls, keys: int) -> KeyFilter:
        size = 1 << max(min(keys * BITS_PER_KEY, MOST_BITS) - 1, 7).bit_length()
        return cls(np.zeros(size // 8, np.uint8))

    def add(self, hashes: Hashes) -> None:
        byte, bit = self._place(hashes)
        np.bitwise_or.at(self.bits, byte, bit)

    def lets_through(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Return, for each key, whether it may have been added. True for all added keys and a few others."""
        byte, bit = self._place(hashes)
        through: npt.NDArray[np.bool_] = (self.bits[byte] & bit) != 0
        return through

    def _place(self, hashes: Hashes) -> tuple[Any, Any]:
        place = hashes & np.uint64(len(self.bits) * 8 - 1)
        return place >> np.uint64(3), np.left_shift(np.uint8(1), (place & np.uint64(7)).astype(np.uint8))

    def __or__(self, other: KeyFilter) -> KeyFilter:
        return KeyFilter(self.bits | other.bits)


BLOB_RECORDS = 1 << 20
"""Number of records of a share that are put into buckets at a time."""
KEYS = pa.schema([("key", pa.binary())])
RECORDS, RANKS, RESULT = "records", "ranks", "result"
"""Kinds of messages to a bucket: records, ranks in the ledger, or a share's own result, which is passed on."""
Message = tuple[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DirtyShare:
    """The dirty part of one share. `low` and `high`: its lowest and highest key, or None."""

    filter: KeyFilter
    low: bytes | None
    high: bytes | None
    offsets: DirtyOffsets

    def __or__(self, other: DirtyShare) -> DirtyShare:
        low = min((key for key in (self.low, other.low) if key is not None), default=None)
        high = max((key for key in (self.high, other.high) if key is not None), default=None)
        return DirtyShare(self.filter | other.filter, low, high, self.offsets | other.offsets)


def read_dirty_share(properties: Mapping[str, str], task: LogTask) -> DirtyShare:
    io = load_file_io(dict(properties), task.location)
    keys, offsets = KeyFilter.for_keys(task.dirty_records), DirtyOffsets()

    def batches() -> Iterator[pa.RecordBatch]:
        for file, records in dirty_records(task, io):
            offsets.add(file, records)
            yield pa.RecordBatch.from_arrays([records.key], schema=KEYS)

    lows, highs = list[bytes](), list[bytes]()
    with task_database(task.threads, task.memory_bytes) as database:
        for batch in hashed(database, KEYS, batches()):
            keys.add(batch.column("h").to_numpy())
            ends = pc.min_max(batch.column("key")).as_py()
            lows.append(ends["min"])
            highs.append(ends["max"])
    return DirtyShare(keys, min(lows, default=None), max(highs, default=None), offsets.packed())


def merged_filter(task: LogTask, shares: Sequence[DirtyShare]) -> SharedDirtyPart:
    nothing = DirtyShare(KeyFilter.for_keys(task.dirty_records), None, None, DirtyOffsets())
    whole = reduce(or_, shares, nothing)
    touched = TouchedKeys(task.dirty_records, whole.low, whole.high)
    dirty = DirtyPart(replace(task, files=()), touched, whole.offsets.copies(task.files), whole.offsets.records)
    return SharedDirtyPart(whole.filter, dirty)


@dataclass(frozen=True, slots=True)
class SharedDirtyPart:
    filter: KeyFilter
    dirty: DirtyPart


def to_buckets(
    properties: Mapping[str, str],
    task: LogTask,
    shared: SharedDirtyPart,
    read: Callable[[DirtyPart, FileIO], tuple[Iterable[pa.RecordBatch], Callable[[], T]]],
) -> Iterator[tuple[int, Message]]:
    """Read a share's files, and yield messages to the buckets: records that pass the filter, and remembered ranks.

    The first bucket also gets the share's own result.

    `read` returns the records with a key (batches of schema_of), and a function that returns the share's result after
    they are read.
    """
    io = load_file_io(dict(properties), task.location)
    dirty, buckets = replace(shared.dirty, task=task), task.buckets
    batches, result = read(dirty, io)
    with task_database(task.threads, task.memory_bytes) as database:
        for bucket, blob in blobs(hashed(database, schema_of(task), batches), shared.filter.lets_through, buckets):
            yield bucket, (RECORDS, blob)
        if task.is_first_share:
            ranks = hashed(database, REMEMBERED, remembered_batches(task, io))
            for bucket, blob in blobs(ranks, shared.filter.lets_through, buckets):
                yield bucket, (RANKS, blob)
    yield 0, (RESULT, result())


def hashed(database: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches without keyless records, and with `h`, a hash of the key."""
    with reading(database, "record", schema, batches):
        rows = database.sql("SELECT *, hash(key) AS h FROM record WHERE key IS NOT NULL")
        yield from (batch for batch in rows.to_arrow_reader(BATCH_RECORDS) if batch.num_rows)


def blobs(
    batches: Iterable[pa.RecordBatch], passes: Callable[[Hashes], Booleans], buckets: int
) -> Iterator[tuple[int, bytes]]:
    """Yield (bucket, Arrow stream of the records whose hash passes). `batches`: with `h`, the hash of the key."""
    waiting, records = list[pa.RecordBatch](), 0
    for batch in batches:
        passing = batch.filter(pa.array(passes(batch.column("h").to_numpy())))
        waiting.append(passing)
        records += passing.num_rows
        if records >= BLOB_RECORDS:
            yield from _split(waiting, buckets)
            waiting, records = [], 0
    if records:
        yield from _split(waiting, buckets)


def _split(batches: Sequence[pa.RecordBatch], buckets: int) -> Iterator[tuple[int, bytes]]:
    table = pa.Table.from_batches(batches)
    # by the highest bits of a hash, because the filter uses the lowest
    of_bucket = (table["h"].to_numpy() >> np.uint64(32)) % np.uint64(buckets)
    table = table.drop_columns(["h"])
    order = np.argsort(of_bucket, kind="stable")
    names, starts = np.unique(of_bucket[order], return_index=True)
    for bucket, places in zip(names.tolist(), np.split(order, starts[1:]), strict=True):
        yield bucket, _stream_of(table.take(pa.array(places)))


def of_bucket(messages: Iterable[Message]) -> tuple[TouchedRecords, int, Ranks | None, list[Any]]:
    """Return a bucket's records with numbered keys, the number of keys, their remembered ranks, and shares' results."""
    tables: dict[str, list[pa.Table]] = {RECORDS: [], RANKS: []}
    results = []
    for kind, content in messages:
        if kind == RESULT:
            results.append(content)
        else:
            tables[kind].append(pa.ipc.open_stream(content).read_all())
    if not tables[RECORDS]:
        return collected([]), 0, None, results
    records = pa.concat_tables(tables[RECORDS])
    keys = _one_array(records["key"]).dictionary_encode()
    numbered = _columns(records) | {"number": keys.indices.to_numpy()}
    ranks = _ranks(tables[RANKS], keys.dictionary) if tables[RANKS] else None
    return collected([numbered]), len(keys.dictionary), ranks, results


def _ranks(tables: Sequence[pa.Table], keys: pa.Array) -> Ranks:
    table = pa.concat_tables(tables)
    number = pc.index_in(_one_array(table["key"]), value_set=keys)
    known = table.append_column("number", number).filter(pc.is_valid(number))
    return ranks_of_parts([_columns(known) | {"number": known["number"].to_numpy()}], len(keys))


def _columns(table: pa.Table) -> dict[str, Any]:
    return {name: table[name].to_numpy() for name in table.column_names if name != "key"}


def _one_array(keys: pa.ChunkedArray) -> pa.Array:
    """Return the keys as one array, of a large type because they may exceed 2 GiB."""
    return keys.cast(pa.large_binary()).combine_chunks()


NUMBERED, RANKED = "numbered", "ranked"
"""Kinds of messages to a bucket in addition to RESULT: numbered records, or remembered ranks by number."""
Decide = Callable[[LogTask, TouchedRecords, int, Ranks | None, Ranks | None], Any]


@dataclass(frozen=True, slots=True)
class MapShare:
    """The dirty part of shares. One Arrow stream for each share has its keys with their highest offsets."""

    keys: tuple[bytes, ...]
    offsets: DirtyOffsets

    def __or__(self, other: MapShare) -> MapShare:
        return MapShare(self.keys + other.keys, self.offsets | other.offsets)


@dataclass(frozen=True, slots=True)
class ShippedMap:
    """The keys of all shares, each once with its highest offset, and their common dirty part."""

    keys: bytes
    dirty: DirtyPart


def read_map_share(properties: Mapping[str, str], task: LogTask) -> MapShare:
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
    whole = reduce(or_, shares, MapShare((), DirtyOffsets()))
    no_bounds = TouchedKeys(task.dirty_records, None, None)
    dirty = DirtyPart(replace(task, files=()), no_bounds, whole.offsets.copies(task.files), whole.offsets.records)
    several = len(whole.keys) != 1
    keys = _stream_of(_highest(whole.keys, task.memory_bytes)) if several else whole.keys[0]
    return ShippedMap(keys, dirty)


def _highest(streams: Sequence[bytes], memory_bytes: int) -> pa.Table:
    """Return each key once, with its highest offset. The database uses all cores of the driver."""
    if not streams:
        return KEY_AND_OFFSET.empty_table()
    with task_database(os.cpu_count() or 1, memory_bytes) as database:
        database.register("dirty", pa.concat_tables(pa.ipc.open_stream(stream).read_all() for stream in streams))
        return database.sql('SELECT key, max("offset") AS "offset" FROM dirty GROUP BY key').to_arrow_table()


def by_numbers(
    properties: Mapping[str, str],
    task: LogTask,
    shipped: ShippedMap,
    read: Callable[[DirtyPart, FileIO], tuple[Iterable[pa.RecordBatch], Callable[[], T]]],
    decide: Decide,
) -> Iterator[tuple[int, Message]]:
    """Read a share's files, and yield messages to the buckets. `read`: as in to_buckets."""
    io, keys = load_file_io(dict(properties), task.location), pa.ipc.open_stream(shipped.keys).read_all()
    count = len(keys)
    with task_database(task.threads, task.memory_bytes) as database:
        database.register("touched", keys.select(["key"]).append_column("number", pa.array(np.arange(count))))
        numbers, ends = KeysInDatabase(database, "number"), pc.min_max(keys["key"]).as_py()
        touched = TouchedKeys(count, ends["min"], ends["max"])
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
    """Return the start of each bucket's range of numbers, and the end of the last."""
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
    """Return a bucket's records, its count of numbers, the remembered ranks of these, and results of shares."""
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
