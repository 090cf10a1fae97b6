"""The driver's side: it makes tasks of the logs of a unit, and runs them on Spark.

1. Some sinks write no bounds to Iceberg's metadata. Tasks then read the bounds from the footers of the Parquet files.
2. The files of a large log are split into shares. If records of two shares are never compared, each share is a task
   that has only its own files (run_apart). Otherwise run_work merges what must be compared:
   tasks read the dirty part of their share of the files, and Spark merges the results. The merged dirty part is
   broadcast, and tasks read each share of the files. Records that must be compared meet in a bucket (shared_logs).

The list of files is broadcast once. Otherwise Spark would send it with every task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io
from pyspark import SparkContext

from cleantail.config.platform import Platform
from cleantail.config.topic_table import KEY, OFFSET, PARTITION, VALUE
from cleantail.errors import CleantailError
from cleantail.lake.catalogs import file_io_properties
from cleantail.lake.data_files import Statistics
from cleantail.lake.manifest_entries import open_parquet
from cleantail.log.adopted_table import LAST_UPDATED, ROW_ID, Lineage, Span, offset_range
from cleantail.log.task_shares import KEY_BYTES, keys_in_budget, map_fits, parallelism, task_sizes
from cleantail.log.winners import Ranks
from cleantail.log.work_units import PartitionWork, WorkUnit
from spark_jobs.engine import shared_logs
from spark_jobs.engine.deleted_versions import remembered_files
from spark_jobs.engine.log_task import LogTask
from spark_jobs.engine.removals import DirtyPart
from spark_jobs.engine.shared_logs import RESULT
from spark_jobs.engine.task_records import TouchedRecords
from spark_jobs.engine.workers.environment import require_workers
from spark_jobs.iceberg.file_columns import (
    KindsMet,
    Layout,
    Projection,
    each_noting,
    has_offsets,
    noting,
    null_keys,
    parts_in,
)
from spark_jobs.iceberg.log_files import LogFile
from spark_jobs.iceberg.snapshot_files import SnapshotFiles
from spark_jobs.iceberg.tables import TopicTable

Share = tuple[int, ...]
"""The numbers of the files of one share."""


def shares_of(task: LogTask) -> list[Share]:
    """Return the shares of a task: its files, largest first, each to the share that has the fewest records so far."""
    numbers: list[list[int]] = [[] for _ in range(task.shares)]
    records = [0] * task.shares
    for number, file in sorted(enumerate(task.files), key=lambda pair: -_records(pair[1])):
        least = records.index(min(records))
        numbers[least].append(number)
        records[least] += _records(file)
    return [tuple(sorted(of_share)) for of_share in numbers if of_share]


def run_apart(
    table: TopicTable,
    work: Callable[[Mapping[str, str], LogTask], R],
    merge: Callable[[Iterable[R]], R],
    tasks: Sequence[LogTask],
    what: str,
) -> list[R]:
    """Run each share of the tasks on its own, and return one merged result for each task."""
    shares = [(number, share) for number, task in enumerate(tasks) for share in tasks_of_shares(task)]
    done = run_tasks(table, work, [share for _, share in shares], what)
    by_task: list[list[R]] = [[] for _ in tasks]
    for (number, _), result in zip(shares, done, strict=True):
        by_task[number].append(result)
    return [merge(results) for results in by_task]


def tasks_of_shares(task: LogTask) -> list[LogTask]:
    """Return one task for each share. A task reads its own files. It also has the files that reach above the first
    dirty offset: an expiry finds in them the records against which a tombstone guards its key."""
    if task.shares == 1:
        return [task]
    end = min(work.end_offset for work in task.works)
    above = [file for file in task.files if file.upper_offset is None or file.upper_offset >= end]
    shares = [{task.files[number].name: task.files[number] for number in share} for share in shares_of(task)]
    return [
        replace(
            task,
            files=(*own.values(), *(file for file in above if file.name not in own)),
            share=tuple(range(len(own))),
        )
        for own in shares
    ]


def _records(file: LogFile) -> int:
    return file.records // file.pieces


@dataclass(frozen=True, slots=True)
class FooterTask:
    files: tuple[LogFile, ...]
    layout: Layout
    location: str


def read_footers(properties: Mapping[str, str], task: FooterTask) -> list[LogFile]:
    """Return the files with the bounds that their footers have. `properties`: of PyIceberg's FileIO."""
    io = load_file_io(dict(properties), task.location)
    files = []
    for file in task.files:
        with io.new_input(file.path).open() as stream:
            parquet = open_parquet(stream, file.path)
            columns = (PARTITION, OFFSET, KEY, VALUE, *parts_in(task.layout, KEY), ROW_ID, LAST_UPDATED)
            projection = Projection(parquet.schema_arrow, task.layout, columns, file.constants, file.path)
            statistics = Statistics(parquet.metadata, projection)
            bounded = _with_bounds(file, statistics, task.layout)
            with_offsets = None if has_offsets(task.layout) else _with_made_offsets(file, bounded, statistics)
            files.append(with_offsets or bounded)
    return files


def _with_made_offsets(file: LogFile, bounded: LogFile, statistics: Statistics) -> LogFile:
    """Return the file with the offset bounds that row lineage gives, and with the counts of keys and values that the
    manifest lacks. If the file's own lineage columns lack statistics, its offsets have no bounds."""
    known = bounded if file.null_keys is None else file
    spans = [_span(file, statistics, name) for name in (ROW_ID, LAST_UPDATED)]
    if UNKNOWN in spans:
        return replace(known, log=bounded.log, lower_offset=None, upper_offset=None)
    lineage = Lineage(file.first_row_id, file.updated)
    row_ids, updated = (span if isinstance(span, Span) else None for span in spans)
    low, high = offset_range(file.records, lineage, file.path, (row_ids, updated))
    return replace(known, log=bounded.log, lower_offset=low, upper_offset=high)


UNKNOWN = "unknown"


def _span(file: LogFile, statistics: Statistics, column: str) -> Span | str | None:
    """Return the span of the file's own values in a lineage column: None without values, UNKNOWN without statistics."""
    bounds, nulls = statistics.range(column), statistics.nulls(column)
    if nulls == file.records:
        return None
    return UNKNOWN if bounds is None or nulls is None else Span(int(bounds[0]), int(bounds[1]), nulls > 0)


def _with_bounds(file: LogFile, statistics: Statistics, layout: Layout) -> LogFile:
    partition, offset, key = (statistics.range(name) for name in (PARTITION, OFFSET, KEY))
    in_bytes = key is not None and KEY in layout and layout[KEY].kind == "binary"
    one_log = partition is not None and partition[0] == partition[1] and statistics.nulls(PARTITION) == 0
    return replace(
        file,
        log=int(partition[0]) if partition is not None and one_log else file.log,
        lower_offset=None if offset is None else int(offset[0]),
        upper_offset=None if offset is None else int(offset[1]),
        low_key=key[0] if key is not None and in_bytes else None,
        high_key=key[1] if key is not None and in_bytes else None,
        null_keys=null_keys(layout, statistics.nulls),
        null_values=statistics.nulls(VALUE) if VALUE in layout and not file.marked else file.null_values,
    )


R = TypeVar("R")
T = TypeVar("T")


def log_tasks(table: TopicTable, unit: WorkUnit, files: SnapshotFiles, by_rounds: bool = False) -> list[LogTask]:
    """Return the tasks of a unit, one for each log. Small logs share a task, and so do logs that share files.
    `by_rounds`: a round ends when its map is full, so every log has its own task."""
    platform = table.platform
    logs = {work.partition for work in unit.partitions}
    configs, layout = table.topic.config, files.layout
    log_files = with_footers(table, files.log_files(logs), layout, logs)
    remembered = remembered_files(table, logs)
    memory_bytes = platform.cleaner.cleantail_task_memory_bytes
    sizes = task_sizes(unit.partitions, platform.spark, memory_bytes)
    groups: list[tuple[PartitionWork, ...]]
    if by_rounds:
        groups = [(work,) for work in unit.partitions]
    elif any(file.log is None for file in log_files):
        groups = [tuple(sorted(unit.partitions, key=lambda w: w.partition))]
    else:
        groups = sizes.packs(unit.partitions)
    by_group = [(works, files_of(works, log_files)) for works in groups]
    shares = [1 if by_rounds else sizes.tasks(works) for works, _ in by_group]
    threads = [sizes.threads(works) if number == 1 else 1 for (works, _), number in zip(by_group, shares, strict=True)]
    records_of_piece = max(sizes.share // PIECES_OF_SHARE, 1)
    return [
        LogTask(
            works=works,
            files=tuple(p for file in of_group for p in file.split(records_of_piece)) if number > 1 else of_group,
            layout=layout,
            configs=configs,
            now_ms=unit.now_ms,
            threads=of_task,
            memory_bytes=memory_bytes * of_task,
            location=platform.warehouse,
            remembered=remembered.of(works),
            max_keys=keys_in_budget(platform.cleaner, configs) if by_rounds else None,
            shares=number,
            ships_map=map_fits(*map_size(works, of_group), memory_bytes),
        )
        for (works, of_group), number, of_task in zip(by_group, shares, threads, strict=True)
    ]


PIECES_OF_SHARE = 4
"""A piece of a file has at most this fraction of a share's records, so that shares are of similar size."""


def map_size(works: Sequence[PartitionWork], files: Sequence[LogFile]) -> tuple[int, int]:
    """Return the maximum number of records in the dirty part, and the size of its keys in their files."""
    dirty = {f.path: f.key_bytes for f in files for w in works if f.may_hold(w.first_dirty_offset, w.end_offset)}
    return sum(work.dirty_records for work in works), sum(dirty.values())


def with_footers(table: TopicTable, files: Sequence[LogFile], layout: Layout, logs: set[int]) -> list[LogFile]:
    """Return the files of the logs. If an adopted table's metadata have no bounds, add the bounds in the footers.
    Spark tasks read each footer once: a file never changes."""
    place = repr(sorted(layout.items()))
    silent = {_of_footer(f, place) for f in files if f.lower_offset is None or f.upper_offset is None}
    # kept in a local variable: another thread may drop entries of the shared cache
    read = {name: footer for name in silent if (footer := _footers.get(name)) is not None}
    if unread := [f for f in files if _of_footer(f, place) in silent and _of_footer(f, place) not in read]:
        tasks = max(min(parallelism(table.platform.spark), len(unread)), 1)
        shares = [FooterTask(tuple(unread[n::tasks]), layout, table.platform.warehouse) for n in range(tasks)]
        of_tasks = run_tasks(table, read_footers, shares, "read the footers of files")
        fresh = {_of_footer(file, place): file for of_task in of_tasks for file in of_task}
        if len(_footers) > REMEMBERED_FOOTERS:
            _footers.clear()
        _footers.update(fresh)
        read |= fresh
    known = [_with_footer(f, read[_of_footer(f, place)]) if _of_footer(f, place) in silent else f for f in files]
    return [file for file in known if file.log is None or file.log in logs]


REMEMBERED_FOOTERS = 100_000
FooterName = tuple[str, int | None, int, str]
_footers: dict[FooterName, LogFile] = {}


def _of_footer(file: LogFile, layout: str) -> FooterName:
    """Return the name under which a footer is remembered. Offset bounds from row lineage depend on the file's first row
    id, which changes when a round registers the file only once."""
    return file.path, file.first_row_id, file.updated, layout


def _with_footer(file: LogFile, footer: LogFile) -> LogFile:
    """Return the file with the bounds of its footer, and with its present delete files and registrations."""
    return replace(
        footer,
        before=file.before,
        after=file.after,
        lost=file.lost,
        again=file.again,
        arrived=file.arrived,
        first_row_id=file.first_row_id,
        updated=file.updated,
    )


def files_of(works: Sequence[PartitionWork], files: Sequence[LogFile]) -> tuple[LogFile, ...]:
    logs = {work.partition for work in works}
    return tuple(file for file in files if file.log is None or file.log in logs)


def run_tasks(table: TopicTable, work: Callable[[Mapping[str, str], T], R], tasks: Sequence[T], what: str) -> list[R]:
    """Run the tasks on Spark's executors, and return their results in order. `what` names the Spark job for people."""
    return run_stored(table, with_store(table, work), tasks, what) if tasks else []


def with_store(table: TopicTable, work: Callable[[Mapping[str, str], T], R]) -> Callable[[T], R | Failed]:
    """Return the work with its store, for several calls of run_stored. Raises as require_python does."""
    require_python(table.spark.sparkContext, table.platform)
    return stored_work(work, file_io_properties(table.topic), table.met)


def stored_work(
    work: Callable[[Mapping[str, str], T], R], store: Mapping[str, str], met: KindsMet | None = None
) -> Callable[[T], R | Failed]:
    """Return the work with the properties by which its tasks open files."""
    # the store's secrets are in the function, not in the data: Spark may spill a task's data to a file
    return partial(_done_or_failed, work, store, met)


def run_stored(table: TopicTable, work: Callable[[T], R | Failed], tasks: Sequence[T], what: str) -> list[R]:
    return run_described(table.spark.sparkContext, work, tasks, f"{what} of {table.topic.topic}")


def run_described(
    context: SparkContext, work: Callable[[T], R | Failed], tasks: Sequence[T], description: str
) -> list[R]:
    """Run the tasks as run_tasks does, for a table that need not be a topic's."""
    with described(context, description):
        return require_done(context.parallelize(list(tasks), len(tasks)).map(work).collect())


def require_python(context: SparkContext, platform: Platform) -> None:
    """Raise CleantailError if Spark's workers lack what the tasks need."""
    require_workers(context, platform, parallelism(platform.spark))


@dataclass(frozen=True, slots=True)
class Failed:
    """An error of a task that a person can fix. Spark retries a task after any other error, then reports it."""

    error: CleantailError


def _done_or_failed(
    work: Callable[[Mapping[str, str], T], R], store: Mapping[str, str], met: KindsMet | None, task: T
) -> R | Failed:
    try:
        with noting(met):
            return work(store, task)
    except CleantailError as e:
        return Failed(e)


def require_done(results: Iterable[R | Failed]) -> list[R]:
    done = []
    for result in results:
        if isinstance(result, Failed):
            raise result.error
        done.append(result)
    return done


@contextmanager
def described(context: SparkContext, description: str) -> Iterator[None]:
    """Name the jobs of this context on Spark's own pages."""
    context.setJobDescription(description)
    try:
        yield
    finally:
        context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]


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
    """Return how many multi-task logs run at once: their maps together may take a task's memory in the driver."""
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
    """Return the dirty part of all shares, by merged_map or shared_logs.merged_filter. Spark merges groups of shares,
    and then the groups, so the driver gets one part."""
    task: LogTask = shipped.value
    spans = [(work.first_dirty_offset, work.end_offset) for work in task.works]
    dirty = [share for share in shares if any(task.files[n].may_hold(*span) for n in share for span in spans)]
    parts: list[Any] = []
    if dirty:
        groups = math.isqrt(len(dirty))
        read = context.parallelize(list(enumerate(dirty)), len(dirty)).map(partial(_dirty_share, store, shipped, met))
        if groups > 1:
            read = read.partitionBy(groups, int).mapPartitionsWithIndex(_merged_group).partitionBy(1, lambda _: 0)
            read = read.mapPartitionsWithIndex(_merged_group)
        parts = read.values().collect()
    merge = shared_logs.merged_map if task.ships_map else shared_logs.merged_filter
    return merge(task, require_done(parts))


def _dirty_share(store: Mapping[str, str], shipped: Any, met: KindsMet, numbered: tuple[int, Share]) -> tuple[int, Any]:
    number, share = numbered
    task: LogTask = replace(shipped.value, share=share)
    try:
        with noting(met):
            return number, (shared_logs.read_map_share if task.ships_map else shared_logs.read_dirty_share)(store, task)
    except CleantailError as e:
        return number, Failed(e)


def _merged_group(number: int, parts: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """Yield the union of the parts, if there are any, or the first error among them."""
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
    task: LogTask = replace(shipped.value, share=share)
    try:
        if task.ships_map:
            yield from shared_logs.by_numbers(store, task, known.value, work.read_share, work.decide_bucket)
        else:
            yield from shared_logs.to_buckets(store, task, known.value, work.read_share)
    except CleantailError as e:
        yield 0, (RESULT, Failed(e))


def _bucket(shipped: Any, decide: Any, messages: Iterator[tuple[int, Any]]) -> Iterator[Any]:
    contents, task = (message for _, message in messages), replace(shipped.value, share=())
    of_bucket = shared_logs.of_numbers if task.ships_map else shared_logs.of_bucket
    records, count, remembered, results = of_bucket(contents)
    yield from results
    if count:
        yield decide(task, records, count, remembered, None)
