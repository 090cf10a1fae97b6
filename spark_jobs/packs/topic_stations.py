"""All stations of one topic in an application that is running already: new records, rounds, tombstones, space.

1. `ingest`: files that the table does not have yet, or what is new in Kafka.
2. `evaluate`: from the metadata as it is now. A topic of which nothing is due ends here.
3. `compact`: the round of the due logs, with its check and its publication (spark_jobs.round.run).
4. `reconcile`, `expire_tombstones`, `reclaim`: where they are due.

A station that fails ends the topic's work; what earlier stations did stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.kafka.source_topic import SourceTopic
from cleantail.lake.catalogs import require_usable
from cleantail.lake.runs.evaluate import RunPlan, evaluate_topic
from cleantail.lake.runs.new_files import new_files
from cleantail.rounds.checked.round_results import RoundResult
from cleantail.rounds.ingest_results import IngestResult, KafkaIngestResult
from cleantail.rounds.pack_results import (
    COMPACT,
    EVALUATE,
    EXPIRE_TOMBSTONES,
    INGEST,
    NOTHING_DUE,
    RECLAIM,
    RECONCILE,
    Ingested,
    PackRequest,
    TopicOutcome,
    done,
)
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.intake.ingest import ingest_files
from spark_jobs.round.kafka.reading import read_topic
from spark_jobs.round.round_kinds import write_back
from spark_jobs.round.run import Run, compact_round, expire_round, reconcile_round, silent
from spark_jobs.round.upkeep.reclaim import reclaim_topic

Settings = Mapping[str, str]
"""Settings of a Kafka client."""


class StationError(Exception):
    """Carries the outcome of a topic up to the station that failed; the error itself is its cause."""

    def __init__(self, outcome: TopicOutcome, station: str) -> None:
        super().__init__(station)
        self.outcome, self.station = outcome, station


@dataclass(slots=True)
class TopicStations:
    """Takes one topic through its stations, once. `client`: the settings of its Kafka client, None where it has
    none."""

    spark: SparkSession
    platform: Platform
    topic: Topic
    request: PackRequest
    client: Settings | None = None

    def run(self) -> TopicOutcome:
        """Returns what became of the topic. Raises StationError where a station failed."""
        outcome = TopicOutcome(self.topic.topic)
        with _at(INGEST, outcome):
            outcome = replace(outcome, ingested=self._ingest())
        with _at(EVALUATE, outcome):
            require_usable(self.topic, self.platform, os.environ)
            plan = self._plan()
        if not (plan.due or plan.repairs or plan.reclaim.due or plan.reconcile.due):
            return replace(outcome, reason=NOTHING_DUE)
        run = Run(TopicTable.of(self.spark, self.topic, self.platform), self.platform)
        with _at(COMPACT, outcome):
            write_back(run.table, plan)
            outcome = replace(outcome, compacted=done(compact_round(run, plan)))
        with _at(RECONCILE, outcome):
            outcome = replace(outcome, reconciled=self._reconcile(run, plan))
        with _at(EXPIRE_TOMBSTONES, outcome):
            sweep = [p for p in plan.sweep if p not in outcome.held_back]
            expired = done(expire_round(run, self.request.now_ms, sweep, plan.fresh_from))
            outcome = replace(outcome, expired=expired)
            run.table.drop_stale_branches()
        with _at(RECLAIM, outcome):
            if plan.reclaim.due:
                outcome = replace(outcome, reclaimed=reclaim_topic(run.table, self.platform, self.request.now_ms))
        return replace(outcome, ok=all(result.ok for result in outcome.rounds.values()))

    def _ingest(self) -> Ingested | None:
        """Appends what is new at the topic's source; None where it has none that runs read."""
        source = self.topic.source
        if source.kafka is not None:
            read = read_topic(self.spark, self.topic, self.platform, self._client(), self.request.now_ms, silent)
            return _ingested(read)
        if not source.path:
            return None
        _, new = new_files(self.topic, self.platform)
        if not new:
            return Ingested(0)
        return _ingested(ingest_files(self.spark, self.topic, self.platform, new, source.encoding, silent))

    def _plan(self) -> RunPlan:
        request = self.request
        return evaluate_topic(
            self.topic,
            self.platform,
            now_ms=request.now_ms,
            force=request.force,
            partition=request.partition,
            reconcile=request.reconcile,
        )

    def _reconcile(self, run: Run, plan: RunPlan) -> RoundResult | None:
        if not plan.reconcile.due:
            return None
        return done(reconcile_round(run, SourceTopic.of(self.topic, self._client()), self.request.now_ms))

    def _client(self) -> Settings:
        if self.client is None:
            raise CleantailError(f"topic {self.topic.topic}: the settings of its Kafka client were not handed on")
        return self.client


@contextmanager
def _at(station: str, outcome: TopicOutcome) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise StationError(outcome, station) from error


def _ingested(result: IngestResult | KafkaIngestResult) -> Ingested:
    return Ingested(result.records, result.warnings)
