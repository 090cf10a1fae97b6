"""Logs of several tasks: shares of their files find candidates, and buckets of keys decide.

1. Each share reads its dirty records, and returns a filter of their keys' hashes, and their offsets by file.
2. The filters are merged by OR, and the driver finds copies by the offsets of each file.
3. Each share reads its files. Records that pass the filter are shuffled by a hash of their key, so that all records of
   a key reach one bucket. All other records are counted in the share.
4. Each bucket numbers its keys and decides like the only task of a log. A bucket compares keys byte by byte, so it
   recognizes a key that passed the filter without a dirty record (semantics.md 3.11).
"""

from __future__ import annotations

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

from cleantail.log.winners import Booleans, Longs, Numbers, Ranks
from spark_jobs.engine.log_task import LogTask
from spark_jobs.engine.removals import DirtyOffsets, DirtyPart, dirty_records
from spark_jobs.engine.task_keys import TouchedKeys, reading, task_database
from spark_jobs.engine.task_records import (
    REMEMBERED,
    TouchedRecords,
    collected,
    ranks_of_parts,
    remembered_batches,
    schema_of,
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


def merged(task: LogTask, shares: Sequence[DirtyShare]) -> SharedDirtyPart:
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
    """Yield (bucket, records whose hash passes as an Arrow stream). `batches`: with `h`, the hash of the key."""
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
    of_bucket = bucket_of(table["h"].to_numpy(), buckets)
    table = table.drop_columns(["h"])
    for bucket, places in slices_by(of_bucket):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table.take(pa.array(places)))
        yield bucket, sink.getvalue().to_pybytes()


def bucket_of(hashes: Hashes, buckets: int) -> Numbers:
    """Return the bucket of each hash, by its highest bits, because the filter uses the lowest."""
    bucket: Numbers = ((hashes >> np.uint64(32)) % np.uint64(buckets)).astype(np.uint32)
    return bucket


def slices_by(buckets: Numbers) -> Iterator[tuple[int, Longs]]:
    order: Longs = np.argsort(buckets, kind="stable")
    names, starts = np.unique(buckets[order], return_index=True)
    ends = [*starts[1:].tolist(), len(order)][: len(names)]
    for name, start, end in zip(names.tolist(), starts.tolist(), ends, strict=True):
        yield name, order[start:end]


def of_bucket(messages: Iterable[Message]) -> tuple[TouchedRecords, int, Ranks | None, list[Any]]:
    """Return the records of a bucket with numbered keys, the number of keys, their remembered ranks, and the results
    of shares."""
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
