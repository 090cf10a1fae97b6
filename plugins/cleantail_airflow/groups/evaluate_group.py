"""The task `evaluate` of a group: decide from metadata which topics have work, and pack them. Starts no Spark."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from airflow.sdk import BaseOperator, Context

from cleantail.config.loading import find_group
from cleantail.config.platform import Platform
from cleantail.config.run_schedule import Schedule
from cleantail.config.topic import Topic
from cleantail.config.topic_group import TopicGroup
from cleantail.errors import CleantailError, ConfigError
from cleantail.human import be, counted
from cleantail.intake import Look, feed_of
from cleantail.kafka.broker_clients import SilentBrokers
from cleantail.lake.catalogs import kept_catalog
from cleantail.lake.evaluate import evaluate_topic
from cleantail.lake.foreign_errors import explained
from cleantail.lake.kept_facts import KeptFacts
from cleantail.log.topic_packs import DueTopic, pack_topics
from cleantail.rounds.run_plan import due_topic
from cleantail.rounds.stations import INGEST, RECONCILE, ROLLBACK
from cleantail_airflow.groups.group_plan import (
    GROUP_PLAN_JSON,
    PLANNED_PACK_JSON,
    Asked,
    GroupPlan,
    PlannedPack,
    left_since,
    remember,
    topics_of_group,
)
from cleantail_airflow.kafka_connection import client_settings
from cleantail_airflow.outcomes.failures import noted
from cleantail_airflow.task_ids import ALERT, OUTCOME, PLAN
from cleantail_airflow.tasks.evaluate_task import (
    clock_of_run,
    has_to_notify,
    set_return_value,
    skip,
    skip_all_after,
)
from cleantail_airflow.tasks.run_note import NOTE
from cleantail_airflow.tasks.spark_job import as_airflow, platform_of

CANNOT = "cannot be evaluated"


@dataclass(slots=True)
class Looked:
    """The results so far of an evaluation of a group's topics.

    `waiting`: topic -> time (Unix ms) since which runs have left it over.
    """

    topics: list[str] = field(default_factory=list)
    due: list[DueTopic] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    to_tell: list[str] = field(default_factory=list)
    new_input: bool = False
    reconcile: bool = False
    silent: SilentBrokers = field(default_factory=SilentBrokers)
    waiting: Mapping[str, int] = field(default_factory=dict)

    @property
    def not_due(self) -> dict[str, str]:
        skipped = {ROLLBACK: "the run was not triggered with rollback_to"}
        if not self.new_input:
            skipped[INGEST] = "no source has anything new"
        if not self.reconcile:
            skipped[RECONCILE] = "no topic has to be compared with its source"
        return skipped


class EvaluateGroupOperator(BaseOperator):
    """Evaluates the topics of a group one after the other, and packs those with work.

    Topics that cannot be evaluated appear in a separate pack and do not stop the others. If nothing is due, all later
    tasks are skipped without a process.
    """

    template_fields: Sequence[str] = ("group", "reason")
    overwrite_rtif_after_execution = True  # so that `reason` shows under Rendered Templates

    def __init__(self, *, group: str, config_dir: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.group = group
        self.config_dir = config_dir
        self.reason: str | None = None
        self.schedule: Schedule | None = None

    def execute(self, context: Context) -> NoReturn:
        with noted(context):
            self._evaluate(context)

    def _evaluate(self, context: Context) -> NoReturn:
        from cleantail_airflow.alerts.alerting import EVALUATED
        from cleantail_airflow.groups.alert_group import is_open
        from cleantail_airflow.outcomes.run_metrics import send_since_last_run

        asked = Asked.of(context)
        context["ti"].xcom_push(EVALUATED, int(time.time() * 1000))
        platform = platform_of(self.config_dir)
        group = find_group(self.group, Path(self.config_dir))
        self.schedule = group.schedule
        if asked.rollback_to:
            list(topics_of_group(self.group, self.config_dir, asked.topic))  # raises for a topic of another group
            self.reason = f"the run is a rollback of {asked.topic}: it does nothing else"
            skip_all_after(self, context, self.reason, {ROLLBACK, OUTCOME, ALERT})
        now_ms = clock_of_run(platform, asked.now_ms)
        looked = self._look(platform, asked, now_ms, context)
        send_since_last_run(looked.topics, context["ti"])
        plan = _plan(group, asked, now_ms, looked)
        self.reason = plan.reason
        self.log.info("%s", plan.reason)
        context["ti"].xcom_push(PLAN, GROUP_PLAN_JSON.plain(plan))
        if not plan.packs:
            if asked.partition is None and asked.now_ms is None:  # else other logs or later records may wait
                remember(self.group, (), looked.waiting, now_ms, asked.topic)
            context["ti"].xcom_push(NOTE, f"{plan.reason}. Skipped tasks had no work.")
            skip_all_after(self, context, plan.reason, {ALERT} if plan.to_tell or is_open(self.group) else ())
        set_return_value(context, [PLANNED_PACK_JSON.plain(pack) for pack in plan.packs])
        skip(context, looked.not_due)

    def _look(self, platform: Platform, asked: Asked, now_ms: int, context: Context) -> Looked:
        """Evaluate the topics one by one.

        Raises AirflowException if the catalog cannot be reached: that failure is not attributed to any topic.
        """
        try:
            kept_catalog(platform)
        except CleantailError as error:
            raise as_airflow(str(error), error.exit_code) from None
        looked, kept = Looked(waiting=left_since(self.group)), KeptFacts(platform)
        for name, topic in topics_of_group(self.group, self.config_dir, asked.topic):
            looked.topics.append(name)
            if isinstance(topic, ConfigError):
                looked.broken[name] = str(topic)
                continue
            try:
                self._look_at(topic, kept, asked, now_ms, context, looked)
            except Exception as error:
                looked.broken[name] = _told(error)
                self.log.error("%s %s: %s", name, CANNOT, looked.broken[name])
        return looked

    def _look_at(
        self, topic: Topic, kept: KeptFacts, asked: Asked, now_ms: int, context: Context, looked: Looked
    ) -> None:
        from cleantail_airflow.alerts.alerting import notify_missed_deadlines
        from cleantail_airflow.outcomes.run_metrics import send_plan

        look = Look(topic, client_settings, int(time.time() * 1000), kept, looked.silent)
        new = feed_of(topic).new_input(look)
        plan = evaluate_topic(
            topic,
            now_ms=now_ms,
            force=asked.force,
            partition=asked.partition,
            reconcile=asked.reconcile,
            kept=kept,
            unconverted=new.converts,  # until then the plan counts the records that equality deletes delete
        )
        send_plan(topic, plan)
        notify_missed_deadlines(topic, context, plan.logs, now_ms, self.schedule, new.converts)
        looked.new_input |= new.bytes is not None
        looked.reconcile |= plan.reconcile.due
        if (due := due_topic(plan, new, topic.config, looked.waiting.get(topic.topic), asked.force)) is not None:
            looked.due.append(due)
            self.log.info("%s: %s%s", topic.topic, plan.reason, "" if new.bytes is None else "; new records to ingest")
        elif has_to_notify(topic, plan, now_ms):
            looked.to_tell.append(topic.topic)


def _plan(group: TopicGroup, asked: Asked, now_ms: int, looked: Looked) -> GroupPlan:
    """Return the plan of the run. The most urgent pack is first, and the pack of broken topics is last."""
    packed = pack_topics(looked.due, group.limits)
    packs = [PlannedPack(pack.label, pack.topics, largest_bytes=pack.largest_bytes) for pack in packed.packs]
    reason = f"{counted(len(looked.topics), 'topic')} {be(len(looked.topics))} evaluated: {packed.reason}"
    if looked.broken:
        broken = f"{counted(len(looked.broken), 'topic')} {CANNOT}"
        packs.append(PlannedPack(broken, tuple(sorted(looked.broken)), looked.broken))
        reason = f"{reason}; {broken}"
    return GroupPlan(
        now_ms=now_ms,
        reason=reason,
        looked_at=len(looked.topics),
        force=asked.force,
        partition=asked.partition,
        reconcile=asked.reconcile,
        packs=tuple(packs),
        left_over=packed.left_over,
        to_tell=tuple(looked.to_tell),
        skipped=tuple(looked.not_due),
    )


def _told(error: Exception) -> str:
    """Return the text of an error.

    An unexpected error is named by its class only, because its message may contain record data.
    """
    told = error if isinstance(error, CleantailError) else explained(error)
    return f"a defect of Cleantail: {type(error).__name__}" if told is None else str(told)
