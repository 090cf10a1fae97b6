"""A real broker for the tests of a Kafka source, and what producers do to it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from cleantail.kcat import Record
from differential.broker import kafka_jars
from differential.kafka_client import KafkaClient

JARS = kafka_jars(os.environ)
"""Asked when the module is imported: the session's own CLEANTAIL_HOME has no jars."""
WITHIN_S = 60


@dataclass
class KafkaSite:
    """One broker with a client of each kind."""

    address: str
    client: KafkaClient = field(init=False)
    admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        self.client = KafkaClient(self.address)
        self.admin = AdminClient({"bootstrap.servers": self.address, "log_level": "2"})

    def source(self, **more: Any) -> dict[str, Any]:
        """What a topic's YAML says of this broker."""
        return {"kafka": {"bootstrap.servers": self.address, "stall.timeout.ms": 5000, **more}}

    def create(self, topic: str, partitions: int = 1, **configs: Any) -> None:
        dotted = {name.replace("_", "."): value for name, value in configs.items()}
        self.client.create(topic, partitions, {"message.timestamp.after.max.ms": (1 << 63) - 1} | dotted)

    def recreate(self, topic: str, partitions: int = 1) -> None:
        """Deletes the topic and makes one of its name, once the broker has forgotten the old one."""
        self.client.delete(topic)
        until = time.monotonic() + WITHIN_S
        while True:
            try:
                return self.create(topic, partitions)
            except Exception:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def send(self, topic: str, records: Iterable[tuple[Any, ...]], partition: int = 0, **settings: Any) -> None:
        """(key, value, headers, timestamp) each, as many of them as are given."""
        with_acks = Producer({"bootstrap.servers": self.address, "linger.ms": 5, **settings})
        for record in records:
            _produce(with_acks, topic, partition, *record)
        assert with_acks.flush(WITHIN_S) == 0

    def transactions(self, topic: str, name: str) -> Transactions:
        producer = Producer({"bootstrap.servers": self.address, "transactional.id": name, "log_level": 2})
        producer.init_transactions(WITHIN_S)
        return Transactions(producer, topic)

    def add_partitions(self, topic: str, total: int) -> None:
        for done in self.admin.create_partitions([NewPartitions(topic, total)]).values():
            done.result(WITHIN_S)

    def delete_below(self, topic: str, partition: int, offset: int) -> None:
        for done in self.admin.delete_records([TopicPartition(topic, partition, offset)]).values():
            done.result(WITHIN_S)

    def consumed(self, topic: str, partitions: int = 1, committed: bool = True) -> list[Record]:
        """What a plain consumer sees from the beginning."""
        return sorted(
            (r for rs in self.client.read(topic, range(partitions), committed=committed).values() for r in rs),
            key=lambda r: (r.partition, r.offset),
        )

    def committed_offsets(self, group: str, topic: str, partitions: int = 1) -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": group})
        try:
            found = consumer.committed([TopicPartition(topic, p) for p in range(partitions)], WITHIN_S)
        finally:
            consumer.close()
        return {each.partition: each.offset for each in found}


@dataclass
class Transactions:
    """A transactional producer of one topic."""

    producer: Producer
    topic: str

    def begin(self, records: Iterable[tuple[Any, ...]], partition: int = 0) -> None:
        self.producer.begin_transaction()
        for record in records:
            _produce(self.producer, self.topic, partition, *record)
        assert self.producer.flush(WITHIN_S) == 0

    def commit(self, records: Iterable[tuple[Any, ...]], partition: int = 0) -> None:
        self.begin(records, partition)
        self.producer.commit_transaction(WITHIN_S)

    def abort(self, records: Iterable[tuple[Any, ...]], partition: int = 0) -> None:
        self.begin(records, partition)
        self.producer.abort_transaction(WITHIN_S)


def _produce(
    producer: Producer, topic: str, partition: int, key: Any, value: Any, headers: Any = None, timestamp: int = 0
) -> None:
    while True:
        try:
            producer.produce(topic, value, key, partition, on_delivery=_delivered, timestamp=timestamp, headers=headers)
            break
        except BufferError:
            producer.poll(0.1)
    producer.poll(0)


def _delivered(error: Any, _: Any) -> None:
    assert error is None, error
