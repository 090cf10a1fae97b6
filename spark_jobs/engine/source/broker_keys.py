"""Reads the keys that the brokers have, in tasks, and puts them into buckets by a hash.

A log at a broker is no snapshot: while it is read, its cleaner may remove a record that was passed by too late, since
the key was written again. So the log is read in passes. Each begins where the one before ended and ends at the log end
of its beginning. A key that is alive all the while, and that a pass misses, was written again above that pass, and the
next one has it; where nothing was written during a pass no key can be missing. On a log that is written to without a
pause the last of PASSES takes the moment that it takes to read what came within one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel

from cleantail.errors import CleantailError
from cleantail.kafka.read_plan import BrokerTopic, Range, ReadPlan, portion_ranges, task_ranges
from cleantail.kafka.source_topic import RangeReader, SourceTopic
from cleantail.log.winners import Booleans
from spark_jobs.engine.columns.key_filter import Hashes
from spark_jobs.engine.columns.task_database import reading, task_database
from spark_jobs.engine.shared.key_buckets import RESULT, Message, blobs
from spark_jobs.engine.tasks import Failed, described, require_done

if TYPE_CHECKING:
    from confluent_kafka import Message as KafkaMessage

PASSES = 5
HASHED_RECORDS, BLOB_BYTES = 1 << 13, 8 << 20
"""How many records are hashed at a time, and how many bytes of them go into buckets at a time."""
SOURCE = "source"
"""What a message to a bucket holds: keys of the brokers."""
SOURCE_KEYS = pa.schema([("log", pa.int32()), ("key", pa.binary()), ("offset", pa.int64()), ("tombstone", pa.bool_())])


@dataclass(frozen=True, slots=True)
class SourceKeys:
    """Holds what the passes have read, as messages to buckets on the executors' disks, and [start, end) of each log."""

    passes: tuple[Any, ...]
    starts: Mapping[int, int]
    ends: Mapping[int, int]

    def release(self) -> None:
        """Gives the executors' disks back."""
        for each in self.passes:
            each.unpersist()


def read_source_keys(
    context: Any, source: SourceTopic, broker: BrokerTopic, logs: Iterable[int], buckets: int, memory_bytes: int
) -> SourceKeys:
    """Reads the keys of these logs from the beginning to where they end as the last pass begins. `broker`: the topic as
    it was found to be the table's own. Raises CleantailError, which names partition and offset where a read has failed,
    also where the topic was recreated meanwhile."""
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
        failed = messages.values().filter(_is_result).collect()
    if failed:
        messages.unpersist()
    require_done(content for _, content in failed)
    return messages


def _is_result(message: Message) -> bool:
    return message[0] == RESULT


def messages_of_ranges(
    open_reader: Callable[[], RangeReader], buckets: int, memory_bytes: int, ranges: Sequence[Range]
) -> Iterator[tuple[int, Message]]:
    """Yields (bucket, keys of the ranges); or what went wrong, to the first bucket."""
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
    """Yields (bucket, records that have a key as an Arrow stream), by a hash of the key. Of long keys fewer records
    wait for one another than of short ones: BLOB_BYTES bounds them."""
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
            yield _batch(each.partition, messages)


def _batch(partition: int, messages: Sequence[KafkaMessage]) -> pa.RecordBatch:
    arrays = [
        pa.array([partition] * len(messages), pa.int32()),
        pa.array([m.key() for m in messages], pa.binary()),
        pa.array([m.offset() for m in messages], pa.int64()),
        pa.array([m.value() is None for m in messages], pa.bool_()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SOURCE_KEYS)
