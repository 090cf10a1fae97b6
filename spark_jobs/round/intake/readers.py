"""Read a topic's source to its end: one row for each kind of source. cleantail.intake has all without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import SparkSession

from cleantail.config.topic_source import FILES, KAFKA, TABLE
from cleantail.intake import Look, feed_of
from cleantail.rounds.station_results import IngestResult
from spark_jobs.round.intake.ingest import Progress, ingest_files
from spark_jobs.round.intake.kafka_reading import read_topic
from spark_jobs.round.intake.source_table_reading import read_source_table


def read_feed(spark: SparkSession, look: Look, progress: Progress, lock_within_s: float | None = None) -> IngestResult:
    """Append what is new in the topic's source. `lock_within_s`: as in ingest_files; None if no other topic waits.

    Raises CleantailError, and errors of Spark."""
    return READERS[look.topic.fed_by](spark, look, progress, lock_within_s)


def _files(spark: SparkSession, look: Look, progress: Progress, lock_within_s: float | None) -> IngestResult:
    topic, new = look.topic, [*feed_of(look.topic).new_input(look).files]
    if not new:
        return feed_of(topic).nothing(topic)
    encoding, now_ms = topic.source.encoding, look.now_ms
    return ingest_files(spark, topic, new, encoding, progress, lock_within_s=lock_within_s, run_ms=now_ms)


def _kafka(spark: SparkSession, look: Look, progress: Progress, lock_within_s: float | None) -> IngestResult:
    topic, client = look.topic, look.settings_of(look.topic)
    within_ms = None if lock_within_s is None else topic.platform.limits.ingest_max_ms
    with look.silent.asked(client, topic.stall_timeout_ms):
        return read_topic(spark, topic, client, look.now_ms, progress, lock_within_s, within_ms)


READERS: Mapping[str, Callable[[SparkSession, Look, Progress, float | None], IngestResult]] = {
    FILES: _files,
    KAFKA: _kafka,
    TABLE: lambda spark, look, *how: read_source_table(spark, look.topic, look.now_ms, *how),
}
"""`Topic.fed_by` -> read_feed of that kind."""
