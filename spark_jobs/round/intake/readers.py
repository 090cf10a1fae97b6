"""Read a topic's source to its end: one row for each kind of source. cleantail.intake has all without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import SparkSession

from cleantail.config.topic_source import FILES, KAFKA, TABLE
from cleantail.intake import Poll, feed_of
from cleantail.rounds.station_results import IngestResult
from spark_jobs.round.intake.ingest import Progress, ingest_files
from spark_jobs.round.intake.kafka_reading import read_topic
from spark_jobs.round.intake.source_table_reading import read_source_table


def read_feed(spark: SparkSession, poll: Poll, progress: Progress, lock_within_s: float | None = None) -> IngestResult:
    """Append what is new in the topic's source. `lock_within_s`: as in ingest_files; None if no other topic waits.
    Raises CleantailError, and errors of Spark."""
    return READERS[poll.topic.fed_by](spark, poll, progress, lock_within_s)


def _files(spark: SparkSession, poll: Poll, progress: Progress, lock_within_s: float | None) -> IngestResult:
    topic, new = poll.topic, [*feed_of(poll.topic).new_input(poll).files]
    if not new:
        return feed_of(topic).nothing(topic)
    encoding, now_ms = topic.source.encoding, poll.now_ms
    return ingest_files(spark, topic, new, encoding, progress, lock_within_s=lock_within_s, run_ms=now_ms)


def _kafka(spark: SparkSession, poll: Poll, progress: Progress, lock_within_s: float | None) -> IngestResult:
    topic, client = poll.topic, poll.settings_of(poll.topic)
    within_ms = None if lock_within_s is None else topic.platform.limits.ingest_max_ms
    with poll.silent.asked(client, topic.stall_timeout_ms):
        return read_topic(spark, topic, client, poll.now_ms, progress, lock_within_s, within_ms)


READERS: Mapping[str, Callable[[SparkSession, Poll, Progress, float | None], IngestResult]] = {
    FILES: _files,
    KAFKA: _kafka,
    TABLE: lambda spark, poll, *how: read_source_table(spark, poll.topic, poll.now_ms, *how),
}
"""`Topic.fed_by` -> read_feed of that kind."""
