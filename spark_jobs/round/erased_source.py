"""Find erased keys that a topic's source still has, and write tombstones for them to Kafka.

Kafka's own cleaner deletes the records of a key some time after a tombstone. A certificate has the state of the brokers
at its time. Keys stay in memory: no log and no result contains one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from cleantail.kafka.read_plan import BrokerTopic, Range, ReadPlan, portion_ranges, task_ranges
from cleantail.kafka.source_topic import RangeReader, SourceTopic
from spark_jobs.engine.tasks import run_described, stored_work

if TYPE_CHECKING:
    from pyspark import SparkContext

SOURCE_EXCLUSION = "source"
"""The name by which a person excludes the source from an erasure (`--exclude source`)."""
MESSAGE_BYTES = 1_000_000
"""Largest message of a tombstone, which has a key and no value. Kafka's own limit of a batch is not below this."""
LastRecord = tuple[int, bool]
"""(Offset, whether it is a tombstone) of the last record of a key."""
FoundInTask = tuple[dict[tuple[int, bytes], LastRecord], int]


@dataclass(frozen=True, slots=True)
class SourceState:
    """Erased keys in a source.

    `facts`: for the certificate. `problem`: why the source still has the keys, empty if it has none. The other fields
    are only for a topic in Kafka, and never shown:

    broker   the topic at the first read
    read_to  partition -> the offset up to which it was read
    last     (partition, key) -> its last record
    values   number of records with a value
    """

    facts: Mapping[str, Any]
    problem: str = ""
    broker: BrokerTopic | None = None
    read_to: Mapping[int, int] = field(default_factory=dict)
    last: Mapping[tuple[int, bytes], LastRecord] = field(default_factory=dict)
    values: int = 0

    def __repr__(self) -> str:
        return f"SourceState({self.problem!r})"

    @property
    def alive(self) -> tuple[tuple[int, bytes], ...]:
        """Return (partition, key) of each key whose last record there is not a tombstone."""
        return tuple(sorted(place for place, (_, is_tombstone) in self.last.items() if not is_tombstone))


def source_state(
    context: SparkContext,
    topic: Topic,
    settings: Mapping[str, str] | None,
    keys: ErasedKeys,
    before: SourceState | None = None,
) -> SourceState:
    """Return the state of these keys in the topic's source.

    Reads a topic in Kafka from its start to its end. With `before`, an earlier result for the same keys, reads only
    later records.

    `settings`: of the Kafka client, if the topic has source.kafka. Raises CleantailError if the brokers cannot be
    read, or if the topic was recreated since `before`."""
    if topic.source.table is not None:
        name = topic.source.table.name
        return SourceState({"kind": "table", "table": name}, f"table {name}, which the topic is read from, is not ours")
    if topic.source.kafka is None or settings is None:
        return SourceState({"kind": "files"})
    source, before = SourceTopic.of(topic, settings), before or SourceState({})
    broker = source.describe_again(before.broker) if before.broker else source.describe()
    ends = source.ends(broker)
    starts = {partition: max(broker.logs[partition].start, before.read_to.get(partition, 0)) for partition in ends}
    read_to = {partition: max(end, starts[partition]) for partition, end in ends.items()}
    found = _read(context, source, ReadPlan(starts, read_to), keys)
    last, values = dict(before.last), before.values
    for of_task, values_of_task in found:
        values += values_of_task
        for place, record in of_task.items():
            last[place] = max(last.get(place, record), record)
    state = SourceState({}, "", broker, read_to, last, values)
    keys_alive = len({key for _, key in state.alive})
    facts = {
        "kind": "kafka",
        "topic": topic.kafka_topic,
        "cluster": broker.cluster_id,
        "read_to": {str(partition): end for partition, end in sorted(read_to.items())},
        "keys_alive": keys_alive,
        "keys_with_tombstone": len({key for (_, key), (_, is_tombstone) in last.items() if is_tombstone}),
        "records_with_value": values,
    }
    which = f"{counted(keys_alive, 'key')} alive" if keys_alive else "all with a tombstone"
    problem = f"topic {topic.kafka_topic} in Kafka has {counted(values, 'record')} of these keys ({which})"
    return replace(state, facts=facts, problem=problem if values else "")


def _read(context: SparkContext, source: SourceTopic, plan: ReadPlan, keys: ErasedKeys) -> list[FoundInTask]:
    if not plan.offsets:
        return []
    cores = int(context.defaultParallelism)
    tasks, shipped = task_ranges(portion_ranges(plan, plan.offsets, cores), cores), context.broadcast(keys)
    try:
        work = stored_work(partial(_found_in, source.open_reader(), shipped), {})
        return list(run_described(context, work, tasks, f"read the keys of {source.topic.kafka_topic} in Kafka"))
    finally:
        shipped.destroy()


def _found_in(
    open_reader: Callable[[], RangeReader],
    keys: Broadcast[ErasedKeys],
    _: Mapping[str, str],
    ranges: Sequence[Range],
) -> FoundInTask:
    """Return (partition, key) -> its last record in the ranges, for erased keys, and the number of their records with a
    value."""
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


def write_tombstones(topic: Topic, settings: Mapping[str, str], alive: Sequence[tuple[int, bytes]]) -> None:
    """Write a tombstone for each key to the partition that has its records.

    Raises CleantailError if the brokers refuse a tombstone. The others may have been written. A repeated call is
    safe."""
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
