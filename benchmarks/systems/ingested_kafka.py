"""A topic of a broker, read by Cleantail and by consumers that drop the records."""

from __future__ import annotations

import multiprocessing
import random
import time
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier

from benchmarks.harness.dataset import dropped
from benchmarks.harness.fresh_process import BenchmarkError, Stopwatch, require_records, say
from benchmarks.harness.lake import Lake
from benchmarks.harness.report import Times
from benchmarks.harness.shape import FIRST_TIMESTAMP_MS, KEY_DIGITS, VALUE_BYTES
from benchmarks.systems.spark_costs import Meter
from differential.kafka_client import KafkaClient

TOPIC = "bench_ingestion"
PARTITIONS = 4
CONSUMED, QUEUE = 10_000, 200_000
WITHIN_S = 600
READING = "reading"


def fill_topic(address: str, records: int) -> None:
    """Create the topic and produce its records, in turn to each partition."""
    from confluent_kafka import Producer

    KafkaClient(address).create(TOPIC, PARTITIONS, {"message.timestamp.after.max.ms": (1 << 63) - 1})
    producer = Producer({"bootstrap.servers": address, "linger.ms": 50, "queue.buffering.max.messages": QUEUE})
    rng = random.Random(17)
    for number in range(records):
        key = f"key-{number:0{KEY_DIGITS}}".encode()
        while len(producer) >= QUEUE // 2:
            producer.poll(0.05)
        time_ms = FIRST_TIMESTAMP_MS + number
        producer.produce(TOPIC, rng.randbytes(VALUE_BYTES), key, number % PARTITIONS, timestamp=time_ms)
    if left := producer.flush(300):
        raise BenchmarkError(f"{left} records were not sent")


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of an ingestion, and the peak memory of its processes. The memory is None for a bare consumer or
    parser."""

    times: Times
    peak_memory_bytes: int | None = None


def measure_consumer(address: str, records: int, processes: int, repetitions: int) -> Measured:
    """Measure the seconds in which this number of processes consumes all partitions, each a part of them."""
    seconds = []
    for number in range(repetitions + 1):
        say(f"bare consumer, {number} of {repetitions}")
        seconds.append(_consumed(address, records, processes))
    return Measured(Times.of(seconds))


def _consumed(address: str, records: int, processes: int) -> float:
    fresh = multiprocessing.get_context("spawn")
    barrier, counts = fresh.Barrier(processes + 1), fresh.Queue()
    shares = [tuple(range(first, PARTITIONS, processes)) for first in range(processes)]
    consumers = [fresh.Process(target=_consume, args=(address, share, barrier, counts)) for share in shares]
    for consumer in consumers:
        consumer.start()
    barrier.wait(WITHIN_S)
    began = time.perf_counter()
    total = sum(counts.get(timeout=WITHIN_S) for _ in consumers)
    seconds = time.perf_counter() - began
    for consumer in consumers:
        consumer.join()
    require_records(total, records, "the bare consumer")
    return seconds


def _consume(address: str, partitions: tuple[int, ...], barrier: Barrier, counts: multiprocessing.Queue[int]) -> None:
    """Count the records of the partitions without reading their content."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False})
    ends = [consumer.get_watermark_offsets(TopicPartition(TOPIC, p), WITHIN_S)[1] for p in partitions]
    barrier.wait(WITHIN_S)
    consumer.assign([TopicPartition(TOPIC, p, 0) for p in partitions])
    count, expected = 0, sum(ends)
    while count < expected:
        count += len(consumer.consume(CONSUMED, 1.0))
    counts.put(count)
    consumer.close()


def measure_reading(lake: Lake, address: str, records: int, repetitions: int) -> Measured:
    """Measure reading the whole topic into a new table."""
    from spark_jobs.round.intake.kafka_reading import read_topic

    _platform, watch = lake.platform, Stopwatch()
    lake.write_topic(TOPIC, {}, source={"kafka": {"bootstrap.servers": address}})
    topic, spark = lake.topic(TOPIC), lake.session()
    meter = Meter(spark)
    for number in range(repetitions + 1):
        say(f"Cleantail from Kafka, {number} of {repetitions}")
        with watch(READING):
            now_ms = int(time.time() * 1000)
            result = read_topic(spark, topic, {"bootstrap.servers": address}, now_ms, lambda _: None)
        require_records(result.records, records, "Cleantail, from Kafka")
        table = lake.table(TOPIC)
        require_records(table.current().count(), records, "the table read from Kafka")
        dropped(table)
    return Measured(Times.of(watch.seconds[READING]), meter.peak_memory_bytes())
