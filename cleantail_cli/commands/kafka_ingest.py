"""`cleantail ingest TOPIC` without files: what Kafka, or the segments of a broker's log, have and the table has not."""

from __future__ import annotations

import os
from pathlib import Path

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.human import counted, size
from cleantail_cli.command import Invocation
from cleantail_cli.parameters import clock
from cleantail_cli.spark import spark_session


def ingest_from_kafka(call: Invocation, topic: Topic) -> int:
    """Reads the topic on. Spark is started only where there is something to read, or the table has no position yet."""
    from cleantail.kafka.client_settings import settings_of_environment
    from cleantail.kafka.table_position import is_read
    from cleantail.lake.catalogs import require_usable
    from cleantail.rounds.station_results import KafkaIngestResult
    from cleantail_cli.reports.upkeep import ReadFromKafka

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
    from cleantail_cli.reports.upkeep import ReadFromKafka
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
