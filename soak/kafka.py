"""A broker for histories of topics in Kafka: transactions, aborted records, new partitions, recreated topics.

The oracle reads the sent records from the broker, by Kafka's own client.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition, admin

from differential.broker import free_port, java_command, kafka_jars, start_broker, stop_broker, wait_until_started
from soak.gateway import LOOPBACK
from soak.histories import DAY, Record
from soak.oracle import HEADER

T = TypeVar("T")
WITHIN_S = 120
CLEANING = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0, "segment.ms": 100, "delete.retention.ms": 0}
"""Configs of a topic that the broker cleans at once, so that it removes tombstones before they are read."""
QUIET = CLEANING | {"min.cleanable.dirty.ratio": 1, "segment.ms": DAY, "delete.retention.ms": DAY, "retention.ms": -1}


class Broker:
    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.address = f"{LOOPBACK}:{self.port}"
        self._java = java_command(kafka_jars(os.environ))
        self._start()
        self._client: dict[str, Any] = {"bootstrap.servers": self.address, "log_level": 2}
        self.admin = admin.AdminClient(self._client)

    def _start(self) -> None:
        self._process = start_broker(self.folder, self._java, self.port)
        wait_until_started(self._process, self.folder / "broker.log")

    def restart(self) -> None:
        self._process.kill()
        self._process.wait()
        self._start()

    def stop(self) -> None:
        stop_broker(self._process.pid)
        self._process.wait()

    def create(self, topic: str, partitions: int) -> None:
        config = {name: str(value) for name, value in QUIET.items()}
        made = lambda: self._done(self.admin.create_topics([admin.NewTopic(topic, partitions, 1, config=config)]))  # noqa: E731
        _eventually(made)  # a topic that was just deleted may still exist
        self.ends(topic)

    def delete(self, topic: str) -> None:
        self._done(self.admin.delete_topics([topic]))

    def add_partition(self, topic: str) -> None:
        partitions = len(self.ends(topic)) + 1
        self._done(self.admin.create_partitions([admin.NewPartitions(topic, partitions)]))
        _eventually(lambda: len(self.ends(topic)) == partitions)

    def move_start(self, topic: str) -> None:
        """Delete all present records of the topic, as retention does."""
        self._alter(topic, {"cleanup.policy": "compact,delete"})
        ends = [TopicPartition(topic, p, end) for p, end in self.ends(topic).items()]
        self._done(self.admin.delete_records(ends))

    def forget(self, topic: str, is_done: Callable[[], bool]) -> None:
        """Let the broker's cleaner work until `is_done`. Sends records meanwhile, so that segments roll."""
        self._alter(topic, CLEANING)

        def rolled() -> bool:
            self.send(topic, [([Record(p, 0, 0, "filler", "x") for p in self.ends(topic)], True)], 0)
            return is_done()

        _eventually(rolled)
        self._alter(topic, QUIET)

    def _alter(self, topic: str, configs: Mapping[str, object]) -> None:
        resource = admin.ConfigResource(admin.ResourceType.TOPIC, topic)
        for name, value in configs.items():
            entry = admin.ConfigEntry(name, str(value), incremental_operation=admin.AlterConfigOpType.SET)
            resource.add_incremental_config(entry)
        self._done(self.admin.incremental_alter_configs([resource]))

    def _done(self, futures: dict[Any, Any]) -> bool:
        for future in futures.values():
            future.result(WITHIN_S)
        return True

    def send(self, topic: str, transactions: Sequence[tuple[Sequence[Record], bool]], base_ms: int) -> None:
        """Send transactions of records, each committed or aborted. Ignores the offsets of the records."""
        producer = Producer(self._client | {"transactional.id": f"soak-{time.time_ns()}", "linger.ms": 5})
        producer.init_transactions(WITHIN_S)
        for records, commit in transactions:
            producer.begin_transaction()
            for r in records:
                value = None if r.value is None else r.value.encode()
                key, at = r.key.encode(), base_ms + r.at
                producer.produce(topic, value, key, r.partition, timestamp=at, headers=[(HEADER, key)])
            producer.flush(WITHIN_S)
            (producer.commit_transaction if commit else producer.abort_transaction)(WITHIN_S)

    def ends(self, topic: str) -> dict[int, int]:
        """Return partition -> offset of its next record. Waits for a leader: the broker may have been restarted."""

        def found() -> dict[int, int]:
            with self._consumer() as consumer:
                known = consumer.list_topics(topic, WITHIN_S).topics[topic]
                if known.error is not None or not known.partitions:
                    raise KafkaException(known.error)
                places = [TopicPartition(topic, p) for p in known.partitions]
                return {place.partition: consumer.get_watermark_offsets(place, WITHIN_S)[1] for place in places}

        return _eventually(found)

    def committed(self, topic: str, base_ms: int) -> list[Record]:
        ends, records = self.ends(topic), list[Record]()
        waiting = {p for p, end in ends.items() if end}
        until = time.monotonic() + WITHIN_S
        with self._consumer() as consumer:
            consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in waiting])
            while waiting and time.monotonic() < until:
                for message in consumer.consume(1000, 0.2):
                    place: tuple[Any, Any] = message.partition(), message.offset()
                    if (error := message.error()) is not None:
                        waiting -= {place[0]} if error.code() == KafkaError._PARTITION_EOF else set()
                        continue
                    key, value = message.key(), message.value()
                    at = message.timestamp()[1] - base_ms
                    text = None if value is None else str(value, "utf-8")
                    records.append(Record(*place, at, str(key or b"", "utf-8"), text))
        if waiting:
            raise TimeoutError(f"{topic}: partitions {waiting} were not read")
        return records

    def _consumer(self) -> Consumer:
        settings = {"group.id": "oracle", "enable.partition.eof": True, "isolation.level": "read_committed"}
        return Consumer(self._client | settings | {"enable.auto.commit": False, "fetch.wait.max.ms": 20})


def _eventually(action: Callable[[], T]) -> T:
    until = time.monotonic() + WITHIN_S
    while True:
        try:
            if found := action():
                return found
        except KafkaException:
            if time.monotonic() > until:
                raise
        time.sleep(0.2)
