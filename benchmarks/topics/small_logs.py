"""Many small logs on one real Kafka broker, cleaned by one thread of its log cleaner, to compare with the benchmark
`groups`.

1. Every topic gets the same records as the topics of the benchmark `groups` in their two files. Each log gets one more
   record a month later, which begins the active segment. A high ratio keeps the cleaner from working.
2. One request lowers the ratio of all topics. The benchmark measures the time from this request, and from the first
   checkpoint, until each log's checkpoint is at its active segment.
3. In a second measurement only the second file is dirty, as in a group's second run.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.harness.fresh_process import BenchmarkError, say
from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Value
from benchmarks.systems.kafka_cleaner import CLEANED_WITHIN_S, DEDUPE_BUFFER, JVM, ROLL_MS
from benchmarks.topics.groups import PARTITIONS, RECORDS, line
from differential.broker import Broker, kafka_jars, running_broker
from differential.kafka_client import HELD_BACK, LET_GO, KafkaClient

COLUMNS = (
    Column("what", "text"),
    Column("logs", "count"),
    Column("from the cleaner's start to the last checkpoint, s"),
    Column("from the first checkpoint, s"),
    Column("each log, ms", "count"),
)
NOTES = (
    f"Topics of {PARTITIONS} partitions; a file has {RECORDS} records for each. One broker with log.cleaner.threads=1, "
    "and otherwise the settings of `compare`. The cleaner polls for work every 200 ms. One repetition.",
)
TOGETHER = 100
"""Number of topics that one request creates or changes."""


def run(options: Options) -> Table:
    directory = options.lake.directory / "kafka-small-logs"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    topics, rows = [f"t{number:04d}" for number in range(options.topics)], list[tuple[Value, ...]]()
    properties = {"log.cleaner.threads": 1, "log.cleaner.dedupe.buffer.size": DEDUPE_BUFFER}
    with running_broker(directory, kafka_jars(os.environ), JVM, properties) as broker:
        client = KafkaClient(broker.address)
        for some in _groups(topics):
            client.create_all(some, PARTITIONS, {"cleanup.policy": "compact", **HELD_BACK})
        for number, what in enumerate(("first file of each", "second file of each")):
            say(f"{len(topics)} topics on a broker: {what}")
            _produce(broker, topics, number)
            rows.append(_cleaned(broker, client, topics, what))
            _alter(client, topics, HELD_BACK)
            time.sleep(1)  # the cleaner may just have read the old ratio
    shutil.rmtree(directory)
    title = f"{len(topics) * PARTITIONS} small logs, cleaned by one thread of a Kafka broker"
    return Table("small_logs", title, COLUMNS, tuple(rows), NOTES)


def _produce(broker: Broker, topics: Iterable[str], number: int) -> None:
    """Produce a file's records. Then produce one record in each log, in a separate batch, to begin its next segment."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.address, "log_level": 2, "linger.ms": 20})
    logs = [(topic, partition) for topic in topics for partition in range(PARTITIONS)]
    for topic, partition in logs:
        for offset in range(number * RECORDS, (number + 1) * RECORDS):
            _send(producer, topic, line(partition, offset), number)
        while len(producer) > TOGETHER * RECORDS:
            producer.poll(0.05)
    _flush(producer)
    for topic, partition in logs:
        roll = {"partition": partition, "ts": line(0, 0)["ts"], "key": f"roll-{number}", "payload": ""}
        _send(producer, topic, roll, number + 1)
    _flush(producer)


def _flush(producer: Any) -> None:
    if left := producer.flush(300):
        raise BenchmarkError(f"{left} records were not sent")


def _send(producer: Any, topic: str, record: Mapping[str, object], rolls: int) -> None:
    """Produce one record, with a timestamp that is later by this number of segments."""
    payload = record["payload"]
    producer.produce(
        topic,
        None if payload is None else str(payload).encode(),
        str(record["key"]).encode(),
        int(str(record["partition"])),
        timestamp=int(str(record["ts"])) + rolls * ROLL_MS,
    )


def _cleaned(broker: Broker, client: KafkaClient, topics: list[str], what: str) -> tuple[Value, ...]:
    """Return the row of a cleaning of all logs. Raises BenchmarkError if it does not end."""
    ends = {(t, p): broker.segment_bases(t, p)[-1] for t in topics for p in range(PARTITIONS)}
    before, began, first = broker.all_checkpoints(), time.perf_counter(), None
    _alter(client, topics, LET_GO)
    while (now := broker.all_checkpoints()) != ends:
        at = time.perf_counter()
        first = at if first is None and now != before else first
        if at - began > CLEANED_WITHIN_S:
            left = sum(now.get(log) != end for log, end in ends.items())
            raise BenchmarkError(f"the cleaner has {left} logs left after {CLEANED_WITHIN_S} s")
        time.sleep(0.05)
    last = time.perf_counter()
    return (
        f"one cleaner thread: {what}",
        len(ends),
        last - began,
        last - (first or began),
        (last - began) * 1000 / len(ends),
    )


def _alter(client: KafkaClient, topics: list[str], configs: Mapping[str, object]) -> None:
    client.alter_all(topics, configs)


def _groups(topics: list[str]) -> Iterable[list[str]]:
    return (topics[start : start + TOGETHER] for start in range(0, len(topics), TOGETHER))
