"""The driver's side of logs that are more than one task, and the choice between one task and several.

1. Tasks read the dirty part of the log, each that of its share of the files, and Spark merges what they have read.
2. What is merged is broadcast, and each share of the files is gone through.
3. Records that have to be compared with those of another share come together in a bucket (key_map, key_buckets).

The list of files is broadcast once: in every task it would be sent as often as there are tasks.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyiceberg.io import FileIO

from cleantail.config.platform import Platform
from cleantail.errors import CleantailError
from cleantail.lake.catalogs import file_io_properties
from cleantail.log.task_shares import KEY_BYTES
from cleantail.log.winners import Ranks
from spark_jobs.engine.dirty_part import DirtyPart
from spark_jobs.engine.log_task import LogTask
from spark_jobs.engine.shared import key_buckets, key_map
from spark_jobs.engine.shared.key_buckets import RESULT
from spark_jobs.engine.shared.shares import Share, shares_of, task_of_share
from spark_jobs.engine.tasks import Failed, described, require_done, require_python, run_tasks
from spark_jobs.engine.touched_records import TouchedRecords
from spark_jobs.iceberg.file_kinds import KindsMet, each_noting, noting
from spark_jobs.iceberg.log_files import LogFile
from spark_jobs.iceberg.tables import TopicTable

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


def run_work(table: TopicTable, platform: Platform, work: Work[R], tasks: Sequence[LogTask]) -> list[R]:
    """Does the work for every task: the whole ones in one Spark job, beside it each log of several shares."""
    whole, shared = ([task for task in tasks if (task.shares > 1) is several] for several in (False, True))
    with ThreadPoolExecutor(logs_at_a_time(shared)) as threads:
        parts = [threads.submit(_run_shared, table, platform, work, task) for task in shared]
        done = run_tasks(table, platform, work.whole, whole, work.name)
        return [*done, *(part.result() for part in parts)]


def logs_at_a_time(tasks: Sequence[LogTask]) -> int:
    """Returns how many logs of several tasks are gone through beside each other: the driver has the maps of all of
    them, and takes no more for these than a task does."""
    fitting = min((task.memory_bytes // max(task.dirty_records * KEY_BYTES, 1) for task in tasks), default=1)
    return max(min(len(tasks), MOST_LOGS, fitting), 1)


def _run_shared(table: TopicTable, platform: Platform, work: Work[R], task: LogTask) -> R:
    context, shares = table.spark.sparkContext, shares_of(task)
    store = file_io_properties(table.topic, platform, os.environ)
    require_python(context, platform)
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
    """Returns what all shares have read of the dirty part, as key_map or key_buckets merge it.

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
    merge = key_map.merged_map if task.ships_map else key_buckets.merged
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
            return number, (key_map.read_map_share if task.ships_map else key_buckets.read_dirty_share)(store, task)
    except CleantailError as e:
        return number, Failed(e)


def _merged_group(number: int, parts: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """Yields one part, of all that have come to this task; nothing where none has."""
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
            yield from key_map.by_numbers(store, task, known.value, work.read_share, work.decide_bucket)
        else:
            yield from key_buckets.to_buckets(store, task, known.value, work.read_share)
    except CleantailError as e:
        yield 0, (RESULT, Failed(e))


def _bucket(shipped: Any, decide: Any, messages: Iterator[tuple[int, Any]]) -> Iterator[Any]:
    contents, task = (message for _, message in messages), task_of_share(shipped.value, ())
    of_bucket = key_map.of_numbers if task.ships_map else key_buckets.of_bucket
    records, count, remembered, results = of_bucket(contents)
    yield from results
    if count:
        yield decide(task, records, count, remembered, None)
