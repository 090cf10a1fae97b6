"""The stations of a group's DAG, each for one pack: they show what the pack's application has reported of them.

A station is red where a topic failed in it, and names the topics. It starts no Spark: clearing it shows the same again,
and to have the work done anew `run_pack` is cleared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, AssetAlias, BaseOperator, Context

from cleantail.config.loading import find_topics
from cleantail.config.run_schedule import ASSET_SCHEME
from cleantail.config.topic import Topic
from cleantail.human import counted
from cleantail.lineage import StationLineage
from cleantail.rounds import pack_results
from cleantail.rounds.checked_round import RoundResult
from cleantail.rounds.pack_results import PACK_RESULT_JSON, PackResult, TopicOutcome
from cleantail.watch.job_results import EndedJob
from cleantail_airflow.airflow_exceptions import AirflowFailException, AirflowSkipException
from cleantail_airflow.groups.group_plan import TOPIC, group_plan_of, parsed, planned_pack, topics_of_group
from cleantail_airflow.outcomes.failures import Failure, RedCheck, failures_of, noted
from cleantail_airflow.outcomes.run_xcoms import JobReport
from cleantail_airflow.station_lineage import LineageOperator
from cleantail_airflow.task_ids import (
    CHECK_QUALITY,
    COMPACT,
    EXPIRE_TOMBSTONES,
    INGEST,
    PUBLISH,
    RECLAIM,
    RECONCILE,
    RUN_PACK,
)
from cleantail_airflow.tasks.assets import asset_of, extra_of
from cleantail_airflow.tasks.run_params import ROLLBACK_TO
from cleantail_airflow.tasks.spark_job import platform_of
from cleantail_airflow.tasks.spark_tasks import NOTHING_PUBLISHED, RollbackOperator

Line = Callable[[TopicOutcome], str]


@dataclass(frozen=True, slots=True)
class Station:
    """Describes a task that shows a part of what became of a pack. `errors_of`: where a topic's work may have ended in
    it; `checks`: whose red logs it shows, by the rounds; `line`: what it says of a topic, empty where that had nothing.
    """

    task_id: str
    line: Line
    errors_of: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()

    def errors(self, result: PackResult) -> list[TopicOutcome]:
        """Returns the topics whose work ended at this station."""
        return [outcome for outcome in result.topics if outcome.error and outcome.station in self.errors_of]

    def red(self, outcome: TopicOutcome) -> list[Failure]:
        """Returns the expectations that held logs of the topic back, in the rounds of this station."""
        rounds = [result for name, result in outcome.rounds.items() if name in self.checks]
        return [failure for result in rounds for failure in failures_of(outcome.topic, result.verdicts, result.heads)]

    def error_lines(self, result: PackResult) -> list[str]:
        """Returns a line for each topic whose work ended at this station."""
        return [f"{outcome.topic}: {outcome.error}" for outcome in self.errors(result)]

    def failed(self, result: PackResult) -> list[str]:
        """Returns what failed at this station, a line for each topic and each expectation."""
        return [
            *self.error_lines(result),
            *(str(failure) for outcome in result.topics for failure in self.red(outcome)),
        ]


def _ingested(outcome: TopicOutcome) -> str:
    if outcome.ingested is None or not (outcome.ingested.records or outcome.ingested.warnings):
        return ""
    return "; ".join([f"{counted(outcome.ingested.records, 'record')} appended", *outcome.ingested.warnings])


def _compacted(outcome: TopicOutcome) -> str:
    result = outcome.compacted
    return f"round {result.round} of {_logs(result)}" if result else ""


def _checked(outcome: TopicOutcome) -> str:
    result = outcome.compacted
    if not result:
        return ""
    return f"{result.checks_passed} of {counted(result.checks_total, 'check')} passed{_held_back(result)}"


def _published(outcome: TopicOutcome) -> str:
    parts = [f"{name}: {_named(result.published)}" for name, result in outcome.rounds.items() if result.published]
    return "; ".join(parts)


def _expired(outcome: TopicOutcome) -> str:
    result = outcome.expired
    if not result:
        return ""
    return f"{counted(result.expired, 'tombstone')} expired{_held_back(result)}"


def _reconciled(outcome: TopicOutcome) -> str:
    return f"compared with its source: {_logs(outcome.reconciled)}" if outcome.reconciled else ""


def _reclaimed(outcome: TopicOutcome) -> str:
    if outcome.reclaimed is None:
        return ""
    done = [f"{name.replace('_', ' ')} {count}" for name, count in outcome.reclaimed.counts.items() if count]
    return ", ".join(done) or "nothing to reclaim after all"


STATIONS = (
    Station(INGEST, _ingested, (pack_results.INGEST,)),
    Station(COMPACT, _compacted, (pack_results.EVALUATE, pack_results.COMPACT)),
    Station(CHECK_QUALITY, _checked, checks=(pack_results.COMPACT,)),
    Station(PUBLISH, _published),
    Station(RECONCILE, _reconciled, (pack_results.RECONCILE,), (pack_results.RECONCILE,)),
    Station(EXPIRE_TOMBSTONES, _expired, (pack_results.EXPIRE_TOMBSTONES,), (pack_results.EXPIRE_TOMBSTONES,)),
    Station(RECLAIM, _reclaimed, (pack_results.RECLAIM,)),
)
"""In the order in which a topic goes through them."""
BY_TASK: Mapping[str, Station] = {station.task_id: station for station in STATIONS}


def pack_result(result: Mapping[str, Any]) -> PackResult:
    """Parses the XCom of `run_pack`. Raises AirflowFailException for one that it cannot have written."""
    return parsed(PACK_RESULT_JSON, dict(result), f"the XCom of {RUN_PACK}")


def reported_pack(ended: EndedJob) -> PackResult | None:
    """Parses what the application of a pack has left; None where it did not come to a result."""
    return pack_result(ended.xcom) if "topics" in ended.xcom else None


def result_of_pack(context: Context) -> PackResult | None:
    """Returns what became of the pack of this task's own map index, None where its application left nothing."""
    ti = context["ti"]
    result = ti.xcom_pull(task_ids=RUN_PACK, map_indexes=ti.map_index)
    return pack_result(result) if result else None


def results_of_packs(context: Context, packs: int) -> list[PackResult | None]:
    """Returns what became of each pack of the run, by its number."""
    results = context["ti"].xcom_pull(task_ids=RUN_PACK, map_indexes=range(packs))
    return [pack_result(result) if result else None for result in results]


def _held_back(result: RoundResult) -> str:
    return f"; blocked: {_named(result.held_back)}" if result.held_back else ""


def _logs(result: RoundResult | None) -> str:
    if result is None:
        return ""
    return f"partitions {_named({*result.published, *result.held_back, *(v.partition for v in result.verdicts)})}"


def _named(partitions: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "none"


class GroupRollbackOperator(RollbackOperator):
    """Is the rollback of a topic's own DAG, for the topic that the run's parameter names."""

    def __init__(self, *, group: str, config_dir: str, **kwargs: Any) -> None:
        super().__init__(topic=group, config_dir=config_dir, **kwargs)
        self.outlets = [alias_of(group)]
        self.group = group
        self.application_args = [self.job, "--config", config_dir]

    def arguments(self, context: Context) -> list[str]:
        self.topic = str(context["params"][TOPIC] or "")
        if context["params"][ROLLBACK_TO]:
            list(topics_of_group(self.group, self.config_dir, self.topic))  # raises where it is another group's
        return ["--topic", self.topic, *super().arguments(context)]

    def ended(self, context: Context, ended: EndedJob, report: JobReport) -> None:
        if not report.published:
            context["ti"].xcom_push("return_value", ended.xcom)
            self.skip(NOTHING_PUBLISHED)
        extra = extra_of(self.topic, self.operation, report)
        context["outlet_events"][alias_of(self.group)].add(asset_of(self.topic), extra=extra)


NO_RESULT = "the application of the pack left no result"


class StationOperator(LineageOperator, BaseOperator):
    """Shows one station of one pack. `pack` is a PlannedPack as JSON."""

    template_fields: Sequence[str] = ("pack",)

    def __init__(self, *, group: str, config_dir: str, pack: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.group = group
        self.config_dir = config_dir
        self.pack = pack
        self.station = BY_TASK[self.task_id.rpartition(".")[2]]

    @property
    def label(self) -> str:
        """Returns the label that the UI shows for this instance of the mapped task."""
        return str(self.pack["label"])

    def execute(self, context: Context) -> None:
        with noted(context):
            self._show(context)

    def _show(self, context: Context) -> None:
        result = result_of_pack(context)
        if result is None or planned_pack(self.pack).errors:
            raise AirflowSkipException(NO_RESULT)
        # 1. what the station did, topic by topic
        shown = [(outcome, line) for outcome in result.topics if (line := self.station.line(outcome))]
        for outcome, line in shown:
            self.log.info("%s: %s", outcome.topic, line)
        outcomes = [outcome for outcome, _ in shown]
        self.keep_lineage(lambda: self._told(outcomes))
        self.show_more(outcomes, context)
        # 2. the topics that failed in it
        red = {outcome.topic: failures for outcome in result.topics if (failures := self.station.red(outcome))}
        errors = self.station.error_lines(result)
        if red:
            self._tell_of_red(red, context)
            raise RedCheck(self.group, [failure for failures in red.values() for failure in failures], errors)
        if errors:
            raise AirflowFailException("\n".join([f"{counted(len(errors), 'topic')} failed", *errors]))
        if not shown:
            raise AirflowSkipException(f"no topic of the pack had work at the station {self.station.task_id}")

    def show_more(self, outcomes: Sequence[TopicOutcome], context: Context) -> None:
        """Does what a station does besides showing; nothing but of `publish`."""

    def _told(self, outcomes: Sequence[TopicOutcome]) -> StationLineage:
        """Returns what the station has read and written, of all these topics."""
        from cleantail.lineage import told_evidence
        from cleantail_airflow.station_lineage import done_by_pack

        platform = platform_of(self.config_dir)
        found = find_topics([outcome.topic for outcome in outcomes], Path(self.config_dir))
        evidence, lineage = told_evidence(platform), StationLineage()
        for outcome in outcomes:
            topic = found[outcome.topic]
            if isinstance(topic, Topic):  # not where its YAML was broken meanwhile
                told = done_by_pack(self.station.task_id, topic, outcome, evidence)
                lineage += told or StationLineage()
        return lineage

    def _tell_of_red(self, red: dict[str, list[Failure]], context: Context) -> None:
        """Tells the channels of each topic at once, as the check of a topic's own DAG does."""
        from cleantail_airflow.alerts.alerting import tell_of_red

        plan = group_plan_of(context)
        now_ms = plan.now_ms if plan else int(time.time() * 1000)
        found = find_topics(list(red), platform_of(self.config_dir).config_dir)
        for name, failures in red.items():
            topic = found[name]
            if isinstance(topic, Topic):  # of a YAML that was broken meanwhile nobody knows the channels
                tell_of_red(topic, context, failures, now_ms)


class PublishStationOperator(StationOperator):
    """Shows what was published, and updates the assets of these topics: DAGs that wait for them run. What an earlier
    try of the task has told, before it was cleared, it does not tell again; Airflow has the events."""

    def __init__(self, *, group: str, **kwargs: Any) -> None:
        alias = alias_of(group)
        super().__init__(group=group, outlets=[alias], inlets=[alias], **kwargs)

    def show_more(self, outcomes: Sequence[TopicOutcome], context: Context) -> None:
        events, told = context["outlet_events"][alias_of(self.group)], self._told_before(context)
        for outcome in outcomes:
            asset: Asset = asset_of(outcome.topic)
            for operation, result in outcome.rounds.items():
                extra = extra_of(outcome.topic, OPERATIONS.get(operation, operation), result)
                if result.published and _named_by(extra) not in told:
                    events.add(asset, extra=extra)

    def _told_before(self, context: Context) -> set[tuple[str, ...]]:
        """Returns what the events of this run were about."""
        past: Any = context["inlet_events"][alias_of(self.group)]
        run: Any = context["dag_run"]
        if hasattr(past, "after"):  # the oldest Airflow that we know gives all events alone
            past = past.after(run.run_after.isoformat())
        return {_named_by(event.extra) for event in past if event.source_run_id == run.run_id}


def _named_by(extra: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns by what the event of a published round is known: its commit."""
    return tuple(str(extra.get(name)) for name in ("topic", "operation", "snapshot_id"))


OPERATIONS = {"expire_tombstones": "expire"}
"""Station -> what its round is called in the event of an asset, where that is another word."""


def alias_of(group: str) -> AssetAlias:
    """Returns what stands for the assets of whichever topics of the group a run has published."""
    return AssetAlias(name=f"{ASSET_SCHEME}-group://{group}")


def station_class(task_id: str) -> type[StationOperator]:
    """Returns the operator that shows a station."""
    return PublishStationOperator if task_id == PUBLISH else StationOperator
