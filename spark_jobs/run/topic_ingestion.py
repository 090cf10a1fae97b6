"""What a topic's first station does in a pack: append what is new at its source, whatever that is."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pyspark.sql import SparkSession

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.human import counted
from cleantail.kafka.client_settings import settings_of_environment
from cleantail.kafka.silent_brokers import SilentBrokers
from cleantail.lake.catalogs import kept_catalog, load_table
from cleantail.lake.runs.foreign_deletes import foreign_deletes
from cleantail.lake.runs.new_files import new_files
from cleantail.rounds.pack_results import Ingested
from cleantail.rounds.station_results import IngestResult, KafkaIngestResult, TableIngestResult
from spark_jobs.conversion.convert import convert_deletes
from spark_jobs.round.intake.ingest import ingest_files
from spark_jobs.round.kafka.reading import read_topic
from spark_jobs.round.run import silent
from spark_jobs.round.source_table.reading import read_source_table

Settings = Mapping[str, str]
"""Settings of a Kafka client."""
LOCK_S = 10
"""So long (s) another ingestion of the topic is waited for, since the others of the pack wait as well."""


def ingest_topic(
    spark: SparkSession,
    topic: Topic,
    platform: Platform,
    client: Settings | None,
    now_ms: int,
    silent_brokers: SilentBrokers,
) -> Ingested | None:
    """Returns how much was appended; None where the topic has no source that runs read. `client`: as in client_of.
    Raises CleantailError, and whatever Spark raises."""
    source, of_topic = topic.source, (spark, topic, platform)
    if source.kafka is not None:
        settings = client_of(topic, client)
        with silent_brokers.asked(settings, topic.stall_timeout_ms):
            return _ingested(read_topic(*of_topic, settings, now_ms, silent, LOCK_S, platform.limits.ingest_max_ms))
    if source.table is not None:
        return _ingested(read_source_table(*of_topic, now_ms, silent, LOCK_S))
    if topic.columns is not None:
        return _converted(*of_topic)
    if not source.path:
        return None
    _, new = new_files(topic, platform)
    if not new:
        return Ingested(0)
    return _ingested(ingest_files(*of_topic, new, source.encoding, silent, lock_within_s=LOCK_S))


def _converted(spark: SparkSession, topic: Topic, platform: Platform) -> Ingested | None:
    """Turns the deletes that the sink of an adopted table has written by values into such as a round can read."""
    table = load_table(kept_catalog(platform, os.environ), topic, platform)
    if table is None or not foreign_deletes(table).any:
        return None
    converted = convert_deletes(spark, platform, topic.table)
    return Ingested(0, (f"{counted(converted.equality_deletes, 'file')} of deletes by values converted",))


def client_of(topic: Topic, handed_on: Settings | None) -> Settings:
    """Returns the settings that were handed on, else those of the driver's environment, as a topic's own job. Raises
    CleantailError for a topic that is not in Kafka."""
    if handed_on is not None:
        return handed_on
    if topic.source.kafka is None:
        raise CleantailError(f"topic {topic.topic} has no source.kafka in its YAML; nothing was appended")
    return settings_of_environment(topic.source.kafka, os.environ)


def _ingested(result: IngestResult | KafkaIngestResult | TableIngestResult) -> Ingested:
    return Ingested(result.records, result.warnings)
