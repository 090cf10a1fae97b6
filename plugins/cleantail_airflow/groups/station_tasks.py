"""The stations of a group's DAG, each for one pack: they show what the pack's application has reported of them.

A station is red where a topic failed in it, and names the topics. It starts no Spark: clearing it shows the same again,
and to have the work done anew `run_pack` is cleared.
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
from cleantail.lineage import StationLineage
from cleantail.rounds.pack_results import TopicOutcome
from cleantail_airflow.airflow_exceptions import AirflowFailException, AirflowSkipException
from cleantail_airflow.groups.group_plan import group_plan_of, planned_pack
from cleantail_airflow.groups.pack_report import BY_TASK, result_of_pack
from cleantail_airflow.outcomes.failures import Failure, RedCheck, noted
from cleantail_airflow.station_lineage import LineageOperator
from cleantail_airflow.task_ids import PUBLISH
from cleantail_airflow.tasks.assets import asset_of, extra_of
from cleantail_airflow.tasks.spark_job import platform_of

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
