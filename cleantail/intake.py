"""What brings records into a topic's table: FEEDS has one row for each `Topic.fed_by`. Without Spark.

READERS in spark_jobs/round/intake/readers.py has the functions that read the sources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cleantail.config.source_paths import beginning_of
from cleantail.config.topic import Topic
from cleantail.config.topic_source import ADDRESS, FILES, HAND, KAFKA, SINK, TABLE
from cleantail.human import counted
from cleantail.kafka.broker_clients import SilentBrokers
from cleantail.kafka.client_settings import SettingsOf
from cleantail.kafka.table_position import unread_offsets
from cleantail.lake.catalogs import kept_catalog, load_table
from cleantail.lake.facts_cache import FactsCache
from cleantail.lake.pending_input import new_files, planned_read, table_source_of
from cleantail.lake.repairable_deletes import foreign_deletes
from cleantail.lineage import LineageDataset, file_datasets, kafka_dataset, source_dataset
from cleantail.rounds.run_plan import NewInput
from cleantail.rounds.station_results import FileIngestResult, IngestResult, KafkaIngestResult, TableIngestResult

RECORD_BYTES_IN_KAFKA = 256
"""Estimated size of an unread record. Brokers do not report record sizes."""


@dataclass(frozen=True, slots=True)
class Poll:
    """One poll of a topic's source, at `now_ms` (Unix ms).

    `kept`: as in evaluate_topic. `silent`: brokers that did not answer, for which no topic waits again.
    """

    topic: Topic
    settings_of: SettingsOf
    now_ms: int
    kept: FactsCache | None = None
    silent: SilentBrokers = field(default_factory=SilentBrokers)


def _table_has(all_of: str) -> NewInput:
    return NewInput(nothing=f"nothing new: the table already has all {all_of}")


def _by_hand(topic: Topic) -> str:
    return f"cleantail ingest {topic.topic} --file FILE"


def _in_files(poll: Poll) -> NewInput:
    files, new = new_files(poll.topic, poll.kept)
    if not new:
        return _table_has(f"files of {poll.topic.source.path} ({counted(len(files), 'file')})")
    return NewInput(sum(file.stat().st_size for file in new if file.exists()), files=tuple(new))


def _in_kafka(poll: Poll) -> NewInput:
    topic, client = poll.topic, poll.settings_of(poll.topic)
    with poll.silent.asked(client, topic.stall_timeout_ms):
        offsets = unread_offsets(topic, client, poll.now_ms)
    if offsets is None:
        return _table_has(f"readable records of {topic.kafka_topic} in Kafka")
    return NewInput(offsets * RECORD_BYTES_IN_KAFKA, client=client)


def _in_table(poll: Poll) -> NewInput:
    planned = planned_read(poll.topic, poll.now_ms)
    if planned.plan is None:
        return _table_has(f"records of its source table {planned.source.name}")
    return NewInput(planned.plan.bytes)


def _deletes_of_sink(poll: Poll) -> NewInput:
    """Return 0 bytes if there are equality deletes: they are converted, but add no records."""
    table = load_table(kept_catalog(poll.topic.platform), poll.topic)
    if table is None or not foreign_deletes(table).any:
        return NewInput(nothing="the table has no equality deletes to convert")
    return NewInput(0, converts=True)


@dataclass(frozen=True, slots=True)
class FeedKind:
    """What brings records into a table.

    new_input  the input that the source has and the table lacks, from metadata. Raises CleantailError
    first      how the first records get in, for people
    datasets   what an ingestion has read, for lineage; its files are empty if unknown
    nothing    the result of an ingestion that finds nothing new
    asking     the progress message of a user's ingestion without files; "" if it needs files
    """

    new_input: Callable[[Poll], NewInput]
    first: Callable[[Topic], str]
    datasets: Callable[[Topic, SettingsOf, Sequence[Path]], tuple[LineageDataset, ...]] = lambda _, __, files: (
        file_datasets(files)
    )
    nothing: Callable[[Topic], IngestResult] = lambda _: FileIngestResult((), 0)
    asking: str = ""


def feed_of(topic: Topic) -> FeedKind:
    return FEEDS[topic.fed_by]


FEEDS: Mapping[str, FeedKind] = {
    FILES: FeedKind(
        _in_files,
        lambda topic: f"the next run takes the files that match {topic.source.path}; by hand: {_by_hand(topic)}",
        lambda topic, _, files: file_datasets(files or [beginning_of(topic.source.path or "", topic.platform.home)]),
    ),
    KAFKA: FeedKind(
        _in_kafka,
        lambda topic: f"the next run reads {topic.kafka_topic} from Kafka; by hand: cleantail ingest {topic.topic}",
        lambda topic, settings_of, _: (kafka_dataset(settings_of(topic)[ADDRESS], topic.kafka_topic),),
        lambda topic: KafkaIngestResult(topic.kafka_topic),
        "reading offsets from the brokers",
    ),
    TABLE: FeedKind(
        _in_table,
        lambda topic: (
            f"the next run reads the table {table_source_of(topic).name}; by hand: cleantail ingest {topic.topic}"
        ),
        lambda topic, _, __: (source,) if (source := source_dataset(topic)) else (),
        lambda topic: TableIngestResult(table_source_of(topic).named_in(topic.platform.catalog.name)),
        "reading metadata of the source table",
    ),
    SINK: FeedKind(
        _deletes_of_sink, lambda topic: f"its table {topic.table} has no records; another writer brings them"
    ),
    HAND: FeedKind(
        lambda _: NewInput(nothing="runs read no source"),
        lambda topic: f"{_by_hand(topic)}, or a source.path, source.kafka or source.table in its YAML",
    ),
}
"""`Topic.fed_by` -> what brings the records."""
