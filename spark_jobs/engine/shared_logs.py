"""The driver's side of logs that have more than one task, and the choice between one task and several.

1. Tasks read the dirty part of their share of the files, and Spark merges the results.
2. The merged dirty part is broadcast, and tasks read each share of the files.
3. Records that must be compared with those of another share meet in a bucket (key_buckets, or numbers).

If the offset map fits into each task, it is merged and shipped:

1. Each share reads its dirty records, and returns their keys, each with its highest offset.
2. The driver merges these, and Spark ships the map to every share: a key's number is its place in the map.
3. Each share reads its files. With strategy `offset` a share decides alone, because the map has the winner of each key.
4. With `timestamp` or `header`, records of one key in two shares must be compared. Spark shuffles them by the number of
   their key, without the key. Each bucket of numbers decides about its records.

The list of files is broadcast once. Otherwise Spark would send it with every task.
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
from spark_jobs.engine.key_buckets import RESULT, Message
from spark_jobs.engine.log_task import LogTask
from spark_jobs.engine.removals import DirtyOffsets, DirtyPart, dirty_records
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
from spark_jobs.iceberg.tables import TopicTable

NUMBERED, RANKED = "numbered", "ranked"
"""Kinds of messages to a bucket in addition to RESULT: numbered records, or remembered ranks by number."""
Decide = Callable[[LogTask, TouchedRecords, int, Ranks | None, Ranks | None], Any]
T = TypeVar("T")


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


def put_into(database: Any, keys: pa.Table) -> TouchedKeys:
    """Register the shipped keys, each with its number, as the database's table `touched`."""
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
    """Read a share's files, and yield messages to the buckets. `read`: as in key_buckets.to_buckets."""
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


R = TypeVar("R")
MOST_LOGS = 8
"""Maximum number of multi-task logs that run at the same time. Several logs keep the cores busy while the last tasks of
one log run."""


@dataclass(frozen=True, slots=True)
class LogWork(Generic[R]):
    """A kind of work on logs. `whole` does the work in one task. For a log of several shares, `read_share` reads a
    share, and `decide_bucket` gets the records of a bucket's keys. `merge` makes one result of the parts. `name` is for
    people."""

    name: str
    whole: Callable[[Mapping[str, str], LogTask], R]
    read_share: Callable[[DirtyPart, FileIO], tuple[Iterable[pa.RecordBatch], Callable[[], R]]]
    decide_bucket: Callable[[LogTask, TouchedRecords, int, Ranks | None, Ranks | None], R]
    merge: Callable[[Iterable[R]], R]


def run_work(table: TopicTable, work: LogWork[R], tasks: Sequence[LogTask]) -> list[R]:
    """Do the work for every task. Logs of several shares run at the same time as one Spark job of all other tasks."""
    whole, shared = ([task for task in tasks if (task.shares > 1) is several] for several in (False, True))
    with ThreadPoolExecutor(logs_at_a_time(shared)) as threads:
        parts = [threads.submit(_run_shared, table, work, task) for task in shared]
        done = run_tasks(table, work.whole, whole, work.name)
        return [*done, *(part.result() for part in parts)]


def logs_at_a_time(tasks: Sequence[LogTask]) -> int:
    """Return how many multi-task logs run at the same time. The driver holds all of their maps, which together may take
    as much memory as a task."""
    fitting = min((task.memory_bytes // max(task.dirty_records * KEY_BYTES, 1) for task in tasks), default=1)
    return max(min(len(tasks), MOST_LOGS, fitting), 1)


def _run_shared(table: TopicTable, work: LogWork[R], task: LogTask) -> R:
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
    """Return the dirty part of all shares, by merged_map or key_buckets.merged.

    Spark merges groups of shares, and then the groups. So the driver gets one part, regardless of the number of shares.
    """
    task: LogTask = shipped.value
    spans = [(work.first_dirty_offset, work.end_offset) for work in task.works]
    dirty = [share for share in shares if any(task.files[n].may_hold(*span) for n in share for span in spans)]
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


def _dirty_share(store: Mapping[str, str], shipped: Any, met: KindsMet, numbered: tuple[int, Share]) -> tuple[int, Any]:
    number, share = numbered
    task: LogTask = task_of_share(shipped.value, share)
    try:
        with noting(met):
            return number, (read_map_share if task.ships_map else key_buckets.read_dirty_share)(store, task)
    except CleantailError as e:
        return number, Failed(e)


def _merged_group(number: int, parts: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """Yield the union of the parts, if there are any."""
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
    store: Mapping[str, str], shipped: Any, known: Any, work: LogWork[Any], share: Share
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
