"""`ingest`: append records from files, from Kafka, from a broker's log segments, or from a sink's table."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.human import counted, size
from cleantail.rounds.station_results import (
    INGEST_RESULT_JSON,
    KAFKA_INGEST_RESULT_JSON,
    TABLE_INGEST_RESULT_JSON,
    IngestResult,
    KafkaIngestResult,
    TableIngestResult,
)
from cleantail_cli import parameters
from cleantail_cli.command import Invocation, Several, command, directories
from cleantail_cli.long_work import spark_session
from cleantail_cli.output import Page
from cleantail_cli.parameters import DIRECTORY, FILE, clock


@command(
    "ingest",
    parameters.topic,
    click.option(
        "--file",
        "files",
        cls=Several,
        type=FILE,
        metavar="F...",
        help="One or more .jsonl or .jsonl.gz; may be repeated. Without it source.kafka, or source.table, is read.",
    ),
    click.option(
        "--segments",
        type=DIRECTORY,
        metavar="DIR",
        shell_complete=directories,
        help="A broker's log directory, a copy of it or of tiered storage, or one TOPIC-N folder: its .log files are "
        "read, without a broker.",
    ),
    click.option("--encoding", type=click.Choice(["text", "base64"]), help="Of keys, payloads and header values."),
    click.option(
        "--any-topic",
        is_flag=True,
        help="Take lines whatever topic they name; without it one that names another topic than this (or than "
        "source.topic in the YAML) is refused, and nothing is appended.",
    ),
    examples=[
        "cleantail ingest orders",
        "cleantail ingest customer-cdc --file customers.jsonl",
        "cleantail ingest customer-cdc --file monday.jsonl.gz tuesday.jsonl.gz",
        "cleantail ingest orders --segments /var/lib/kafka/data",
    ],
)
def ingest(
    call: Invocation,
    topic: str,
    files: tuple[Path, ...],
    segments: Path | None,
    encoding: str | None,
    any_topic: bool,
) -> int:
    """Append what Kafka has, its segments, a sink's table, or files of kcat -J lines, exactly once.

    Without files: every partition from the table's position to its last stable offset in Kafka (source.kafka), or in
    the segments of --segments; of a topic with source.table what the snapshots of that table have brought. Files come
    in one commit, and so do segments: where one cannot be taken, nothing is appended.
    """
    if not files:
        if encoding or any_topic:
            raise CleantailError("--encoding and --any-topic are about files: name these with --file")
        if segments is not None:
            return ingest_segments(call, call.topic(topic), Path(os.path.abspath(segments)))
        configured = call.topic(topic)
        return (ingest_from_table if configured.source.table else ingest_from_kafka)(call, configured)
    if segments is not None:
        raise CleantailError("--file and --segments are of two kinds of sources: ingest one after the other")
    from cleantail.lake.catalogs import require_usable
    from cleantail.sources.source_files import require_readable
    from spark_jobs.round.intake.ingest import ingest_files

    configured = call.topic(topic)
    require_readable(files)
    # a person with a shell may name any file that they can read; platform.sources binds the YAML alone
    resolved = [file.resolve() for file in files]
    require_usable(configured, call.platform, os.environ)
    with call.output.progress() as progress:
        progress.about(f"{counted(len(files), 'file')}, {size(sum(file.stat().st_size for file in files))}")
        encoding = encoding or configured.source.encoding
        with spark_session(call.platform, f"cleantail ingest {configured.topic}", progress) as spark:
            result = ingest_files(spark, configured, call.platform, resolved, encoding, progress, any_topic)
    call.output.show(Ingested(configured, result))
    return 0


def ingest_from_kafka(call: Invocation, topic: Topic) -> int:
    """Reads the topic on. Spark is started only where there is something to read, or the table has no position yet."""
    from cleantail.kafka.client_settings import settings_of_environment
    from cleantail.kafka.table_position import is_read
    from cleantail.lake.catalogs import require_usable
    from cleantail.rounds.station_results import KafkaIngestResult

    if topic.source.kafka is None:
        raise CleantailError(
            f"topic {topic.topic} has no source.kafka and no source.table in its YAML: give files with --file, or name "
            "its brokers, or its table, there"
        )
    settings, now_ms = settings_of_environment(topic.source.kafka, os.environ), clock(None)
    require_usable(topic, call.platform, os.environ)
    with call.output.progress() as progress:
        progress("asking the brokers")
        if is_read(topic, call.platform, settings, now_ms):
            result = KafkaIngestResult(topic.kafka_topic)
        else:
            from spark_jobs.round.kafka.reading import read_topic

            with spark_session(call.platform, f"cleantail ingest {topic.topic}", progress) as spark:
                result = read_topic(spark, topic, call.platform, settings, now_ms, progress)
    call.output.show(ReadFromKafka(topic, result))
    return 0


def ingest_segments(call: Invocation, topic: Topic, directory: Path) -> int:
    """Appends what the segments of the topic's logs in a directory have and the table has not."""
    from cleantail.kafka.segments.log_folders import find_logs
    from cleantail.lake.catalogs import require_usable
    from spark_jobs.round.kafka.segment_logs import read_segments, segment_topic

    if topic.source.table is not None:
        raise CleantailError(
            f"topic {topic.topic} is read from {topic.source.table.name}, and what of that its segments have nobody "
            "knows: take source.table out of its YAML first; nothing was appended"
        )
    logs = find_logs(directory, segment_topic(topic)).logs
    require_usable(topic, call.platform, os.environ)
    with call.output.progress() as progress:
        segments = [segment for log in logs for segment in log.segments]
        progress.about(f"{counted(len(segments), 'segment')}, {size(sum(each.size_bytes for each in segments))}")
        with spark_session(call.platform, f"cleantail ingest {topic.topic}", progress) as spark:
            result = read_segments(spark, topic, call.platform, directory, clock(None), progress)
    call.output.show(ReadFromKafka(topic, result, f"from segments of {result.kafka_topic}"))
    return 0


def ingest_from_table(call: Invocation, topic: Topic) -> int:
    """Reads the topic on. Spark is started only where there is something to read."""
    from cleantail.lake.catalogs import require_usable
    from cleantail.lake.source_table.planned_read import is_table_read
    from cleantail.lake.source_table.source_snapshots import table_source_of
    from cleantail.rounds.station_results import TableIngestResult

    now_ms = clock(None)
    require_usable(topic, call.platform, os.environ)
    with call.output.progress() as progress:
        progress("looking at the source table")
        if is_table_read(topic, call.platform, now_ms):
            result = TableIngestResult(table_source_of(topic).named_in(call.platform.catalog.name))
        else:
            from spark_jobs.round.source_table.reading import read_source_table

            with spark_session(call.platform, f"cleantail ingest {topic.topic}", progress) as spark:
                result = read_source_table(spark, topic, call.platform, now_ms, progress)
    call.output.show(ReadFromTable(topic, result))
    return 0


@dataclass(frozen=True)
class Ingested:
    """Holds each file, and how many records were appended."""

    topic: Topic
    result: IngestResult

    def document(self) -> dict[str, Any]:
        return {"topic": self.topic.topic, **INGEST_RESULT_JSON.plain(self.result)}

    def tell(self, page: Page) -> None:
        for row in self.result.files:
            page.line(f"{row.file}: {'already in the table, nothing added' if row.skipped else 'appended'}")
        page.line(f"{self.topic.topic}: {counted(self.result.records, 'record')} appended")
        for text in self.result.warnings:
            page.warning(text)


@dataclass(frozen=True)
class ReadFromKafka:
    """Says what was read of each partition in Kafka, and how many records were appended. `origin` says where they came
    from, where that is no broker."""

    topic: Topic
    result: KafkaIngestResult
    origin: str = ""

    def document(self) -> dict[str, Any]:
        return {"topic": self.topic.topic, **KAFKA_INGEST_RESULT_JSON.plain(self.result)}

    def tell(self, page: Page) -> None:
        for row in self.result.partitions:
            page.line(f"partition {row.partition}: read from offset {row.from_offset} to {row.to_offset}")
        origin = self.origin or f"from {self.result.kafka_topic} in Kafka"
        page.line(f"{self.topic.topic}: {counted(self.result.records, 'record')} appended {origin}")
        for text in self.result.warnings:
            page.warning(text)


@dataclass(frozen=True)
class ReadFromTable:
    """Says up to which snapshot a source table was read, and how many records were appended."""

    topic: Topic
    result: TableIngestResult

    def document(self) -> dict[str, Any]:
        return {"topic": self.topic.topic, **TABLE_INGEST_RESULT_JSON.plain(self.result)}

    def tell(self, page: Page) -> None:
        result = self.result
        for row in result.partitions:
            page.line(f"partition {row.partition}: read records between offset {row.from_offset} and {row.to_offset}")
        if result.snapshot_id is None:
            page.line(f"{self.topic.topic}: nothing is new in {result.table}")
        else:
            page.line(
                f"{self.topic.topic}: {counted(result.records, 'record')} appended from {result.table} up to snapshot "
                f"{result.snapshot_id}"
            )
        for text in result.warnings:
            page.warning(text)
