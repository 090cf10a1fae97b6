"""The log cleaner of a real Kafka broker, with as many threads as there are cores, over the same keys and values.

1. Every repetition has its own topic with the records of the shape. The clean part is produced, rolled and cleaned, and
   the updates are produced and rolled.
2. Then the benchmark lowers the ratio, and the cleaner starts. The measured time ends when every log's checkpoint is at
   its active segment.
3. The broker runs through all repetitions.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.harness.fresh_process import BenchmarkError, require_records, say
from benchmarks.harness.lake import Lake
from benchmarks.harness.report import Times
from benchmarks.harness.shape import FIRST_TIMESTAMP_MS, NOW_MS, Shape
from benchmarks.systems.duckdb_copy import data_files
from differential.broker import Broker, kafka_jars, running_broker
from differential.kafka_client import HELD_BACK, LET_GO, KafkaClient

JVM = (
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
)
"""Options of the JVM as in Kafka's own start script."""
DEDUPE_BUFFER = 128 << 20
CLEANED_WITHIN_S = 1800
BATCH, QUEUE = 10_000, 200_000
ROLL_MS = 30 * 86_400_000
"""A record with a timestamp this much later begins a new segment, because segments roll after a week."""
CLEANED_LINE = re.compile(
    r"cleaned log (\S+)-(\d+) \(dirty section = \[(\d+), (\d+)\]\)\s+"
    r"([\d,.]+) MB of log processed in ([\d,.]+) seconds.*?"
    r"End size: [\d,.]+ MB \(([\d,]+) messages\)",
    re.DOTALL,
)


Sent = tuple[int, bytes, bytes | None]
"""Timestamp (ms), key, value."""


@dataclass(frozen=True, slots=True)
class CleaningReport:
    """One cleaning of one log in the broker's own log: seconds, and messages that it left."""

    partition: int
    seconds: float
    messages: int


@dataclass(frozen=True, slots=True)
class Cleaned:
    """Seconds by the wall clock, and the cleaner's own seconds summed over the logs, for each repetition."""

    wall: Times
    cleaner: Times


def measure_cleaner(lake: Lake, shape: Shape, repetitions: int) -> Cleaned:
    """Measure the cleaner: one cold repetition, and `repetitions` warm ones. The data set must exist."""
    # 1. a broker with a directory of its own
    files = data_files(lake, shape)
    directory = lake.directory / "kafka"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    properties = {"log.cleaner.threads": lake.cores, "log.cleaner.dedupe.buffer.size": DEDUPE_BUFFER}
    wall, cleaner_seconds = [], []
    with running_broker(directory, kafka_jars(os.environ), JVM, properties) as broker:
        client = KafkaClient(broker.address)
        # 2. a topic for each repetition
        for number in range(repetitions + 1):
            say(f"Kafka's cleaner, {number} of {repetitions}: {shape.text}")
            repetition = Repetition(broker, client, shape, f"{shape.topic}_{number}")
            repetition.fill(files)
            seconds, reports = repetition.clean()
            wall.append(seconds)
            cleaner_seconds.append(sum(report.seconds for report in reports))
            client.delete(repetition.topic)
    shutil.rmtree(directory)
    return Cleaned(Times.of(wall), Times.of(cleaner_seconds))


class Repetition:
    """One topic from its creation until it is clean."""

    def __init__(self, broker: Broker, client: KafkaClient, shape: Shape, topic: str) -> None:
        self._broker, self._client, self._shape, self.topic = broker, client, shape, topic
        self._rolls = 0

    def fill(self, files: list[str]) -> None:
        """Produce the records of the table. In a steady state, the clean part is cleaned first."""
        configs = {
            "cleanup.policy": "compact",
            "message.timestamp.after.max.ms": (1 << 63) - 1,
            "delete.retention.ms": NOW_MS,
            **HELD_BACK,
        }
        self._client.create(self.topic, self._shape.partitions, configs)
        split = self._shape.first_dirty_offset
        if split:
            self._produce(files, 0, split)
            self._roll()
            self.clean()
            self._client.alter(self.topic, HELD_BACK)
            time.sleep(1)  # the cleaner may just have read the old ratio
        self._produce(files, split, self._shape.per_log)
        self._roll()

    def clean(self) -> tuple[float, list[CleaningReport]]:
        """Return the seconds from lowering the ratio until all checkpoints are at the active segments. Raises
        BenchmarkError."""
        logs = range(self._shape.partitions)
        ends = {p: self._broker.segment_bases(self.topic, p)[-1] for p in logs}
        before = len(self._reports())
        began = time.perf_counter()
        self._client.alter(self.topic, LET_GO)
        while self._broker.checkpoints(self.topic) != ends:
            if time.perf_counter() - began > CLEANED_WITHIN_S:
                raise BenchmarkError(f"the cleaner is at {self._broker.checkpoints(self.topic)}, expected {ends}")
            time.sleep(0.02)
        seconds = time.perf_counter() - began
        return seconds, self._checked_reports(before)

    def _checked_reports(self, before: int) -> list[CleaningReport]:
        """Return the broker's reports of this cleaning. Waits for the reports of the clean part and of the updates."""
        time.sleep(1)
        reports = self._reports()[before:]
        if self._rolls == self._rolls_of_all:
            # the records that rolled earlier segments have keys of their own, and stay
            extra = (self._rolls - 1) * self._shape.partitions
            left = {s.partition: s.messages for s in reports}  # the last one of each log
            require_records(sum(left.values()), self._shape.survivors + extra, "Kafka's cleaner")
        return reports

    @property
    def _rolls_of_all(self) -> int:
        return 1 if self._shape.first_clean else 2

    def _reports(self) -> list[CleaningReport]:
        matches = CLEANED_LINE.findall(self._broker.output.read_text(errors="replace"))
        return [CleaningReport(int(m[1]), _number(m[5]), int(_number(m[6]))) for m in matches if m[0] == self.topic]

    def _produce(self, files: list[str], first: int, end: int) -> None:
        """Produce the records of offsets `[first, end)`, each to its log, in order."""
        producer = _producer(self._broker.address)
        for partition, batch in _batches(files, first, end):
            _send(producer, self.topic, partition, batch)
        _flush(producer)

    def _roll(self) -> None:
        """Produce one more record for each log, with a timestamp so late that it begins a new active segment."""
        producer, self._rolls = _producer(self._broker.address), self._rolls + 1
        record = (NOW_MS + self._rolls * ROLL_MS, f"roll-{self._rolls}".encode(), b"")
        for partition in range(self._shape.partitions):
            _send(producer, self.topic, partition, [record])
        _flush(producer)


def _producer(address: str) -> Any:
    from confluent_kafka import Producer

    settings = {"compression.type": "zstd", "linger.ms": 50, "batch.size": 1 << 20, "enable.idempotence": True}
    return Producer({"bootstrap.servers": address, "log_level": 2, "queue.buffering.max.messages": QUEUE, **settings})


def _batches(files: list[str], first: int, end: int) -> Iterator[tuple[int, list[Sent]]]:
    from pyarrow.parquet import ParquetFile

    for file in files:
        for batch in ParquetFile(file).iter_batches(BATCH, columns=["partition", "offset", "key", "value"]):
            partition = batch.column("partition")[0].as_py()
            rows = zip(*(batch.column(name).to_pylist() for name in ("offset", "key", "value")), strict=True)
            if batch_records := [(FIRST_TIMESTAMP_MS + o, k, v) for o, k, v in rows if first <= o < end]:
                yield partition, batch_records


def _send(producer: Any, topic: str, partition: int, batch: list[Sent]) -> None:
    """Produce a batch. If the queue is full, wait until half of it is free: it holds many batches."""
    while len(producer) > QUEUE // 2:
        producer.poll(0.05)
    for timestamp_ms, key, value in batch:
        producer.produce(topic, value, key, partition, timestamp=timestamp_ms)
    producer.poll(0)


def _flush(producer: Any) -> None:
    if left := producer.flush(300):
        raise BenchmarkError(f"{left} records were not sent")


def _number(text: str) -> float:
    return float(text.replace(",", ""))
