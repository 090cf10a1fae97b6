"""Read the brokers' keys, and compare them with the table's keys in buckets by a hash of the key.

A larger log needs more tasks, but not more memory for a task. A bucket's database has a task's memory, and then spills
to disk.

A log at a broker is not a snapshot. During the read, a key may be written again, and the broker's cleaner may then
remove its old record before the read reaches it. So the log is read in passes. Each pass begins at the end of the
previous pass, and ends at the log end at its beginning.

If a pass misses a key that stays alive, that key was written again above the pass, and the next pass reads it. If no
record was written during a pass, the pass cannot miss a key. A log that is written continuously is read in PASSES
passes. The last pass is short: it reads only records that arrived during the previous pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io
from pyspark import StorageLevel

from cleantail.errors import CleantailError
from cleantail.kafka.read_plan import BrokerTopic, Range, ReadPlan, portion_ranges, task_ranges
from cleantail.kafka.source_topic import RangeReader, SourceTopic
from cleantail.lake.catalogs import file_io_properties
from cleantail.log.source_position import position_of
from cleantail.log.task_shares import bucket_count
from cleantail.log.winners import Booleans
from spark_jobs.engine.log_task import Bounds, LogTask
from spark_jobs.engine.shared_logs import RESULT, Hashes, Message, blobs
from spark_jobs.engine.task_records import Records, reading, records_of, task_database
from spark_jobs.engine.tasks import Failed, described, require_done, require_python, shares_of
from spark_jobs.iceberg.file_columns import each_noting
from spark_jobs.iceberg.java_calls import texts
from spark_jobs.iceberg.log_files import LogFile, live_after, live_before
from spark_jobs.iceberg.tables import TopicTable

PASSES = 5
HASHED_RECORDS, BLOB_BYTES = 1 << 13, 8 << 20
"""Number of records to hash at a time, and bytes of records to put into buckets at a time."""
SOURCE = "source"
"""Kind of a message to a bucket: keys of the brokers."""
SOURCE_KEYS = pa.schema([("log", pa.int32()), ("key", pa.binary()), ("offset", pa.int64()), ("tombstone", pa.bool_())])


@dataclass(frozen=True, slots=True)
class SourceKeys:
    """The result of the passes: messages to buckets on the executors' disks, and [start, end) of each log."""

    passes: tuple[Any, ...]
    starts: Mapping[int, int]
    ends: Mapping[int, int]

    def release(self) -> None:
        """Delete the messages from the executors' disks."""
        for each in self.passes:
            each.unpersist()


def read_source_keys(
    context: Any, source: SourceTopic, broker: BrokerTopic, logs: Iterable[int], buckets: int, memory_bytes: int
) -> SourceKeys:
    """Read the keys of these logs from their start to the log end at the beginning of the last pass.

    `broker`: the topic, already verified as the table's source. Raises CleantailError with partition and offset if a
    read fails. Raises it also if the topic was recreated meanwhile.
    """
    passes = list[Any]()
    chosen = set(logs) & set(broker.logs)
    starts = {p: broker.logs[p].start for p in chosen}
    low, ends = dict(starts), {p: max(end, starts[p]) for p, end in source.ends(broker).items() if p in chosen}
    try:
        while any(low[p] < ends[p] for p in chosen) and len(passes) < PASSES:
            passes.append(_one_pass(context, source, ReadPlan(low, ends), buckets, memory_bytes))
            now = source.ends(source.describe_again(broker))
            low, ends = ends, {p: max(end, now.get(p, end)) for p, end in ends.items()}
    except CleantailError:
        SourceKeys(tuple(passes), {}, {}).release()
        raise
    return SourceKeys(tuple(passes), starts, low if passes else ends)


def _one_pass(context: Any, source: SourceTopic, plan: ReadPlan, buckets: int, memory_bytes: int) -> Any:
    cores = int(context.defaultParallelism)
    tasks = task_ranges(portion_ranges(plan, plan.offsets, cores), cores)
    read = partial(messages_of_ranges, source.open_reader(), buckets, memory_bytes)
    with described(context, f"read the keys of {source.topic.kafka_topic} in Kafka"):
        messages = context.parallelize(tasks, max(len(tasks), 1)).flatMap(read).persist(StorageLevel.DISK_ONLY)
        failed = messages.values().filter(lambda message: message[0] == RESULT).collect()
    if failed:
        messages.unpersist()
    require_done(content for _, content in failed)
    return messages


def messages_of_ranges(
    open_reader: Callable[[], RangeReader], buckets: int, memory_bytes: int, ranges: Sequence[Range]
) -> Iterator[tuple[int, Message]]:
    """Yield (bucket, keys of the ranges). An error goes to the first bucket."""
    try:
        reader = open_reader()
        try:
            with task_database(1, memory_bytes) as database:
                for bucket, blob in in_buckets(database, SOURCE_KEYS, _keys(reader, ranges), buckets):
                    yield bucket, (SOURCE, blob)
        finally:
            reader.close()
    except CleantailError as e:
        yield 0, (RESULT, Failed(e))


def in_buckets(
    database: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch], buckets: int
) -> Iterator[tuple[int, bytes]]:
    """Yield (bucket, records with a key as an Arrow stream), by a hash of the key, from BLOB_BYTES at a time."""
    waiting, size = list[pa.RecordBatch](), 0
    with reading(database, "record", schema, batches):
        rows = database.sql("SELECT *, hash(key) AS h FROM record WHERE key IS NOT NULL")
        for batch in rows.to_arrow_reader(HASHED_RECORDS):
            waiting.append(batch)
            size += batch.nbytes
            if size >= BLOB_BYTES:
                yield from blobs(waiting, _everything, buckets)
                waiting, size = [], 0
    yield from blobs(waiting, _everything, buckets)


def _everything(hashes: Hashes) -> Booleans:
    return np.ones(len(hashes), np.bool_)


def _keys(reader: RangeReader, ranges: Iterable[Range]) -> Iterator[pa.RecordBatch]:
    for each in ranges:
        for messages in reader.batches(each):
            arrays = [
                pa.array([each.partition] * len(messages), pa.int32()),
                pa.array([m.key() for m in messages], pa.binary()),
                pa.array([m.offset() for m in messages], pa.int64()),
                pa.array([m.value() is None for m in messages], pa.bool_()),
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=SOURCE_KEYS)


TABLE = "table"
"""Kind of a message to a bucket: records of the table."""
BEFORE, AFTER = 1, 2
"""Bits of `state`: the base has the record, the branch has the record."""
TABLE_KEYS = pa.schema(
    [
        ("log", pa.int32()),
        ("key", pa.binary()),
        ("offset", pa.int64()),
        ("tombstone", pa.bool_()),
        ("file", pa.int64()),
        ("pos", pa.int64()),
        ("state", pa.int8()),
    ]
)
Counting = Callable[[LogTask, Records, Booleans, Booleans], None]
"""Counts the records of one batch. The two masks show which records the base and the branch have."""


def messages_of_share(
    properties: Mapping[str, str],
    tasks: Any,
    buckets: int,
    counting: Callable[[LogTask], tuple[Counting, Callable[[], Any]]] | None,
    share: tuple[int, tuple[int, ...]],
) -> Iterator[tuple[int, Message]]:
    """Yield (bucket, records below the end of their log). The first bucket also gets the check's counts of all these
    records, or the error. `share`: number of a broadcast task, and the numbers of its files."""
    number, files = share
    task: LogTask = replace(tasks.value[number], share=files)
    count, result = counting(task) if counting else (None, None)
    try:
        io = load_file_io(dict(properties), task.location)
        batches = (_table_batch(task, *each) for each in _records(task, io, count))
        with task_database(1, task.memory_bytes // max(task.threads, 1)) as database:
            for bucket, blob in in_buckets(database, TABLE_KEYS, batches, buckets):
                yield bucket, (TABLE, blob)
        if result:
            yield 0, (RESULT, result())
    except CleantailError as e:
        yield 0, (RESULT, Failed(e))


def _records(
    task: LogTask, io: FileIO, count: Counting | None
) -> Iterator[tuple[LogFile, Records, Booleans, Booleans]]:
    for _, file in task.numbered_files():
        before = live_before(io, file)
        after = live_after(io, file) if count else before
        for records in records_of(io, task, file, before | after, tombstones=True):
            if count:
                count(task, records, before[records.pos], after[records.pos])
            yield file, records, before, after


def _table_batch(task: LogTask, file: LogFile, records: Records, before: Booleans, after: Booleans) -> pa.RecordBatch:
    assert len(task.works) == 1 and records.tombstone is not None, "a topic's own table has one log in a file"
    bounds = Bounds.of(task)
    chosen = records.where((records.offset < bounds.end[0]) & (records.offset >= bounds.retained[0]))
    state = np.where(before[chosen.pos], BEFORE, 0) + np.where(after[chosen.pos], AFTER, 0)
    arrays = [
        pa.array(np.full(len(chosen), task.works[0].partition), pa.int32()),
        chosen.key,
        pa.array(chosen.offset, pa.int64()),
        pa.array(chosen.tombstone, pa.bool_()),
        pa.array(np.full(len(chosen), file.hash), pa.int64()),
        pa.array(chosen.pos, pa.int64()),
        pa.array(state, pa.int8()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=TABLE_KEYS)


Decide = Callable[[int, Iterator[tuple[int, Message]]], Iterator[Any]]
"""Takes a task's memory in bytes and the messages to one bucket."""


def comparable(table: TopicTable, source: SourceTopic) -> BrokerTopic:
    """Return the broker's view of the topic from which the table was read. Raises as require_comparable does."""
    return source.require_comparable(position_of(texts(table.load().properties()), table.name))


def buckets_of(tasks: Sequence[LogTask], source_offsets: int, memory_bytes: int, cores: int) -> int:
    """Return the number of tasks to which the keys of both sides are shuffled."""
    records = sum(work.records for task in tasks for work in task.works)
    return bucket_count(records + source_offsets, max(cores, 1), memory_bytes, 0)


def compared(
    table: TopicTable, tasks: Sequence[LogTask], source: SourceKeys, buckets: int, decide: Decide, counting: Any = None
) -> list[Any]:
    """Return the decisions of every bucket, and the results of `counting` for every share of the table's files."""
    context = table.spark.sparkContext
    store: Mapping[str, str] = file_io_properties(table.topic)
    require_python(context, table.platform)
    # one task for each log: in a task of several logs each key begins with its log, unlike the brokers' keys
    tasks = [
        replace(task, works=(work,), files=tuple(file for file in task.files if file.log == work.partition))
        for task in tasks
        for work in task.works
    ]
    shipped = context.broadcast(tasks)
    fewest = -(-int(context.defaultParallelism) // max(len(tasks), 1))
    shares = [
        (number, share)
        for number, task in enumerate(tasks)
        for share in shares_of(replace(task, shares=max(task.shares, fewest)))
    ]
    memory_bytes = table.platform.cleaner.cleantail_task_memory_bytes
    try:
        with described(context, f"compare the keys of {table.topic.topic} with its source"):
            of_table = context.parallelize(shares, max(len(shares), 1)).flatMap(
                partial(each_noting, table.met, messages_of_share, store, shipped, buckets, counting)
            )
            both = context.union([of_table, *source.passes]).partitionBy(buckets, int)
            return require_done(both.mapPartitions(partial(decide, memory_bytes)).collect())
    finally:
        shipped.destroy()
