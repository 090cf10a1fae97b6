"""The driver's side: it makes tasks of the logs of a unit, and runs them on Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyiceberg.io import FileIO
from pyspark import SparkContext

from cleantail.config.platform import Platform
from cleantail.errors import CleantailError
from cleantail.lake.catalogs import file_io_properties
from cleantail.log.policy.offset_map import keys_in_budget
from cleantail.log.policy.shares import map_fits, parallelism, share_count, share_records
from cleantail.log.work_units import PartitionWork, WorkUnit
from spark_jobs.engine.columns.file_footers import FooterTask, read_footers
from spark_jobs.engine.columns.winners import Ranks
from spark_jobs.engine.deleted_versions import remembered_files
from spark_jobs.engine.dirty_part import DirtyPart
from spark_jobs.engine.log_task import LogTask
from spark_jobs.engine.shared_log import RESULT, merged, of_bucket, read_dirty_share, to_buckets
from spark_jobs.engine.shared_map import by_numbers, merged_map, of_numbers, read_map_share
from spark_jobs.engine.touched_records import TouchedRecords
from spark_jobs.engine.workers.environment import require_workers
from spark_jobs.iceberg.file_columns import Layout
from spark_jobs.iceberg.log_files import LogFile
from spark_jobs.iceberg.snapshot_files import SnapshotFiles
from spark_jobs.iceberg.tables import TopicTable

R = TypeVar("R")
T = TypeVar("T")


def log_tasks(
    table: TopicTable, platform: Platform, unit: WorkUnit, files: SnapshotFiles, by_rounds: bool = False
) -> list[LogTask]:
    """Returns the tasks of a unit, one for each log; logs whose files have records of one another are one task.

    `by_rounds`: whether a round ends where its map is full; then every log is a task.
    """
    logs = {work.partition for work in unit.partitions}
    configs, layout = table.topic.config, files.layout()
    log_files = with_footers(table, platform, files.log_files(logs), layout, logs)
    remembered = remembered_files(table, logs)
    groups = [(w,) for w in unit.partitions] if by_rounds else log_groups(unit.partitions, log_files)
    by_group = [(works, files_of(works, log_files)) for works in groups]
    cores = parallelism(platform.spark.master, platform.spark.conf)
    share = share_records(unit.partitions, cores, platform.cleaner.cleantail_task_memory_bytes)
    shares = [1 if by_rounds else share_count(works, share) for works, _ in by_group]
    return [
        LogTask(
            works=works,
            files=of_group,
            layout=layout,
            configs=configs,
            now_ms=unit.now_ms,
            threads=max(cores // sum(shares), 1),
            memory_bytes=platform.cleaner.cleantail_task_memory_bytes,
            location=platform.warehouse,
            remembered=remembered,
            max_keys=keys_in_budget(platform.cleaner, configs) if by_rounds else None,
            shares=number,
            ships_map=map_fits(sum(w.dirty_records for w in works), platform.cleaner.cleantail_task_memory_bytes),
        )
        for (works, of_group), number in zip(by_group, shares, strict=True)
    ]


def with_footers(
    table: TopicTable, platform: Platform, files: Sequence[LogFile], layout: Layout, logs: set[int]
) -> list[LogFile]:
    """Returns the files of the logs; of those of an adopted table whose metadata have no bounds, with what their
    footers say. Spark tasks read these, once for a file: it never changes."""
    silent = {f.path: f for f in files if f.lower_offset is None or f.upper_offset is None}
    unread = [f for path, f in silent.items() if path not in _footers]
    if unread:
        tasks = max(min(parallelism(platform.spark.master, platform.spark.conf), len(unread)), 1)
        shares = [FooterTask(tuple(unread[n::tasks]), layout, platform.warehouse) for n in range(tasks)]
        if len(_footers) > REMEMBERED_FOOTERS:
            _footers.clear()
        for read in run_tasks(table, platform, read_footers, shares, "read the footers of files"):
            _footers.update((file.path, file) for file in read)
    known = [_with_footer(file) if file.path in silent else file for file in files]
    return [file for file in known if file.log is None or file.log in logs]


REMEMBERED_FOOTERS = 100_000
_footers: dict[str, LogFile] = {}


def _with_footer(file: LogFile) -> LogFile:
    """Returns the file with the bounds of its footer, and with the delete files and registrations that it has now."""
    return replace(
        _footers[file.path],
        before=file.before,
        after=file.after,
        lost=file.lost,
        again=file.again,
        arrived=file.arrived,
        first_row_id=file.first_row_id,
    )


def files_of(works: Sequence[PartitionWork], files: Sequence[LogFile]) -> tuple[LogFile, ...]:
    """Returns the files that can have records of the logs."""
    logs = {work.partition for work in works}
    return tuple(file for file in files if file.log is None or file.log in logs)


def log_groups(works: Sequence[PartitionWork], files: Sequence[LogFile]) -> list[tuple[PartitionWork, ...]]:
    """Returns the logs that one task takes each: one, unless a file may have records of several."""
    ordered = sorted(works, key=lambda w: w.partition)
    return [tuple(ordered)] if any(file.log is None for file in files) else [(work,) for work in ordered]


@dataclass(frozen=True, slots=True)
class Work(Generic[R]):
    """A kind of work on logs. `whole` does it in one task; a log of several shares is gone through by `read_share`,
    whose records come together by key in `decide_bucket` (spark_jobs.engine.shared_log). `merge` makes one result of
    the parts. `name` is for people."""

    name: str
    whole: Callable[[Mapping[str, str], LogTask], R]
    read_share: Callable[[DirtyPart, FileIO], tuple[Iterable[pa.RecordBatch], Callable[[], R]]]
    decide_bucket: Callable[[LogTask, TouchedRecords, int, Ranks | None, Ranks | None], R]
    merge: Callable[[Iterable[R]], R]


def run_work(table: TopicTable, platform: Platform, work: Work[R], tasks: Sequence[LogTask]) -> list[R]:
    """Does the work for every task: whole ones in one Spark job, each log of several shares in two more."""
    whole = [task for task in tasks if task.shares == 1]
    done = run_tasks(table, platform, work.whole, whole, work.name)
    return [*done, *(_run_shared(table, platform, work, task) for task in tasks if task.shares > 1)]


def _run_shared(table: TopicTable, platform: Platform, work: Work[R], task: LogTask) -> R:
    store, shares = file_io_properties(table.topic, platform, os.environ), shares_of(task)
    dirty_shares = [share for share in shares if any(_may_be_dirty(task, task.files[n]) for n in share.share or ())]
    what, context = f"{work.name}: dirty keys", table.spark.sparkContext
    known = context.broadcast(
        merged_map(task, run_tasks(table, platform, read_map_share, dirty_shares, what))
        if task.ships_map
        else merged(task, run_tasks(table, platform, read_dirty_share, dirty_shares, what))
    )
    with _described(context, f"{work.name} of {table.topic.topic}"):
        parts = (
            context.parallelize(shares, len(shares))
            .flatMap(partial(_share, store, known, task.shares, work))
            .partitionBy(task.shares, int)
            .mapPartitions(partial(_bucket, replace(task, share=()), work.decide_bucket))
            .collect()
        )
    known.destroy()
    return work.merge(require_done(parts))


def _share(
    store: Mapping[str, str], known: Any, buckets: int, work: Work[Any], task: LogTask
) -> Iterator[tuple[int, Any]]:
    try:
        if task.ships_map:
            yield from by_numbers(store, task, known.value, buckets, work.read_share, work.decide_bucket)
        else:
            yield from to_buckets(store, task, known.value, buckets, work.read_share)
    except CleantailError as e:
        yield 0, (RESULT, Failed(e))


def _bucket(task: LogTask, decide: Any, messages: Iterator[tuple[int, Any]]) -> Iterator[Any]:
    contents = (message for _, message in messages)
    records, count, remembered, results = of_numbers(contents) if task.ships_map else of_bucket(contents)
    yield from results
    if count:
        yield decide(task, records, count, remembered, None)


def shares_of(task: LogTask) -> list[LogTask]:
    """Returns the shares of a task: its files, largest first, each to the share that has the fewest records so far."""
    numbers: list[list[int]] = [[] for _ in range(task.shares)]
    records = [0] * task.shares
    for number, file in sorted(enumerate(task.files), key=lambda pair: -pair[1].records):
        least = records.index(min(records))
        numbers[least].append(number)
        records[least] += file.records
    return [replace(task, share=tuple(sorted(of_share))) for of_share in numbers if of_share]


def _may_be_dirty(task: LogTask, file: LogFile) -> bool:
    return any(file.may_hold(work.first_dirty_offset, work.end_offset) for work in task.works)


def run_tasks(
    table: TopicTable,
    platform: Platform,
    work: Callable[[Mapping[str, str], T], R],
    tasks: Sequence[T],
    what: str,
) -> list[R]:
    """Runs the tasks on Spark's executors, and returns what each of them returns, in their order. `what` names the
    Spark job for people."""
    if not tasks:
        return []
    # in the function, not in the data: what is handed to tasks as data may lie in a file on the way
    with_store = partial(_done_or_failed, work, file_io_properties(table.topic, platform, os.environ))
    context = table.spark.sparkContext
    require_workers(context, platform, parallelism(platform.spark.master, platform.spark.conf))
    with _described(context, f"{what} of {table.topic.topic}"):
        return require_done(context.parallelize(list(tasks), len(tasks)).map(with_store).collect())


@dataclass(frozen=True, slots=True)
class Failed:
    """What a task raised that a person can mend. Any other error Spark tells, after it has tried the task again."""

    error: CleantailError


def _done_or_failed(work: Callable[[Mapping[str, str], T], R], store: Mapping[str, str], task: T) -> R | Failed:
    try:
        return work(store, task)
    except CleantailError as e:
        return Failed(e)


def require_done(results: Iterable[R | Failed]) -> list[R]:
    """Returns the results. Raises the error of the first task that failed."""
    done = []
    for result in results:
        if isinstance(result, Failed):
            raise result.error
        done.append(result)
    return done


@contextmanager
def _described(context: SparkContext, description: str) -> Iterator[None]:
    """Names the jobs that are run inside, for Spark's own pages."""
    context.setJobDescription(description)
    try:
        yield
    finally:
        context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
