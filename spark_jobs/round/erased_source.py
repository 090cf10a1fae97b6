"""Erased keys in the topic that a table is read from: which of them Kafka still has, and tombstones for them.

Kafka deletes records of a key by its own cleaner, some time after a tombstone. A certificate says what the brokers had
when it was issued. Keys stay in memory: neither logs nor results have one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.core.broadcast import Broadcast

from cleantail.config.topic import Topic
from cleantail.config.topic_source import ADDRESS
from cleantail.erasure.erased_keys import ErasedKeys
from cleantail.errors import CleantailError, SourceError
from cleantail.human import counted
from cleantail.kafka import target_client
from cleantail.kafka.read_plan import Range, ReadPlan, portion_ranges, task_ranges
from cleantail.kafka.source_topic import RangeReader, SourceTopic
from spark_jobs.engine.tasks import run_described, stored_work

if TYPE_CHECKING:
    from pyspark import SparkContext

SOURCE_EXCLUSION = "source"
"""The name by which a person excludes the source from an erasure (`--exclude source`)."""
MESSAGE_BYTES = 1_000_000
"""A tombstone has a key and no value. Kafka's own limit of a batch is not below this."""
LastRecord = tuple[int, bool]
"""(Offset, whether it is a tombstone) of the last record of a key."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """What a source has of erased keys.

    `facts`: for the certificate. `problem`: why the source still has them, empty if it has none. `alive`: (partition,
    key) -> tombstones are missing there; never shown."""

    facts: Mapping[str, Any]
    problem: str = ""
    alive: tuple[tuple[int, bytes], ...] = ()

    def __repr__(self) -> str:
        return f"SourceState({self.problem!r})"


def source_state(
    context: SparkContext, topic: Topic, settings: Mapping[str, str] | None, keys: ErasedKeys
) -> SourceState:
    """Return what the topic's source has of these keys. Reads a topic in Kafka from its start to its end.

    `settings`: of the Kafka client, if the topic has source.kafka. Raises CleantailError if the brokers cannot be
    read."""
    if topic.source.table is not None:
        name = topic.source.table.name
        return SourceState({"kind": "table", "table": name}, f"table {name}, which the topic is read from, is not ours")
    if topic.source.kafka is None or settings is None:
        return SourceState({"kind": "files"})
    source = SourceTopic.of(topic, settings)
    broker = source.describe()
    ends = source.ends(broker)
    starts = {partition: broker.logs[partition].start for partition in ends}
    plan = ReadPlan(starts, {partition: max(end, starts[partition]) for partition, end in ends.items()})
    cores = int(context.defaultParallelism)
    tasks = task_ranges(portion_ranges(plan, plan.offsets, cores), cores) if plan.offsets else []
    shipped = context.broadcast(keys)
    try:
        work = stored_work(partial(_found_in, source.open_reader(), shipped), {})
        found = run_described(context, work, tasks, f"read the keys of {topic.kafka_topic} in Kafka") if tasks else []
    finally:
        shipped.destroy()
    last: dict[tuple[int, bytes], LastRecord] = {}
    values = 0
    for of_task, values_of_task in found:
        values += values_of_task
        for place, record in of_task.items():
            last[place] = max(last.get(place, record), record)
    alive = tuple(sorted(place for place, (_, is_tombstone) in last.items() if not is_tombstone))
    keys_alive = len({key for _, key in alive})
    facts = {
        "kind": "kafka",
        "topic": topic.kafka_topic,
        "cluster": broker.cluster_id,
        "read_to": {str(partition): end for partition, end in sorted(ends.items())},
        "keys_alive": keys_alive,
        "keys_with_tombstone": len({key for (_, key), (_, is_tombstone) in last.items() if is_tombstone}),
        "records_with_value": values,
    }
    if not values:
        return SourceState(facts)
    state = f"{counted(keys_alive, 'key')} alive" if alive else "all with a tombstone"
    return SourceState(
        facts, f"topic {topic.kafka_topic} in Kafka has {counted(values, 'record')} of these keys ({state})", alive
    )


def _found_in(
    open_reader: Callable[[], RangeReader],
    keys: Broadcast[ErasedKeys],
    _: Mapping[str, str],
    ranges: Sequence[Range],
) -> tuple[dict[tuple[int, bytes], LastRecord], int]:
    """Return (partition, key) -> its last record in the ranges, for erased keys, and their records with a value."""
    last, values, reader = dict[tuple[int, bytes], LastRecord](), 0, open_reader()
    try:
        for each in ranges:
            for messages in reader.batches(each):
                for number in np.flatnonzero(keys.value.found(pa.array([m.key() for m in messages], pa.binary()))):
                    message = messages[number]
                    is_tombstone = message.value() is None
                    values += not is_tombstone
                    last[each.partition, bytes(message.key() or b"")] = (message.offset() or 0, is_tombstone)
    finally:
        reader.close()
    return last, values


def write_tombstones(topic: Topic, settings: Mapping[str, str], alive: Sequence[tuple[int, bytes]]) -> dict[str, Any]:
    """Write a tombstone for each key to the partition that has its records. Return what was written, for the event.

    Raises CleantailError if the brokers refuse one; the others may have been written, and a repeated call is safe."""
    from confluent_kafka import KafkaException, Producer

    failed = list[Any]()
    where, name = settings[ADDRESS], topic.kafka_topic

    def note(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    try:
        producer = Producer(target_client.producer(settings, MESSAGE_BYTES))
        for partition, key in alive:
            producer.produce(name, key=key, value=None, partition=partition, on_delivery=note)
            producer.poll(0)
        left = producer.flush(target_client.TIMEOUT_MS / 1000)
    except (KafkaException, BufferError) as e:
        error = e.args[0]
        raise SourceError(f"{where}: tombstones were not all written: {type(error).__name__}") from None
    if failed:
        problem: CleantailError = target_client.problem(where, name, failed[0], settings)
        raise SourceError(f"{problem} ({counted(len(failed), 'tombstone')} of {len(alive)} not written)")
    if left:
        raise SourceError(f"{where}: the brokers did not confirm {counted(left, 'tombstone')}: run the command again")
    return {"written": len(alive), "partitions": sorted({partition for partition, _ in alive})}
