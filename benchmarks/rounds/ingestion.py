"""Speed of ingestion: from a broker, compared with a bare consumer, and from lines, compared with a bare parser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from benchmarks.harness.fresh_process import in_fresh_process, say
from benchmarks.harness.lake import Lake
from benchmarks.harness.options import Options
from benchmarks.harness.report import Column, Table, Value, ratio
from benchmarks.systems.ingested_kafka import Measured, fill_topic, measure_consumer, measure_reading
from benchmarks.systems.ingested_lines import Denied, measure_lines, measure_parser, write_lines
from benchmarks.systems.kafka_cleaner import JVM
from differential.broker import kafka_jars, running_broker

KAFKA_RECORDS, LINES = 3_000_000, 1_000_000
CONSUMER, READING = "bare consumer", "Cleantail, from Kafka"
PARSER, INGESTION = "bare parser: json.loads", "Cleantail, from a file"
COLUMNS = (
    Column("records", "count"),
    Column("system", "text"),
    Column("cold, s"),
    Column("warm, s"),
    Column("warm, fastest to slowest", "text"),
    Column("records a second, cold", "count"),
    Column("records a second, warm", "count"),
    Column("rate to the bare one, warm", "ratio"),
    Column("peak memory", "bytes"),
)
NOTES = (
    "Kafka: one broker on the same machine, 4 partitions, values of 256 random bytes, not compressed. The bare "
    "consumer is confluent-kafka's, in as many processes as Cleantail has tasks at a time. Each process requests "
    "10,000 records at a time and only counts them. The time begins when all processes are connected.",
    "Lines: one file of kcat -J, values of 256 characters that do not compress. The bare parser is Python's json.loads "
    "of each line, in as many processes as cores, each with its part of the file.",
    "Cleantail's time is that of the whole ingestion into a new table, in a running session: it compares, counts and "
    "commits the records. Cold is the first ingestion of its process. Peak memory is the sum of VmHWM of the JVM and "
    "of all its Python processes, over all repetitions.",
)


def run(options: Options) -> Table:
    records, lines = min(options.records, KAFKA_RECORDS), min(options.records, LINES)
    rows = [*_rows(records, _from_kafka(options, records)), *_rows(lines, _from_lines(options, lines))]
    return Table("ingestion", "Records that come in", COLUMNS, tuple(rows), (*NOTES, options.text))


def _from_kafka(options: Options, records: int) -> Mapping[str, Measured]:
    directory = options.lake.directory / "kafka-source"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    try:
        with running_broker(directory, kafka_jars(os.environ), JVM) as broker:
            say(f"producing {records:,} records")
            in_fresh_process(fill_topic, broker.address, records)
            return {
                CONSUMER: measure_consumer(broker.address, records, options.lake.cores, options.repetitions),
                READING: in_fresh_process(measure_reading, options.lake, broker.address, records, options.repetitions),
            }
    finally:
        shutil.rmtree(directory)


def _from_lines(options: Options, lines: int) -> Mapping[str, Measured]:
    file = options.lake.directory / "lines.jsonl"
    in_fresh_process(write_lines, file, lines)
    try:
        return _measured_lines(options.lake, file, lines, options.repetitions)
    finally:
        file.unlink()


def _measured_lines(lake: Lake, file: Path, lines: int, repetitions: int) -> Mapping[str, Measured]:
    return {
        PARSER: measure_parser(file, lines, lake.cores, repetitions),
        **in_fresh_process(measure_lines, lake, file, lines, repetitions, {INGESTION: Denied(0)}),
    }


def _rows(records: int, measured: Mapping[str, Measured]) -> list[tuple[Value, ...]]:
    bare = next(iter(measured.values())).times.warm
    return [
        (
            records,
            system,
            times.cold,
            times.warm,
            times.spread,
            records / times.cold,
            records / times.warm,
            ratio(bare, times.warm),
            each.peak_memory_bytes,
        )
        for system, each in measured.items()
        for times in (each.times,)
    ]
