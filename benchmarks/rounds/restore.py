"""Restore into Kafka, against a bare confluent-kafka producer of the same records: same broker, same cores.

1. The bare producer has one process for each core. Before the clock starts, each process has the records of its
   partitions in memory. It produces them in a loop, with a restore's settings of the producer, and flushes.
2. A restore reads them from the table's files, in Spark's tasks, writes them, and reads them back.
3. Every repetition has a topic of its own, which is counted by its ends and then deleted.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.harness.dataset import build
from benchmarks.harness.fresh_process import BenchmarkError, Stopwatch, in_fresh_process, require_records, say
from benchmarks.harness.lake import Lake
from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Times, Value, ratio
from benchmarks.harness.shape import Shape
from benchmarks.systems.duckdb_copy import data_files
from benchmarks.systems.kafka_cleaner import JVM
from differential.broker import kafka_jars, running_broker
from differential.kafka_client import KafkaClient

MOST_RECORDS = 3_000_000
BARE, WRITE, READ_BACK, WHOLE = (
    "bare producer",
    "restore, its writing",
    "restore, its reading back",
    "restore, as a whole",
)
READY_WITHIN_S, FLUSHED_WITHIN_S = 600, 600
MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default of max.message.bytes."""
FOREVER = {"retention.ms": -1, "message.timestamp.after.max.ms": (1 << 63) - 1}
COLUMNS = (
    Column("records", "text"),
    Column("work", "text"),
    Column("cold, s"),
    Column("warm, s"),
    Column("warm, fastest to slowest", "text"),
    Column("records a second", "count"),
    Column("to the bare producer", "ratio"),
)
NOTES = (
    "Bare producer: a process for each core sends records from its memory in a loop. It is idempotent with acks=all, "
    "as the restore's producer.",
    "Its writing: the Spark tasks that read the table's files and write. Its reading back: the tasks that compare each "
    "record of the topic with the table's. As a whole: both, and the pin and the check of the topic before them, in a "
    "running session.",
    "The broker has the same cores, with Kafka's own options of the JVM. The last column is the bare producer's "
    "seconds divided by these.",
)


@dataclass(frozen=True, slots=True)
class Restored:
    seconds: dict[str, Times]
    records: int


def run(options: Options) -> Table:
    shape = Shape(min(options.records, MOST_RECORDS), 0.2, partitions=max(options.lake.cores, 2))
    measured = in_fresh_process(measure_restore, options.lake, shape, options.repetitions)
    options.forget(shape)
    return Table("restore", "Restores into Kafka", COLUMNS, tuple(_rows(shape, measured)), (*NOTES, options.text))


def measure_restore(lake: Lake, shape: Shape, repetitions: int) -> Restored:
    """Measure producer and restore in turn: one cold repetition, and `repetitions` warm ones."""
    build(lake, shape)
    files, watch = data_files(lake, shape), Stopwatch()
    directory = lake.directory / "kafka"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    with running_broker(directory, kafka_jars(os.environ), JVM) as broker:
        client = KafkaClient(broker.address)
        for number in range(repetitions + 1):
            say(f"restore, {number} of {repetitions}: {shape.text}")
            bare, restored = f"bare_{number}", f"restored_{number}"
            client.create(bare, shape.partitions, FOREVER)
            watch.seconds.setdefault(BARE, []).append(_bare_seconds(lake, broker.address, bare, shape, files))
            _require_all(broker.address, bare, shape)
            client.delete(bare)
            client.create(restored, shape.partitions, FOREVER)
            for name, seconds in _restore_seconds(lake, broker.address, restored, shape).items():
                watch.seconds.setdefault(name, []).append(seconds)
            _require_all(broker.address, restored, shape)
            client.delete(restored)
    shutil.rmtree(directory)
    return Restored({name: Times.of(seconds) for name, seconds in watch.seconds.items()}, shape.total)


def _bare_seconds(lake: Lake, address: str, topic: str, shape: Shape, files: Sequence[str]) -> float:
    """Return the seconds from the start of all producers until each has flushed."""
    fresh = multiprocessing.get_context("spawn")
    barrier = fresh.Barrier(lake.cores + 1)
    shares = [[p for p in range(shape.partitions) if p % lake.cores == n] for n in range(lake.cores)]
    workers = [fresh.Process(target=_produce, args=(barrier, address, topic, share, files)) for share in shares]
    for worker in workers:
        worker.start()
    barrier.wait(READY_WITHIN_S)
    began = time.perf_counter()
    for worker in workers:
        worker.join(FLUSHED_WITHIN_S)
    seconds = time.perf_counter() - began
    if any(worker.exitcode for worker in workers):
        raise BenchmarkError("a bare producer has failed")
    return seconds


def _produce(barrier: Any, address: str, topic: str, partitions: Sequence[int], files: Sequence[str]) -> None:
    """Produce the records of these partitions. All processes have theirs in memory before any of them begins."""
    from confluent_kafka import Producer

    from cleantail.kafka.target_client import producer

    logs = {p: _records(files, p) for p in partitions}
    bare = Producer(producer({"bootstrap.servers": address}, MAX_MESSAGE_BYTES))
    barrier.wait(READY_WITHIN_S)
    for partition, records in logs.items():
        for number, (key, value, stamp_ms) in enumerate(records):
            while True:
                try:
                    bare.produce(topic, value, key, partition, timestamp=stamp_ms)
                    break
                except BufferError:
                    bare.poll(0.05)
            if number % 1000 == 0:
                bare.poll(0)
    if bare.flush(FLUSHED_WITHIN_S):
        raise BenchmarkError("records were not sent")


def _records(files: Sequence[str], partition: int) -> list[tuple[bytes, bytes | None, int]]:
    """Return the records of a partition in the order of their offsets."""
    from pyarrow.parquet import ParquetFile

    rows = []
    for file in files:
        parquet = ParquetFile(file)
        for batch in parquet.iter_batches(columns=["partition", "offset", "timestamp", "key", "value"]):
            if batch.num_rows and batch.column("partition")[0].as_py() == partition:
                micros = batch.column("timestamp").cast("int64").to_pylist()
                columns = (batch.column(name).to_pylist() for name in ("offset", "key", "value"))
                rows += [(o, k, v, us // 1000) for us, o, k, v in zip(micros, *columns, strict=True)]
    return [record[1:] for record in sorted(rows, key=lambda row: row[0])]


def _restore_seconds(lake: Lake, address: str, topic: str, shape: Shape) -> dict[str, float]:
    """Return the seconds of a restore of the log, and of its step that writes."""
    from cleantail.kafka.restore_plan import RestoreRequest, plan_restore, target_settings
    from cleantail.kafka.target_client import TargetBrokers
    from spark_jobs.restore_topic import Restore

    settings = target_settings(address, None, None, {})
    brokers, now_ms = TargetBrokers(settings), int(time.time() * 1000)
    table, _platform = lake.table(shape.topic), lake.platform
    steps: dict[str, float] = {}
    began = time.perf_counter()
    plan = plan_restore(table.topic, RestoreRequest(topic, "log"), brokers, now_ms)
    restore = Restore(table, brokers, settings, lambda step: steps.update({step: time.perf_counter()}))
    result = restore.run(plan, now_ms)
    ended = time.perf_counter()
    require_records(result.verified, shape.total, "a restore, of verified records,")
    read_from = steps["reading back"]
    return {WRITE: read_from - steps["writing"], READ_BACK: ended - read_from, WHOLE: ended - began}


def _require_all(address: str, topic: str, shape: Shape) -> None:
    from cleantail.kafka.target_client import TargetBrokers

    described = TargetBrokers({"bootstrap.servers": address}).describe(topic)
    require_records(described.records if described else 0, shape.total, f"topic {topic}, of records,")


def _rows(shape: Shape, restored: Restored) -> list[tuple[Value, ...]]:
    bare = restored.seconds[BARE].warm
    return [
        (shape.text, name, t.cold, t.warm, t.spread, int(restored.records / t.warm), ratio(bare, t.warm))
        for name, t in restored.seconds.items()
    ]
