"""Kafka's log compaction of a group of topics, each kept in an Iceberg table of its own.

## What a run does, task by task
- `evaluate`: reads, without Spark, what is new at each topic's source, which partitions are due, and why. Topics with
  work are packed by bytes and count, the most urgent first. Topics that cannot be evaluated appear in a separate pack,
  *cannot be evaluated*, and do not stop the others.
- `run_pack`, one Spark application per pack: does all due work of its topics: ingest, compact, check, publish,
  reconcile, expire tombstones, reclaim. If a topic fails, its work ends and the next topic begins. After a crash the
  task is tried again. It does not repeat published rounds.
- `ingest`, `compact`, `check_quality`, `publish`, `reconcile`, `expire_tombstones`, `reclaim`: show, pack by pack,
  what happened to the topics at this station. The log has a line for each topic. A station with nothing to do is
  skipped. `publish` updates the assets of the topics that it names, for DAGs that run after a compaction.
- `rollback`: runs only if the run was triggered with `topic` and `rollback_to`. All other tasks are skipped then.
- `outcome`: fails the run if a task failed. Skipped otherwise.
- `alert`: notifies the channels of each topic's `alerts` when an incident begins or ends, each once. It also records
  which topics are left to the next run.

If nothing is due, the run succeeds with a note, and all tasks after `evaluate` are skipped.

If rounds of a topic may wait for approval (`publish: approve`, `cleantail.max.drop.ratio`), the topic has a separate
DAG with the group's schedule. So the group's other topics do not wait.

## When a task is red
- `evaluate`: the catalog cannot be used. Nothing was changed.
- `run_pack`: in the pack *cannot be evaluated*, the message names topics, files and keys: correct the YAML. Otherwise
  the application crashed, or another writer caused a conflict: the task is tried again automatically. Or a topic failed
  at a station that `evaluate` had skipped: the message names topic and station.
- A station: its message names the topics and the error of each, as in a topic's own DAG. All other topics of the pack
  are done. Correct the data, the check or the YAML; the next run does the topic's work. To repeat it at once, clear
  `run_pack` with its downstream tasks. If you clear only a station, it shows the same result again.
- A failed check blocks its partition. To release the partition, use **Release** on the topic's page.
- `alert`: the channel in the message was not reached. Check its Airflow connection. The next run sends the alert.

## Limits
`limits:` of the group's YAML set the size of a pack, the number of packs of a run, and how long a run starts new packs.
`log.cleaner.threads` of defaults.yaml sets how many packs run at once. Topics that a run did not reach come first in
the next run. The event `deadline_missed` is sent if `max.compaction.lag.ms` has passed.

## By hand
**Trigger** takes `topic` (only this one), `force`, `partition`, `now_ms`, `reconcile` and `rollback_to`, as a topic's
own DAG does. On the command line each topic has the usual commands: `cleantail plan TOPIC`."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from airflow.sdk import DAG, BaseOperator, Context, Param, TaskGroup, task_group

from cleantail.codec import digest_of
from cleantail.config.loading import find_group, find_topics
from cleantail.config.platform import Platform
from cleantail.config.run_schedule import Schedule
from cleantail.config.topic import Topic, dag_id_of
from cleantail.config.topic_group import TopicGroup
from cleantail.errors import CleantailError, ConfigError
from cleantail.home.home_folder import append_line
from cleantail.human import be, counted, duration, one_line
from cleantail.intake import Poll, feed_of
from cleantail.kafka.broker_clients import SilentBrokers
from cleantail.kafka.client_settings import CLIENTS_JSON
from cleantail.lake.catalogs import kept_catalog
from cleantail.lake.evaluate import evaluate_topic
from cleantail.lake.facts_cache import FactsCache
from cleantail.lake.foreign_errors import explained
from cleantail.log.topic_packs import DueTopic, pack_topics
from cleantail.rounds.job_report import EndedJob
from cleantail.rounds.pack_results import PACK_REQUEST_JSON, PACK_RESULT_JSON, PackResult, read_outcomes
from cleantail.rounds.run_plan import due_topic
from cleantail.rounds.stations import (
    EVALUATE,
    INGEST,
    PUBLISH,
    RECONCILE,
    ROLLBACK,
    RUN_PACK,
    SHOWN,
    TOPIC_OUTCOME_JSON,
    TopicOutcome,
)
from cleantail_airflow.airflow_exceptions import AirflowException, AirflowFailException
from cleantail_airflow.alerts.alerting import EVALUATED
from cleantail_airflow.dag_defaults import ALERT, FIRST_DAY, OUTCOME, PLAN, default_args
from cleantail_airflow.groups.alert_group import AlertGroupOperator
from cleantail_airflow.groups.group_plan import (
    GROUP_PARAMS,
    GROUP_PLAN_JSON,
    PLANNED_PACK_JSON,
    GroupPlan,
    GroupRunParams,
    PlannedPack,
    group_plan_of,
    left_since,
    planned_pack,
    remember,
    topics_of_group,
)
from cleantail_airflow.groups.station_tasks import (
    GroupRollbackOperator,
    PublishStationOperator,
    StationOperator,
    failed_in,
    pack_result,
)
from cleantail_airflow.kafka_connection import client_settings
from cleantail_airflow.outcomes.failures import cause_of_crash, noting
from cleantail_airflow.outcomes.run_xcoms import report_of
from cleantail_airflow.tasks.assets import schedule_of
from cleantail_airflow.tasks.evaluate_task import (
    clock_of_run,
    has_to_notify,
    set_return_value,
    skip,
    skip_all_after,
)
from cleantail_airflow.tasks.run_note import NOTE
from cleantail_airflow.tasks.spark_job import NO_PLAN, OutcomeOperator, SparkJobOperator, exception_for, platform_of
from cleantail_airflow.tasks.spark_pool import POOL

CANNOT = "cannot be evaluated"


@dataclass(slots=True)
class Evaluation:
    """The results so far of an evaluation of a group's topics.

    `waiting`: topic -> time (Unix ms) since which runs have left it over.
    """

    topics: list[str] = field(default_factory=list)
    due: list[DueTopic] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    to_report: list[str] = field(default_factory=list)
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

    @noting
    def execute(self, context: Context) -> NoReturn:
        from cleantail_airflow.alerts.alerting import EVALUATED
        from cleantail_airflow.groups.alert_group import is_open
        from cleantail_airflow.outcomes.run_metrics import send_since_last_run

        requested = GroupRunParams.of(context)
        context["ti"].xcom_push(EVALUATED, int(time.time() * 1000))
        platform = platform_of(self.config_dir)
        group = find_group(self.group, Path(self.config_dir))
        self.schedule = group.schedule
        if requested.rollback_to:
            list(topics_of_group(self.group, self.config_dir, requested.topic))  # raises for a topic of another group
            self.reason = f"the run is a rollback of {requested.topic}: it does nothing else"
            skip_all_after(self, context, self.reason, {ROLLBACK, OUTCOME, ALERT})
        now_ms = clock_of_run(platform, requested.now_ms)
        evaluation = self._evaluate_topics(platform, requested, now_ms, context)
        send_since_last_run(evaluation.topics, context["ti"])
        plan = _plan(group, requested, now_ms, evaluation)
        self.reason = plan.reason
        self.log.info("%s", plan.reason)
        context["ti"].xcom_push(PLAN, GROUP_PLAN_JSON.plain(plan))
        if not plan.packs:
            if requested.partition is None and requested.now_ms is None:  # else other logs or later records may wait
                remember(self.group, (), evaluation.waiting, now_ms, requested.topic)
            context["ti"].xcom_push(NOTE, f"{plan.reason}. Skipped tasks had no work.")
            skip_all_after(self, context, plan.reason, {ALERT} if plan.to_report or is_open(self.group) else ())
        set_return_value(context, [PLANNED_PACK_JSON.plain(pack) for pack in plan.packs])
        skip(context, evaluation.not_due)

    def _evaluate_topics(
        self, platform: Platform, requested: GroupRunParams, now_ms: int, context: Context
    ) -> Evaluation:
        """Evaluate the topics one by one.

        Raises AirflowException if the catalog cannot be reached: that failure is not attributed to any topic.
        """
        try:
            kept_catalog(platform)
        except CleantailError as error:
            raise exception_for(str(error), error.exit_code) from None
        evaluation, kept = Evaluation(waiting=left_since(self.group)), FactsCache(platform)
        for name, topic in topics_of_group(self.group, self.config_dir, requested.topic):
            evaluation.topics.append(name)
            if isinstance(topic, ConfigError):
                evaluation.broken[name] = str(topic)
                continue
            try:
                self._evaluate_topic(topic, kept, requested, now_ms, context, evaluation)
            except Exception as error:
                known = error if isinstance(error, CleantailError) else explained(error)
                # the message of an unexpected error may contain record data
                text = f"a defect of Cleantail: {type(error).__name__}" if known is None else str(known)
                evaluation.broken[name] = text
                self.log.error("%s %s: %s", name, CANNOT, evaluation.broken[name])
        return evaluation

    def _evaluate_topic(
        self,
        topic: Topic,
        kept: FactsCache,
        requested: GroupRunParams,
        now_ms: int,
        context: Context,
        evaluation: Evaluation,
    ) -> None:
        from cleantail_airflow.alerts.alerting import notify_missed_deadlines
        from cleantail_airflow.outcomes.run_metrics import send_plan

        poll = Poll(topic, client_settings, int(time.time() * 1000), kept, evaluation.silent)
        new = feed_of(topic).new_input(poll)
        plan = evaluate_topic(
            topic,
            now_ms=now_ms,
            force=requested.force,
            partition=requested.partition,
            reconcile=requested.reconcile,
            kept=kept,
            unconverted=new.converts,  # until then the plan counts the records that equality deletes delete
        )
        send_plan(topic, plan)
        notify_missed_deadlines(topic, context, plan.logs, now_ms, self.schedule, new.converts)
        evaluation.new_input |= new.bytes is not None
        evaluation.reconcile |= plan.reconcile.due
        if (
            due := due_topic(plan, new, topic.config, evaluation.waiting.get(topic.topic), requested.force)
        ) is not None:
            evaluation.due.append(due)
            self.log.info("%s: %s%s", topic.topic, plan.reason, "" if new.bytes is None else "; new records to ingest")
        elif has_to_notify(topic, plan, now_ms):
            evaluation.to_report.append(topic.topic)


def _plan(group: TopicGroup, requested: GroupRunParams, now_ms: int, evaluation: Evaluation) -> GroupPlan:
    """Return the plan of the run. The most urgent pack is first, and the pack of broken topics is last."""
    packed = pack_topics(evaluation.due, group.limits)
    packs = [PlannedPack(pack.label, pack.topics, largest_bytes=pack.largest_bytes) for pack in packed.packs]
    reason = f"{counted(len(evaluation.topics), 'topic')} {be(len(evaluation.topics))} evaluated: {packed.reason}"
    if evaluation.broken:
        broken = f"{counted(len(evaluation.broken), 'topic')} {CANNOT}"
        packs.append(PlannedPack(broken, tuple(sorted(evaluation.broken)), evaluation.broken))
        reason = f"{reason}; {broken}"
    return GroupPlan(
        now_ms=now_ms,
        reason=reason,
        evaluated=len(evaluation.topics),
        force=requested.force,
        partition=requested.partition,
        reconcile=requested.reconcile,
        packs=tuple(packs),
        left_over=packed.left_over,
        to_report=tuple(evaluation.to_report),
        skipped=tuple(evaluation.not_due),
    )


OUTCOMES = "packs"
"""Folder in CLEANTAIL_HOME with a file for each running pack: the outcomes of its topics so far."""

RECORD_BYTES = 64
"""Lower bound of a record's size in a small topic, in data files and in files of lines."""


class RunPackOperator(SparkJobOperator):
    """Runs one pack. `pack` is a PlannedPack as JSON. The stations after it report the failures of topics.

    This task fails if the application crashed, or if a topic's work may be tried again. It also fails if a topic
    failed at a station that `evaluate` has skipped, because that station cannot report it.
    """

    job = RUN_PACK
    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "pack")

    def __init__(self, *, group: str, config_dir: str, pack: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(config_dir=config_dir, of=group, **kwargs)
        self.group = group
        self.pack = pack
        self.outcomes = ""
        self.result: PackResult | None = None

    @property
    def label(self) -> str:
        return str(self.pack["label"])

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # the base returns nothing
        super().execute(context)
        assert self.result is not None, "received() stores the result or raises"
        return dict(PACK_RESULT_JSON.plain(self.result.in_short()))

    def arguments(self, context: Context) -> list[str]:
        plan, pack = group_plan_of(context), planned_pack(self.pack)
        if pack.errors:
            raise AirflowFailException("\n".join(f"{topic}: {error}" for topic, error in sorted(pack.errors.items())))
        if plan is None:
            self.skip(NO_PLAN)
        self._require_time_left(context)
        pack = self._still_of_group(pack)
        self.outcomes = f"{OUTCOMES}/{_name_of(context)}.jsonl"
        request = plan.request(pack, self.outcomes)
        return ["--request", PACK_REQUEST_JSON.text(request), *self._settings_of_clients(pack)]

    def records(self, context: Context) -> int | None:
        """Return the maximum number of records of the largest topic, or None if unknown.

        Each topic has its own Spark plans, so the largest decides whether generated code pays off.
        """
        largest_bytes = planned_pack(self.pack).largest_bytes
        return None if largest_bytes is None else largest_bytes // RECORD_BYTES

    def _still_of_group(self, pack: PlannedPack) -> PlannedPack:
        """Return the pack without topics that the group does not run: they may have moved, or the XCom was forged.

        Skips the task if no topic is left.
        """
        named = {name for name, _ in topics_of_group(self.group, self.config_dir)}
        topics = tuple(topic for topic in pack.topics if topic in named)
        if others := [topic for topic in pack.topics if topic not in named]:
            self.log.warning("no longer in the group %s, and left out: %s", self.group, ", ".join(others))
        if not topics:
            self.skip(f"no topic of the pack is still in the group {self.group}")
        return replace(pack, topics=topics)

    def _require_time_left(self, context: Context) -> None:
        """Skip the pack if the run has taken longer than `run.max.ms`. Its topics are first in the next run."""
        ti: Any = context["ti"]
        if ti.try_number > 1:  # a pack that crashed is finished: a skip would hide the crash
            return
        limit_ms = find_group(self.group, Path(self.config_dir)).limits.run_max_ms
        run: Any = context["dag_run"]
        if run.start_date and time.time() * 1000 - run.start_date.timestamp() * 1000 > limit_ms:
            self.skip(f"the run takes longer than run.max.ms ({duration(limit_ms)}): the next run does this pack")

    def _settings_of_clients(self, pack: PlannedPack) -> list[str]:
        """Return the job's arguments with the Kafka settings of the pack's topics.

        A topic with invalid settings is left out. Its station reports the error.
        """
        found = find_topics(pack.topics, Path(self.config_dir))
        settings: dict[str, Mapping[str, str]] = {}
        for name, topic in found.items():
            if isinstance(topic, Topic) and topic.source.kafka is not None:
                with suppress(CleantailError):
                    settings[name] = client_settings(topic)
        return self.client_arguments(CLIENTS_JSON.text(settings)) if settings else []

    def received(self, context: Context, ended: EndedJob, error: AirflowException | None) -> None:
        """Raise if the application crashed, if a topic may be tried again, or if a skipped station failed.

        The result is pushed as an XCom before that.
        """
        self.result = report = pack_result(ended.xcom) if "topics" in ended.xcom else None
        if report is None:
            self._push_outcomes_before_crash(context)
            if text := report_of(ended).error:
                raise exception_for(text, self.exit_code) from None
            raise AirflowException(f"{self.job} crashed: {cause_of_crash(str(error))}") from None
        self._send_metrics(report.topics)
        again = [f"{o.topic}: {o.station} failed: {o.error}" for o in report.topics if o.may_retry]
        plan = group_plan_of(context)
        skipped = [station for station in SHOWN.values() if plan and station.name in plan.skipped]
        unshown = [f"{station.name} failed: {line}" for station in skipped for line in failed_in(station, report)]
        if again or unshown:
            context["ti"].xcom_push("return_value", PACK_RESULT_JSON.plain(report.in_short()))
        if again:
            lines = [f"{counted(len(again), 'topic')} to try again", *again, *unshown]
            raise AirflowException("\n".join(lines)) from None
        if unshown:
            raise AirflowFailException("\n".join(["evaluate had found no work there", *unshown])) from None
        self.log.info("%s", report.reason)

    def _push_outcomes_before_crash(self, context: Context) -> None:
        """Push the outcomes of the topics that were done before the crash, if this worker has their file."""
        kept = read_outcomes(platform_of(self.config_dir).home, self.outcomes)
        topics = [kept[topic] for topic in planned_pack(self.pack).topics if topic in kept]
        if topics:
            self._send_metrics(topics)
            context["ti"].xcom_push("return_value", PACK_RESULT_JSON.plain(PackResult.of(topics).in_short()))

    def _send_metrics(self, topics: Sequence[TopicOutcome]) -> None:
        """Send the outcomes that no earlier try has sent, and store what was sent below CLEANTAIL_HOME.

        If that file cannot be written, the task continues, and the next try sends the metrics again.
        """
        from cleantail_airflow.outcomes.run_metrics import send_outcome

        home, kept = platform_of(self.config_dir).home, self.outcomes.replace(".jsonl", ".sent.jsonl")
        sent = read_outcomes(home, kept)
        new = [outcome for outcome in topics if outcome != sent.get(outcome.topic)]
        if not new:
            return
        for outcome in new:
            send_outcome(outcome, sent.get(outcome.topic))
        try:
            append_line(home, kept, "\n".join(map(TOPIC_OUTCOME_JSON.text, new)))
        except CleantailError as error:
            self.log.warning("sent metrics cannot be stored, and may be sent again: %s", error)


def _name_of(context: Context) -> str:
    """Return the name of the pack's file, the same in each try of the task.

    It changes if `evaluate` was cleared, because the pack of this number may then have other topics.
    """
    ti = context["ti"]
    evaluated_ms = ti.xcom_pull(task_ids=EVALUATE, key=EVALUATED)
    return digest_of([ti.dag_id, ti.run_id, ti.map_index, evaluated_ms])


LABEL = "{{ task.label }}"


def add_group_tasks(group: str, config_dir: str) -> None:
    of_group: dict[str, Any] = {"group": group, "config_dir": config_dir}
    evaluate = EvaluateGroupOperator(task_id=EVALUATE, **of_group)

    @task_group(group_id="pack", prefix_group_id=False, tooltip="One pack of topics: its work, and its stations")
    def stations(pack: dict[str, Any]) -> None:
        run_pack = RunPackOperator(task_id=RUN_PACK, pack=pack, pool=POOL, map_index_template=LABEL, **of_group)
        for name in SHOWN:
            kind = PublishStationOperator if name == PUBLISH else StationOperator
            run_pack >> kind(
                task_id=name,
                pack=pack,
                trigger_rule="all_done",
                retries=0,
                map_index_template=LABEL,
                **of_group,
            )

    packs: Any = stations.expand(pack=evaluate.output)
    with TaskGroup(group_id="when_needed", tooltip="Only on request or if needed", prefix_group_id=False):
        rollback = GroupRollbackOperator(task_id=ROLLBACK, pool=POOL, **of_group)
        outcome = OutcomeOperator(task_id=OUTCOME, trigger_rule="one_failed", retries=0)
        alert = AlertGroupOperator(task_id=ALERT, trigger_rule="all_done", **of_group)
    evaluate >> rollback
    # each station is upstream: if the application of a pack crashed, its stations are skipped
    of_packs = list(packs.children.values())
    [evaluate, *of_packs, rollback] >> outcome
    [evaluate, *of_packs, rollback] >> alert


NAMED = 200
"""Maximum number of topics that the DAG's docs name."""


def group_dag(group: TopicGroup, topics: Sequence[Topic], platform: Platform) -> DAG:
    """Make the DAG of one group. `topics`: those that it runs, for its docs only; the tasks read them again.

    The docs name the topics and a digest of their settings, so that Airflow's version of the DAG changes with them.
    """
    with DAG(
        dag_id=dag_id_of(group.group, platform.dag_prefix),
        description=one_line(group.description) or f"Log compaction of the topics of {group.group}",
        doc_md=f"{__doc__}\n{_topics_section(group, topics)}",
        schedule=schedule_of(group),
        start_date=FIRST_DAY,
        catchup=False,
        max_active_runs=1,
        tags=["cleantail", "group"],
        params={name: Param(**values) for name, values in GROUP_PARAMS.items()},
        default_args=default_args(group.owner, platform),
    ) as dag:
        add_group_tasks(group.group, str(platform.config_dir))
    return dag


def _topics_section(group: TopicGroup, topics: Sequence[Topic]) -> str:
    """Return the topics' names and the digest of all their settings. Equal YAML makes an equal text."""
    settings = sorted(topic.model_dump_json() for topic in topics)
    digest = hashlib.sha256("\n".join(settings).encode()).hexdigest()[:16]
    names = [f"- {topic.topic}" for topic in sorted(topics, key=lambda topic: topic.topic)[:NAMED]]
    more = [f"- and {counted(len(topics) - NAMED, 'more topic')}"] if len(topics) > NAMED else []
    title = f"## Topics of {group.group}"
    return "\n".join([title, f"{counted(len(topics), 'topic')}, settings `{digest}`.", "", *names, *more])
