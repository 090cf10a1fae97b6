"""The driver's side of logs that are more than one task, and the choice between one task and several.

1. Tasks read the dirty part of the log, each that of its share of the files, and Spark merges what they have read.
2. What is merged is broadcast, and each share of the files is gone through.
3. Records that have to be compared with those of another share come together in a bucket (key_buckets, or numbers).

Where the offset map fits into each task, it is merged and shipped:

1. Each share reads its dirty records, and hands back their keys, each with its highest offset.
2. The driver merges these, and Spark ships the map to every share: a key's number is its place there.
3. Each share goes through its files. By `offset` it decides by itself: the map says which record of a key wins.
4. By `timestamp` or `header` records of one key in two shares have to be compared. They are shuffled by the number of
   their key, without the key, and each bucket of numbers decides.

The list of files is broadcast once: in every task it would be sent as often as there are tasks.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import or_
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO, load_file_io

from cleantail.errors import CleantailError
from cleantail.lake.catalogs import file_io_properties
from cleantail.log.task_shares import KEY_BYTES
from cleantail.log.winners import Ranks, ranks_by_offset
from spark_jobs.engine import key_buckets
from spark_jobs.engine.dirty_part import DirtyOffsets, DirtyPart, dirty_records
from spark_jobs.engine.key_buckets import RESULT, Message
from spark_jobs.engine.log_task import LogTask
from spark_jobs.engine.task_keys import KEY_AND_OFFSET, KeysInDatabase, TouchedKeys, reading, task_database
from spark_jobs.engine.task_records import (
    TouchedRecords,
    collected,
    ranks_of_parts,
    remembered_ranks,
    touched_records,
    versioned,
)
from spark_jobs.engine.tasks import (
    Failed,
    Share,
    described,
    require_done,
    require_python,
    run_tasks,
    shares_of,
    task_of_share,
)
from spark_jobs.iceberg.file_columns import KindsMet, each_noting, noting
from spark_jobs.iceberg.log_files import LogFile
from spark_jobs.iceberg.tables import TopicTable

NUMBERED, RANKED = "numbered", "ranked"
"""What a message to a bucket holds beside a RESULT: numbered records, or remembered ranks by number."""
Decide = Callable[[LogTask, TouchedRecords, int, Ranks | None, Ranks | None], Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MapShare:
    """What shares have read of the dirty part: their keys with their highest offsets, as an Arrow stream of
    each."""

    keys: tuple[bytes, ...]
    offsets: DirtyOffsets

    def __or__(self, other: MapShare) -> MapShare:
        return MapShare(self.keys + other.keys, self.offsets | other.offsets)


@dataclass(frozen=True, slots=True)
class ShippedMap:
    """The keys of all shares, each once with its highest offset, and what they know of the dirty part
    together."""

    keys: bytes
    dirty: DirtyPart


def read_map_share(properties: Mapping[str, str], task: LogTask) -> MapShare:
    """Read the dirty records of a share."""
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
    """Return what the shares of a task have read together."""
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


def put_into(database: Any, keys: pa.Table) -> TouchedKeys:
    """Make the shipped keys the database's table `touched`, each with its number."""
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
    """Goes through a share's files, and yield messages to the buckets. `read`: as in key_buckets.to_buckets."""
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
    """Return where the buckets begin, and the end of the last: each has a range of the numbers."""
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
    """Return the records of a bucket, how many numbers it has, what is remembered of them, and results of shares."""
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


R = TypeVar("R")
MOST_LOGS = 8
"""So many logs of several tasks are on Spark at a time at most: where one has fewer tasks left than there are cores,
another one fills them."""


@dataclass(frozen=True, slots=True)
class Work(Generic[R]):
    """Describes a kind of work on logs. `whole` does it in one task; a log of several shares is gone through by
    `read_share`, whose records come together by key in `decide_bucket`. `merge` makes one result of the parts. `name`
    is for people."""

    name: str
    whole: Callable[[Mapping[str, str], LogTask], R]
    read_share: Callable[[DirtyPart, FileIO], tuple[Iterable[pa.RecordBatch], Callable[[], R]]]
    decide_bucket: Callable[[LogTask, TouchedRecords, int, Ranks | None, Ranks | None], R]
    merge: Callable[[Iterable[R]], R]


def run_work(table: TopicTable, work: Work[R], tasks: Sequence[LogTask]) -> list[R]:
    """Do the work for every task: the whole ones in one Spark job, beside it each log of several shares."""
    whole, shared = ([task for task in tasks if (task.shares > 1) is several] for several in (False, True))
    with ThreadPoolExecutor(logs_at_a_time(shared)) as threads:
        parts = [threads.submit(_run_shared, table, work, task) for task in shared]
        done = run_tasks(table, work.whole, whole, work.name)
        return [*done, *(part.result() for part in parts)]


def logs_at_a_time(tasks: Sequence[LogTask]) -> int:
    """Return how many logs of several tasks are gone through beside each other: the driver has the maps of all of
    them, and take no more for these than a task does."""
    fitting = min((task.memory_bytes // max(task.dirty_records * KEY_BYTES, 1) for task in tasks), default=1)
    return max(min(len(tasks), MOST_LOGS, fitting), 1)


def _run_shared(table: TopicTable, work: Work[R], task: LogTask) -> R:
    context, shares = table.spark.sparkContext, shares_of(task)
    store = file_io_properties(table.topic)
    require_python(context, table.platform)
    shipped = context.broadcast(task)
    try:
        with described(context, f"{work.name}: dirty keys of {table.topic.topic}"):
            known = context.broadcast(_merged_dirty_part(context, store, shipped, shares, table.met))
        try:
            with described(context, f"{work.name} of {table.topic.topic}"):
                parts = (
                    context.parallelize(shares, len(shares))
                    .flatMap(partial(each_noting, table.met, _share, store, shipped, known, work))
                    .partitionBy(task.buckets, int)
                    .mapPartitions(partial(_bucket, shipped, work.decide_bucket))
                    .collect()
                )
        finally:
            known.destroy()
    finally:
        shipped.destroy()
    return work.merge(require_done(parts))


def _merged_dirty_part(
    context: Any, store: Mapping[str, str], shipped: Any, shares: Sequence[Share], met: KindsMet
) -> Any:
    """Return what all shares have read of the dirty part, as merged_map or key_buckets.merged has it.

    Groups of shares are merged in Spark, and then the groups: the driver gets one part, however many shares there are.
    """
    task: LogTask = shipped.value
    dirty = [share for share in shares if any(_may_be_dirty(task, task.files[n]) for n in share)]
    parts: list[Any] = []
    if dirty:
        groups = math.isqrt(len(dirty))
        read = context.parallelize(list(enumerate(dirty)), len(dirty)).map(partial(_dirty_share, store, shipped, met))
        if groups > 1:
            read = read.partitionBy(groups, int).mapPartitionsWithIndex(_merged_group).partitionBy(1, _first)
        parts = read.mapPartitionsWithIndex(_merged_group).values().collect() if groups > 1 else read.values().collect()
    merge = merged_map if task.ships_map else key_buckets.merged
    return merge(task, require_done(parts))


def _first(_: int) -> int:
    return 0


def _may_be_dirty(task: LogTask, file: LogFile) -> bool:
    return any(file.may_hold(work.first_dirty_offset, work.end_offset) for work in task.works)


def _dirty_share(store: Mapping[str, str], shipped: Any, met: KindsMet, numbered: tuple[int, Share]) -> tuple[int, Any]:
    number, share = numbered
    task: LogTask = task_of_share(shipped.value, share)
    try:
        with noting(met):
            return number, (read_map_share if task.ships_map else key_buckets.read_dirty_share)(store, task)
    except CleantailError as e:
        return number, Failed(e)


def _merged_group(number: int, parts: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """Yield one part, of all that have come to this task; nothing if none has."""
    contents = (part for _, part in parts)
    first = next(contents, None)
    if first is not None:
        yield number, reduce(_both, contents, first)


def _both(one: Any, other: Any) -> Any:
    for part in (one, other):
        if isinstance(part, Failed):
            return part
    return one | other


def _share(
    store: Mapping[str, str], shipped: Any, known: Any, work: Work[Any], share: Share
) -> Iterator[tuple[int, Any]]:
    task: LogTask = task_of_share(shipped.value, share)
    try:
        if task.ships_map:
            yield from by_numbers(store, task, known.value, work.read_share, work.decide_bucket)
        else:
            yield from key_buckets.to_buckets(store, task, known.value, work.read_share)
    except CleantailError as e:
        yield 0, (RESULT, Failed(e))


def _bucket(shipped: Any, decide: Any, messages: Iterator[tuple[int, Any]]) -> Iterator[Any]:
    contents, task = (message for _, message in messages), task_of_share(shipped.value, ())
    of_bucket = of_numbers if task.ships_map else key_buckets.of_bucket
    records, count, remembered, results = of_bucket(contents)
    yield from results
    if count:
        yield decide(task, records, count, remembered, None)
