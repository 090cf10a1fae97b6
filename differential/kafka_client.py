"""A producer, a consumer and an administrator of the broker, by confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from cleantail.home.home_folder import holds_within
from cleantail.sources.kcat import Record
from differential.broker import BrokerError
from differential.histories import Draft, Segment

ANSWER_TIMEOUT_S = 60
FETCH_RECORDS = 5_000
HELD_BACK = {"min.cleanable.dirty.ratio": 1.0}
"""Configs with which the cleaner does not work: the ratio is never above 1."""
LET_GO = {"min.cleanable.dirty.ratio": 0.0}


class KafkaClient:
    """A client of one broker. It uses the archive's own type Record."""

    def __init__(self, address: str) -> None:
        # log_level 2: do not log lost connections to a broker that is being stopped
        self._common: dict[str, Any] = {"bootstrap.servers": address, "log_level": 2}
        self._admin = AdminClient(self._common)

    def create(self, topic: str, partitions: int, configs: Mapping[str, object]) -> None:
        """Create the topic. Wait until the broker has it, which is a moment after the controller has it."""
        new = NewTopic(topic, partitions, 1, config={name: str(value) for name, value in configs.items()})
        for done in self._admin.create_topics([new]).values():
            done.result(ANSWER_TIMEOUT_S)
        until = time.monotonic() + ANSWER_TIMEOUT_S
        while not self._knows(topic):
            if time.monotonic() > until:
                raise BrokerError(f"{topic}: the broker has no such topic")
            time.sleep(0.05)

    def create_all(self, topics: Sequence[str], partitions: int, configs: Mapping[str, object]) -> None:
        """Create topics by one request. Wait until the broker has the last one."""
        as_text = {name: str(value) for name, value in configs.items()}
        made = self._admin.create_topics([NewTopic(topic, partitions, 1, config=as_text) for topic in topics])
        for done in made.values():
            done.result(ANSWER_TIMEOUT_S)
        if not holds_within(lambda: self._knows(topics[-1]), every_s=0.05, within_s=ANSWER_TIMEOUT_S):
            raise BrokerError(f"{topics[-1]}: the broker has no such topic")

    def _knows(self, topic: str) -> bool:
        try:
            self._admin.describe_topics(TopicCollection([topic]))[topic].result(ANSWER_TIMEOUT_S)
            [described] = self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
            described.result(ANSWER_TIMEOUT_S)
        except KafkaException as e:
            if e.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return False
        return True

    def delete(self, topic: str) -> None:
        for done in self._admin.delete_topics([topic]).values():
            done.result(ANSWER_TIMEOUT_S)

    def alter(self, topic: str, configs: Mapping[str, object]) -> None:
        """Change configs of the topic, and wait until the broker shows them."""
        entries = [
            ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
            for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        for done in self._admin.incremental_alter_configs([resource]).values():
            done.result(ANSWER_TIMEOUT_S)
        until = time.monotonic() + ANSWER_TIMEOUT_S
        while not self._shows(topic, configs):
            if time.monotonic() > until:
                raise BrokerError(f"{topic}: the broker does not report the configs {dict(configs)}")
            time.sleep(0.05)

    def alter_all(self, topics: Sequence[str], configs: Mapping[str, object]) -> None:
        """Change configs of topics by one request."""
        entries = [
            ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
            for name, value in configs.items()
        ]
        resources = [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries) for topic in topics]
        for done in self._admin.incremental_alter_configs(resources).values():
            done.result(ANSWER_TIMEOUT_S)

    def _shows(self, topic: str, configs: Mapping[str, object]) -> bool:
        [described] = self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        shown = described.result(ANSWER_TIMEOUT_S)
        return all(_same(shown[name].value, str(value)) for name, value in configs.items())

    def send(self, topic: str, segments: Mapping[int, Sequence[Segment]], compression: str) -> None:
        """Send the segments of each partition, one after another, each in batches of its own."""
        producer = Sender(self._common | {"enable.idempotence": True, "compression.type": compression}, topic)
        for step in _steps(segments):
            producer.send({p: segment.records for p, segment in step.items()})

    def send_in_transactions(self, topic: str, segments: Mapping[int, Sequence[Segment]]) -> None:
        """Send each segment in three transactions: first committed records, then aborted ones, then the other committed
        ones."""
        producer = Sender(self._common | {"transactional.id": topic}, topic)
        producer.producer.init_transactions(ANSWER_TIMEOUT_S)
        for step in _steps(segments):
            producer.transaction({p: s.records[: s.committed_first] for p, s in step.items()}, commit=True)
            producer.transaction({p: s.aborted for p, s in step.items()}, commit=False)
            producer.transaction({p: s.records[s.committed_first :] for p, s in step.items()}, commit=True)

    def read(self, topic: str, partitions: Iterable[int], *, committed: bool = False) -> dict[int, list[Record]]:
        """Return all records from the beginning, in the order of the log."""
        return self._read(topic, dict.fromkeys(partitions, OFFSET_BEGINNING), None, committed)

    def read_new(
        self, topic: str, starts: Mapping[int, int], counts: Mapping[int, int], *, committed: bool = False
    ) -> dict[int, list[Record]]:
        """Return this number of records of each partition, from an offset on. Wait for them: the end of a transaction
        may become visible a moment later."""
        return self._read(topic, {p: starts[p] for p, count in counts.items() if count}, counts, committed)

    def _read(
        self, topic: str, starts: Mapping[int, int], counts: Mapping[int, int] | None, committed: bool
    ) -> dict[int, list[Record]]:
        records: dict[int, list[Record]] = {p: [] for p in starts}
        waiting = set(starts)
        isolation = "read_committed" if committed else "read_uncommitted"
        settings = {"group.id": "differential", "enable.auto.commit": False, "fetch.wait.max.ms": 20}
        consumer = Consumer(self._common | settings | {"enable.partition.eof": True, "isolation.level": isolation})
        try:
            consumer.assign([TopicPartition(topic, p, offset) for p, offset in starts.items()])
            until = time.monotonic() + ANSWER_TIMEOUT_S
            while waiting:
                if time.monotonic() > until:
                    raise BrokerError(f"{topic}: partitions {sorted(waiting)} were not read to their ends")
                for message in consumer.consume(FETCH_RECORDS, 0.1):
                    _take(message, records, waiting, counts)
        finally:
            consumer.close()
        return records


def _same(shown: str, value: str) -> bool:
    """Return whether the broker shows this value, possibly in another form, such as 0 for 0.0."""
    return shown == value or (shown.replace(".", "", 1).isdigit() and float(shown) == float(value))


class Sender:
    """A producer of one topic that raises every error."""

    def __init__(self, settings: Mapping[str, Any], topic: str) -> None:
        self.producer = Producer({**settings, "linger.ms": 50})
        self._topic = topic
        self._errors: list[str] = []

    def send(self, drafts: Mapping[int, Sequence[Draft]]) -> None:
        """Wait until the broker has them all."""
        for partition, records in drafts.items():
            for r in records:
                self.producer.produce(
                    self._topic,
                    r.value,
                    r.key,
                    partition,
                    on_delivery=self._delivered,
                    timestamp=r.timestamp_ms,
                    headers=list(r.headers),
                )
                self.producer.poll(0)
        left = self.producer.flush(ANSWER_TIMEOUT_S)
        if left or self._errors:
            raise BrokerError(f"{self._topic}: {left} records not sent: {self._errors[:3]}")

    def transaction(self, drafts: Mapping[int, Sequence[Draft]], *, commit: bool) -> None:
        if not any(drafts.values()):
            return
        self.producer.begin_transaction()
        self.send(drafts)
        end = self.producer.commit_transaction if commit else self.producer.abort_transaction
        end(ANSWER_TIMEOUT_S)

    def _delivered(self, error: object, _message: Message) -> None:
        if error is not None:
            self._errors.append(str(error))


def _steps(segments: Mapping[int, Sequence[Segment]]) -> list[dict[int, Segment]]:
    """Return the first segments of all partitions, then the second ones, and so on."""
    longest = max((len(each) for each in segments.values()), default=0)
    return [{p: each[n] for p, each in segments.items() if n < len(each)} for n in range(longest)]


def _take(
    message: Message, records: dict[int, list[Record]], waiting: set[int], counts: Mapping[int, int] | None
) -> None:
    partition = message.partition() or 0
    error = message.error()
    if error is None:
        records[partition].append(_record(message))
    elif error.name() != "_PARTITION_EOF":
        raise KafkaException(error)
    complete = error is not None if counts is None else len(records[partition]) >= counts[partition]
    if complete:
        waiting.discard(partition)


def _record(message: Message) -> Record:
    """Return a message as a record. In confluent-kafka all fields are optional, because a message may also be an error.
    This one is not an error."""
    fields: Any = (message.partition(), message.offset(), *reversed(message.timestamp()))
    partition, offset, timestamp_ms, kind = fields
    headers: Any = message.headers() or ()
    create_time = 0 if kind == TIMESTAMP_CREATE_TIME else 1
    return Record(partition, offset, timestamp_ms, create_time, message.key(), message.value(), tuple(headers))
