"""Lineage of the stations: the datasets that a task, or a station of a group's pack, has read and written.

Airflow's provider for OpenLineage calls an operator's methods in a forked process, which it ends after some seconds.
Clients of stores do not work reliably in such a process. So the task itself reads the datasets from the catalog before
the fork, if the provider is installed and configured. An error never fails a task.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.lineage import (
    LineageDataset,
    StationFacts,
    StationLineage,
    evidence_dataset,
    lineage_of,
    recorded_checks,
    topic_datasets,
)
from cleantail.rounds.check_results import CheckResult
from cleantail.rounds.job_report import EndedJob
from cleantail.rounds.stations import (
    BY_NAME,
    CHECK_QUALITY,
    EVALUATE,
    INGEST,
    PUBLISH,
    Station,
    TopicOutcome,
    Writes,
)
from cleantail_airflow.kafka_connection import client_settings

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage


PROVIDER = "airflow.providers.openlineage"


class LineageOperator:
    lineage: StationLineage | None = None
    log: Any

    def keep_lineage(self, read: Callable[[], StationLineage | None]) -> None:
        """Call `read` now and keep its result for the end of the task."""
        if not is_wanted():
            return
        try:
            self.lineage = read()
        except Exception as error:  # lineage must not fail the task; messages of foreign errors may contain data
            why = error if isinstance(error, CleantailError) else type(error).__name__
            self.log.warning("this task reports no lineage: %s", why)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage:
        """Return the datasets of a task that succeeded or was skipped. The provider calls this method."""
        from cleantail_airflow.openlineage_facets import operator_lineage

        return operator_lineage(self.lineage or StationLineage())

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> OperatorLineage:
        """Return the datasets of a failed task. For example, a failed check has read datasets too."""
        return self.get_openlineage_facets_on_complete(task_instance)


def is_wanted() -> bool:
    """Return whether the provider is installed and configured to send events."""
    if importlib.util.find_spec(PROVIDER) is None:
        return False
    from airflow.providers.openlineage.conf import is_disabled

    return not is_disabled()


def lineage_of_evaluation(topic: Topic) -> StationLineage | None:
    """Return the dataset that `evaluate` has read: the metadata of the newest snapshot."""
    tables = topic_datasets(topic, None)
    read = (tables.table.snapshot_id,) if tables and tables.table.snapshot_id else ()
    return lineage_of(EVALUATE, tables, StationFacts(read)) if tables else None


def lineage_of_approval(topic: Topic, heads: Iterable[int]) -> StationLineage | None:
    """Return the datasets of an approval: the snapshots that the round has staged. A person only reads them."""
    tables = topic_datasets(topic, None)
    return lineage_of(EVALUATE, tables, StationFacts(tuple(heads))) if tables else None


def lineage_of_job(topic: Topic, ended: EndedJob, read: tuple[int, ...] = ()) -> StationLineage | None:
    """Return the datasets that a job has read and written. `read`: snapshots named by another task."""
    station, report = BY_NAME[ended.job], ended.report
    tables = topic_datasets(topic, evidence_dataset(topic.platform))
    if tables is None:
        return None
    heads = tuple(unit.head_snapshot_id for unit in report.units if unit.head_snapshot_id)
    written = {
        Writes.BRANCH: tables.branches.get(report.branch),
        Writes.MAIN: tables.table.snapshot_id,
        Writes.ROUND: report.snapshot_id,
    }.get(station.writes)
    facts = StationFacts(
        read=read or heads,
        written=written,
        commits=_commits(ended),
        records=report.records,
        checks=_checks(station, topic, report.round),
    )
    files = [Path(file.file) for file in report.files if not file.skipped]
    return lineage_of(station.name, tables, facts, _source(station, topic, files))


def lineage_of_pack(
    name: str, topic: Topic, outcome: TopicOutcome, evidence: LineageDataset | None
) -> StationLineage | None:
    """Return the datasets of one topic that a station of a group's pack has read and written."""
    tables = topic_datasets(topic, evidence)
    if tables is None:
        return None
    station = BY_NAME[name]
    result = outcome.compacted if name == CHECK_QUALITY else outcome.rounds.get(name)
    if name == PUBLISH:
        published = [round_ for round_ in outcome.rounds.values() if round_.published]
        written, commits = (published[-1].snapshot_id if published else None), bool(published)
    elif station.writes is Writes.MAIN:
        written, commits = tables.table.snapshot_id, True
    else:
        commits = station.writes is Writes.BRANCH or bool(result and result.published)
        written = result.snapshot_id if result and station.publishes else None
    records = outcome.ingested.records if name == INGEST and outcome.ingested else None
    checks = _checks(station, topic, result.round if result else None)
    facts = StationFacts((), written, commits, records, checks)
    return lineage_of(name, tables, facts, _source(station, topic, ()))


def _commits(ended: EndedJob) -> bool:
    report = ended.report
    if report.error or ended.is_empty:
        return False
    if ended.job == INGEST:
        return bool(report.records)
    return bool(report.published) if BY_NAME[ended.job].publishes else True


def _checks(station: Station, topic: Topic, round_id: str | None) -> tuple[CheckResult, ...]:
    if round_id is None or not station.checks:
        return ()
    return recorded_checks(topic, round_id, station.kind)


def _source(station: Station, topic: Topic, files: list[Path] | tuple[()]) -> tuple[LineageDataset, ...]:
    """Return the topic's source if the station reads it. `files`: those that it has read, empty if unknown."""
    from cleantail.intake import feed_of

    return feed_of(topic).datasets(topic, client_settings, files) if station.reads_source else ()
