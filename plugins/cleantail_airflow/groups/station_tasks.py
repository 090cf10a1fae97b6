"""The stations of a group's DAG, each for one pack: show the results that the pack's application has reported.

A station starts no Spark. It fails if a topic failed in it, and names the topics. A station that is cleared shows
the same result again; to repeat the work, clear `run_pack`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, AssetAlias, BaseOperator, Context

from cleantail.config.loading import find_topics
from cleantail.config.run_schedule import ASSET_SCHEME
from cleantail.config.topic import Topic
from cleantail.human import counted
from cleantail.lineage import StationLineage, evidence_dataset
from cleantail.rounds.checked_round import RoundResult
from cleantail.rounds.job_report import EndedJob, JobReport
from cleantail.rounds.pack_results import PACK_RESULT_JSON, PackResult
from cleantail.rounds.stations import (
    BY_NAME,
    RUN_PACK,
    SHOWN,
    Station,
    TopicOutcome,
)
from cleantail_airflow.airflow_exceptions import AirflowFailException, AirflowSkipException
from cleantail_airflow.alerts.alerting import notify_failed_checks
from cleantail_airflow.groups.group_plan import TOPIC, group_plan_of, planned_pack, topics_of_group
from cleantail_airflow.outcomes.failures import Failure, RedCheck, failures_of, noting, warnings_of
from cleantail_airflow.outcomes.run_xcoms import parsed
from cleantail_airflow.station_lineage import LineageOperator, lineage_of_pack
from cleantail_airflow.tasks.assets import asset_of, extra_of
from cleantail_airflow.tasks.run_params import ROLLBACK_TO
from cleantail_airflow.tasks.spark_job import platform_of
from cleantail_airflow.tasks.topic_dag import NOTHING_PUBLISHED, RollbackOperator


def _checked_in(station: Station, outcome: TopicOutcome) -> list[RoundResult]:
    """Return those rounds of the topic whose checks this station shows."""
    return [r for name, r in outcome.rounds.items() if station.checks and BY_NAME[name].kind == station.kind]


def red_in(station: Station, outcome: TopicOutcome) -> list[Failure]:
    """Return the expectations that blocked logs of the topic, in the rounds whose checks the station shows."""
    rounds = _checked_in(station, outcome)
    return [failure for result in rounds for failure in failures_of(outcome.topic, result.verdicts, result.heads)]


def error_lines(station: Station, result: PackResult) -> list[str]:
    """Return a line for each topic whose work ended with an error that the station shows."""
    return [
        f"{outcome.topic}: {outcome.error}"
        for outcome in result.topics
        if outcome.error and outcome.station in station.errors_of
    ]


def failed_in(station: Station, result: PackResult) -> list[str]:
    """Return a line for each topic that failed at the station, and for each expectation that failed there."""
    red = (failure for outcome in result.topics for failure in red_in(station, outcome))
    return [*error_lines(station, result), *map(str, red)]


def pack_result(result: Mapping[str, Any]) -> PackResult:
    """Parse the XCom of `run_pack`. Raises AirflowFailException for an XCom that `run_pack` cannot have written."""
    return parsed(PACK_RESULT_JSON, dict(result), f"the XCom of {RUN_PACK}")


class GroupRollbackOperator(RollbackOperator):
    """The rollback of the topic that the run's parameter `topic` names."""

    def __init__(self, *, group: str, config_dir: str, **kwargs: Any) -> None:
        super().__init__(topic=group, config_dir=config_dir, **kwargs)
        self.outlets = [alias_of(group)]
        self.group = group
        self.application_args = [self.job, "--config", config_dir]

    def arguments(self, context: Context) -> list[str]:
        self.topic = str(context["params"][TOPIC] or "")
        if context["params"][ROLLBACK_TO]:
            list(topics_of_group(self.group, self.config_dir, self.topic))  # raises for a topic of another group
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
        self.station = SHOWN[self.task_id.rpartition(".")[2]]

    @property
    def label(self) -> str:
        return str(self.pack["label"])

    @noting
    def execute(self, context: Context) -> None:
        self._show(context)

    def _show(self, context: Context) -> None:
        ti = context["ti"]
        xcom = ti.xcom_pull(task_ids=RUN_PACK, map_indexes=ti.map_index)
        if not xcom or planned_pack(self.pack).errors:
            raise AirflowSkipException(NO_RESULT)
        result = pack_result(xcom)
        # 1. Show what the station did, topic by topic.
        shown = [(outcome, line) for outcome in result.topics if (line := self.station.line(outcome))]
        for outcome, line in shown:
            self.log.info("%s: %s", outcome.topic, line)
            for warning in (text for r in _checked_in(self.station, outcome) for text in warnings_of(outcome.topic, r)):
                self.log.warning("%s", warning)
        outcomes = [outcome for outcome, _ in shown]
        self.keep_lineage(lambda: self._lineage_of(outcomes))
        self.show_more(outcomes, context)
        # 2. Report the topics that failed in it.
        red = {outcome.topic: failures for outcome in result.topics if (failures := red_in(self.station, outcome))}
        errors = error_lines(self.station, result)
        if red:
            self._notify_of_red(red, context)
            raise RedCheck(self.group, [failure for failures in red.values() for failure in failures], errors)
        if errors:
            raise AirflowFailException("\n".join([f"{counted(len(errors), 'topic')} failed", *errors]))
        if not shown:
            raise AirflowSkipException(f"no topic of the pack had work at the station {self.station.name}")

    def show_more(self, outcomes: Sequence[TopicOutcome], context: Context) -> None:
        """Do the station's work in addition to showing results. Only `publish` has such work."""

    def _lineage_of(self, outcomes: Sequence[TopicOutcome]) -> StationLineage:
        platform = platform_of(self.config_dir)
        found = find_topics([outcome.topic for outcome in outcomes], Path(self.config_dir))
        evidence, lineage = evidence_dataset(platform), StationLineage()
        for outcome in outcomes:
            topic = found[outcome.topic]
            if isinstance(topic, Topic):  # its YAML may be broken by now
                lineage += lineage_of_pack(self.station.name, topic, outcome, evidence) or StationLineage()
        return lineage

    def _notify_of_red(self, red: dict[str, list[Failure]], context: Context) -> None:
        """Notify the channels of each topic at once, as the check of a topic's own DAG does."""
        plan = group_plan_of(context)
        now_ms = plan.now_ms if plan else int(time.time() * 1000)
        found = find_topics(list(red), platform_of(self.config_dir).config_dir)
        for name, failures in red.items():
            topic = found[name]
            if isinstance(topic, Topic):  # a YAML that is broken by now names no channels
                notify_failed_checks(topic, context, failures, now_ms)


class PublishStationOperator(StationOperator):
    """Shows what was published, and updates the assets of these topics, which starts DAGs that wait for them.

    After the task was cleared, it does not repeat the events of its earlier try.
    """

    def __init__(self, *, group: str, **kwargs: Any) -> None:
        alias = alias_of(group)
        super().__init__(group=group, outlets=[alias], inlets=[alias], **kwargs)

    def show_more(self, outcomes: Sequence[TopicOutcome], context: Context) -> None:
        # 1. the keys of this run's earlier events
        past: Any = context["inlet_events"][alias_of(self.group)]
        run: Any = context["dag_run"]
        if hasattr(past, "after"):  # the oldest supported Airflow returns all events
            past = past.after(run.run_after.isoformat())
        announced = {_named_by(event.extra) for event in past if event.source_run_id == run.run_id}
        # 2. one event for each table that changed since
        events = context["outlet_events"][alias_of(self.group)]
        for outcome in outcomes:
            asset: Asset = asset_of(outcome.topic)
            for name, result in outcome.rounds.items():
                extra = extra_of(outcome.topic, BY_NAME[name].kind, result)
                if result.published and _named_by(extra) not in announced:
                    events.add(asset, extra=extra)


def _named_by(extra: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the key of a published round's event: topic, operation and snapshot."""
    return tuple(str(extra.get(name)) for name in ("topic", "operation", "snapshot_id"))


def alias_of(group: str) -> AssetAlias:
    """Return the alias of the assets that a run of the group may update."""
    return AssetAlias(name=f"{ASSET_SCHEME}-group://{group}")
