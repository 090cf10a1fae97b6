"""Take one request to erase keys from its approval to its certificate. Each step is recorded as an event.

1. The request is approved, which puts its keys on the topic's denylist. Ingestions that began before are refused.
2. The source is read. If it has the keys, the run ends, unless a person chose to write tombstones or to exclude it.
3. The keys are erased from the tables, and their absence is proven (spark_jobs.round.erase).
4. New records of the source are read, with the tombstones of step 2. So the certificate has the source's state at the
   proof.
5. The certificate is signed.

An earlier run may have done some of the steps. Recorded steps are not repeated, but the tables are read again. If a
person rejects or lifts the request meanwhile, no further step is recorded, and the run ends before its next change.

Kafka's own cleaner deletes the records of a key some time after its tombstone. Keys stay in memory: no log and no
result contains one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.core.broadcast import Broadcast

from cleantail.config.topic import Topic
from cleantail.config.topic_source import ADDRESS
from cleantail.erasure.certificate import issue
from cleantail.erasure.erased_keys import ErasedKeys
from cleantail.erasure.requests import (
    APPROVED,
    CERTIFIED,
    FAILED,
    PROVEN,
    TOMBSTONING,
    ErasureEvent,
    ErasureRequest,
    requests_of,
)
from cleantail.erasure.store import ErasureStore
from cleantail.errors import CleantailError, OutsideError, SourceError
from cleantail.home.stdin_copies import delete_dead
from cleantail.human import counted
from cleantail.kafka import target_client
from cleantail.kafka.client_settings import settings_of_environment
from cleantail.kafka.read_plan import BrokerTopic, Range, ReadPlan, portion_ranges, task_ranges
from cleantail.kafka.source_topic import RangeReader, SourceTopic
from spark_jobs.engine.tasks import run_described, stored_work
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.erase import Erased, erase_keys
from spark_jobs.round.intake.denylist import note_denylist
from spark_jobs.round.run import Progress, Run

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

    `facts`: for the certificate. `problem`: why the source still has the keys, empty if it does not have them. The
    other fields are only for a topic in Kafka, and never shown:

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
        return SourceState(
            {"kind": "table", "table": name}, f"the topic is read from table {name}, which Cleantail does not own"
        )
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
    """Return (partition, erased key) -> its last record in the ranges, and the number of records with a value."""
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
    """Write a tombstone for each key to the partition that has its records. A repeated call is safe. Raises
    CleantailError if the brokers refuse one; the others may have been written."""
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


NO_APPROVAL = "no approval is required"


@dataclass(frozen=True, slots=True)
class Choice:
    """The user who runs the command, and their options."""

    user: str
    tombstone: bool
    approve: bool


@dataclass(frozen=True, slots=True)
class RequestEnd:
    """The end of a run of one request. `waits`: for a person's approval. `certificate`: its text, if it has one."""

    request: ErasureRequest
    erased: Erased
    certificate: str | None = None
    waits: bool = False


def _ended(request: ErasureRequest) -> str:
    return f"request {request.id} is {request.state}: nothing more is erased for it"


@dataclass(frozen=True, slots=True)
class RequestRun:
    table: TopicTable
    store: ErasureStore
    request_id: str
    choice: Choice
    progress: Progress

    def run(self) -> RequestEnd:
        """Take the request to its end. An error that a person can fix ends this request only, and is recorded as the
        reason. Raises OutsideError."""
        request = self._request()
        if not request.is_open:  # another process was faster, or a person ended it
            if certified := request.first(CERTIFIED):
                return RequestEnd(request, Erased(), certified.certificate)
            return RequestEnd(request, Erased(problems=(_ended(request),)))
        try:
            end = self._end_of(request)
        except OutsideError:
            raise
        except CleantailError as error:
            end = RequestEnd(request, Erased(problems=(str(error),)))
        if end.erased.problems:
            self._record(FAILED, {"reason": "; ".join(end.erased.problems)})
        return end

    def _request(self) -> ErasureRequest:
        return next(r for r in self.store.requests(self.table.topic.topic) if r.id == self.request_id)

    def _note(self, event: str, details: Mapping[str, Any]) -> None:
        """Record an event. Raises CleantailError, with nothing recorded, if a person has ended the request."""
        request = self._record(event, details)
        if not request.is_open:
            raise CleantailError(_ended(request))

    def _record(self, event: str, details: Mapping[str, Any]) -> ErasureRequest:
        """Record an event if the request is open. Return the request as it was before."""
        found = list[ErasureRequest]()

        def made(events: Sequence[ErasureEvent]) -> ErasureEvent | None:
            found[:] = (request for request in requests_of(events) if request.id == self.request_id)
            return self._event(event, self.choice.user, details) if found[0].is_open else None

        self.store.append_after(self.table.topic.topic, made)
        return found[0]

    def _event(self, event: str, by: str, details: Mapping[str, Any]) -> ErasureEvent:
        return ErasureEvent(self.table.topic.topic, self.request_id, event, int(time.time() * 1000), by, details)

    def _end_of(self, request: ErasureRequest) -> RequestEnd:
        keys = self.store.keys_of([request])
        self._approve(request)
        if request.state != PROVEN:
            erased = self._proven(request, keys)
            if erased.proven is None:
                return RequestEnd(request, erased)
        return self._certified()

    def _approve(self, request: ErasureRequest) -> None:
        if request.first(APPROVED) is None:
            self.store.append(self._event(APPROVED, self.choice.user if self.choice.approve else NO_APPROVAL, {}))
        if self.table.exists():
            note_denylist(self.table)

    def _proven(self, request: ErasureRequest, keys: ErasedKeys) -> Erased:
        source = self._source(request, keys)
        if problem := self._of_source(request, source):
            return Erased(problems=(problem,))
        delete_dead(self.table.platform.home)
        before = {event.event: event.details for event in request.events}
        run = Run(self.table, self.progress, self.choice.user if self.choice.approve else None)
        erased = erase_keys(run, keys, self._note, before, request.excluded)
        if erased.proven is None:
            return erased
        source = self._source(request, keys, source)
        if problem := self._of_source(request, source):
            return Erased(problems=(problem,))
        excluded = [*erased.proven["exclusions"], *([source.problem] if source.problem else ())]
        self._note(PROVEN, {**erased.proven, "source": source.facts, "exclusions": excluded})
        return erased

    def _source(self, request: ErasureRequest, keys: ErasedKeys, before: SourceState | None = None) -> SourceState:
        """Return the keys' state at the source. A run's first call also writes the tombstones that it lacks."""
        self.progress("reading the source")
        topic, context = self.table.topic, self.table.spark.sparkContext
        kafka = topic.source.kafka
        settings = settings_of_environment(kafka, topic.platform.env) if kafka is not None else None
        state = source_state(context, topic, settings, keys, before)
        if before is None and settings is not None and state.alive and self._writes_tombstones(request):
            partitions = sorted({partition for partition, _ in state.alive})
            self._note(TOMBSTONING, {"alive": len(state.alive), "partitions": partitions})  # before the writes
            write_tombstones(topic, settings, state.alive)
        return state

    def _writes_tombstones(self, request: ErasureRequest) -> bool:
        return self.table.topic.source.kafka is not None and (
            self.choice.tombstone or bool(request.asked.get("tombstone"))
        )

    def _of_source(self, request: ErasureRequest, state: SourceState) -> str:
        """Return why the source prevents a proof, empty if it has none of the keys or a person has chosen."""
        if not state.problem or SOURCE_EXCLUSION in request.excluded or self._writes_tombstones(request):
            return ""
        ways = f"--exclude {SOURCE_EXCLUSION} accepts this, and the certificate names it"
        ways += "; --tombstone deletes the keys there" if self.table.topic.source.kafka is not None else ""
        return f"{state.problem}; {ways}"

    def _certified(self) -> RequestEnd:
        request, topic = self._request(), self.table.topic
        proven = request.last(PROVEN)
        assert proven is not None, "it was recorded by this run, or by an earlier one"
        facts = {"table": topic.table, "source": proven.details["source"]}
        now_ms = int(time.time() * 1000)
        certificate = issue(self.store, topic, request, now_ms=now_ms, by=self.choice.user, facts=facts)
        return RequestEnd(request, Erased(proven=proven.details), certificate)
