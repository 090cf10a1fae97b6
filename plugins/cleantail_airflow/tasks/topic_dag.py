"""Kafka's log compaction of one changelog topic, kept in an Iceberg table.

## What a run does, task by task
- `ingest` (topics with a `source.path`, `source.kafka` or `source.table`): appends new files, new records of Kafka up
  to the last stable offset, or the new snapshots of a sink's table. Each record is appended exactly once. Skipped if
  nothing is new.
- `convert_deletes` (tables that a sink fills): converts deletes by values, as sinks in upsert mode write them, into
  deletion vectors (position deletes in format version 2). Skipped if the table has none.
- `evaluate`: reads the table's metadata, without Spark, and decides which partitions are due. Its log shows the
  decision and the reason for each partition.
- `compact`, one Spark application per work unit: finds the superseded offsets and deletes them on a branch. Readers do
  not see the branch.
- `check_quality`: checks the branches by the built-in rules and by the topic's own `checks`. If no approval is needed,
  the same application also publishes, right after the check.
- `publish`: one commit on `main` with the deletes, checkpoints and horizons of the partitions that passed. If the
  evidence and the table show that `check_quality` has published, it starts no application. It updates the topic's
  asset, for DAGs that run after a compaction. Skipped if nothing was published.
- `reconcile` (topics with `source.kafka`): removes keys that are alive here and deleted in Kafka, in a round of its
  own. Skipped unless the run was triggered with `reconcile`, or `cleantail.reconcile` is `needed` and the broker may
  have removed tombstones before they were read.
- `expire_tombstones`: deletes tombstones past their horizon, in a round of its own.
- `approve`, and `approve_expiry` with `publish_expiry` for tombstones, and `approve_reconcile` with
  `publish_reconcile` for keys deleted in Kafka (topics with `publish: approve` or `cleantail.max.drop.ratio`): a round
  that needs approval waits here. The waiting task uses no process and no slot.
- `reclaim`: rewrites files with many deleted records, merges small files, expires snapshots, removes orphans.
- `rollback`: runs only if the run was triggered with `rollback_to`. All other tasks are skipped then.
- `outcome`: fails the run if a task failed. Skipped otherwise.
- `alert`: notifies the channels of the topic's `alerts` when an incident begins or ends, each once. Three tasks send
  their alerts earlier: `check_quality` if a check fails, `evaluate` if a deadline is missed, `approve` if a round waits
  or is answered. If a round may wait for approval, `alert_early` sends the other alerts before the wait.

The grid shows the tasks in three groups; click a group to open it: `round` (compact to publish), `upkeep` (keys deleted
in Kafka, tombstones, space) and `when_needed` (rollback, outcome, alert). Ids of tasks do not contain the group.

A skipped task had no work: `evaluate` skips it without a process. If nothing is due, the run succeeds with a note, and
all later tasks are skipped, except `alert` if an alert is due. The reason is in the log of `evaluate`, in its Rendered
Templates (`reason`), and in the XCom `skipped` of each skipped task.

## When a task is red
- `ingest`: a line of a file is not a record, or names another topic (`source.topic`). Nothing of the run was appended.
  The log names file and line: correct or remove the file, then clear the task. From Kafka: the message names the
  problem of the topic (it is missing, access is denied, it was recreated, records were deleted before they were read, a
  partition does not answer). Nothing of the current portion was appended. Brokers that do not answer are tried again.
  From a table: the message names the snapshot that removed records or is gone, or the column, partition and offset of
  an invalid record.
- `convert_deletes`: the deletes cannot be read, or Spark finds other records deleted. The message names the file.
  Nothing was changed. Or other writers changed the table at every try: clear the task.
- `evaluate`: catalog or table cannot be used. Nothing was changed. The log names which; clear the task when it can be
  reached again.
- `compact`: the Spark application failed. `main` is unchanged. If the message names bad input, correct that. Otherwise
  clear the task: it repeats safely.
- `check_quality`: the partitions in the message are blocked, and nothing of them is on `main`. The others are
  published. The message lists partition, expectation, counts and offsets; the topic's page shows the records. The
  blocked round stays on a branch `failed_…`, which the tab Compaction and `cleantail status` name. Correct the data or
  the check. The partition is tried again after a pause, at the next run after **Release** on the tab Compaction, or at
  once by **Trigger** with `force`.
- `publish`: other writers rewrote the same files at every try. Nothing is lost: the next run does the round again. Or
  an approved round cannot be published as it was shown: nothing was published, and the next run asks again. Or the
  round has no valid approval, or an XCom contradicts the evidence: the message names which, and what to clear.
- `reconcile`: as `check_quality`, for keys deleted in Kafka. Or the table cannot be compared with its topic, for
  example because the topic has `delete` in its cleanup.policy. The message names the reason, and nothing was removed.
- `expire_tombstones`: as `check_quality`, for the removal of tombstones.
- `rollback`: nothing was undone, and the message names the reason. For example, a snapshot has expired, or the user is
  not an approver of a topic with `publish: approve`.
- `reclaim`: files could not be rewritten. The data is correct, but the space is not free yet: clear the task.
- `alert`, `alert_early`: the channel in the message was not reached. Check its Airflow connection. The next run sends
  the alert.

A task that stays *scheduled* waits for a slot of the pool `cleantail_spark` (Admin → Pools). The pool allows as many
Spark applications at once, over all topics, as `log.cleaner.threads` in `config/defaults.yaml`.

## A round waits for approval
Open **Browse → Required Actions**, or the tab of the task `approve`. It shows the deadline, the reason, the counts by
partition, and links to page and Data Docs. It also shows a sample of the records that would be removed, each with the
offset that replaces it. **Approve** publishes exactly what was shown; records appended since then are untouched.
**Reject**, or no answer in time, drops the round; the partitions rest for `cleantail.approval.pause.ms` or until they
are released. The topic's next runs wait for the answer; other topics do not. If no approval is needed, the task is
skipped, never green.

## By hand
**Trigger** takes `force` (ignore the dirty ratio, never the bounds), `partition` (only this one), `now_ms` (another
clock, in trials), for a topic with `source.kafka` also `reconcile` (compare with Kafka), and `rollback_to` (undo:
`last` is the state before the last published round; records appended since then stay; the next run compacts again, so
correct the YAML first). A run that is triggered with any other name ends at its first task. Only the command line
undoes the ingestion of a wrong file. The same code without Airflow:

```
cleantail status TOPIC                 # log state by partition
cleantail plan TOPIC                   # what a run would do now, and why; changes nothing
cleantail compact TOPIC --force        # the whole round
cleantail reconcile TOPIC --dry-run    # keys that are alive here and deleted in Kafka
cleantail release TOPIC PARTITION      # unblock it
cleantail rollback TOPIC --dry-run     # what undoing the last round would do
cleantail rollback TOPIC --ingestion FILE --dry-run  # what undoing an ingestion would do
cleantail read TOPIC --partition 0     # records in offset order
cleantail check-config                 # after every change of YAML
```

Semantics: [Kafka's log compaction](https://kafka.apache.org/documentation/#compaction),
[topic configs](https://kafka.apache.org/documentation/#topicconfigs),
[KIP-280](https://cwiki.apache.org/confluence/display/KAFKA/KIP-280%3A+Enhanced+log+compaction).
The architecture and all settings are in the repository's docs/.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from airflow.sdk import DAG, Context, Param, TaskGroup

from cleantail.config.run_schedule import topic_asset_uri
from cleantail.config.settings_in_force import Origin, Setting, settings_in_force
from cleantail.config.topic import Topic, dag_id_of
from cleantail.config.topic_group import TopicGroup
from cleantail.config.topic_source import HAND, SINK
from cleantail.errors import CleantailError, HeldError
from cleantail.human import one_line
from cleantail.lake.recorded_rounds import recorded_publication
from cleantail.rounds.approval import require_approver
from cleantail.rounds.checked_round import CHECK_REQUEST_JSON, EXPIRY_REQUEST_JSON, CheckRequest, RoundResult
from cleantail.rounds.job_report import EndedJob, JobReport
from cleantail.rounds.recorded_checks import REFERENCE_JSON
from cleantail.rounds.run_plan import NewInput
from cleantail.rounds.stations import (
    ALERT_EARLY,
    APPROVE,
    APPROVE_EXPIRY,
    APPROVE_RECONCILE,
    BY_NAME,
    CHECK_QUALITY,
    COMPACT,
    CONVERT_DELETES,
    EVALUATE,
    EXPIRE_TOMBSTONES,
    INGEST,
    PUBLISH,
    PUBLISH_EXPIRY,
    PUBLISH_RECONCILE,
    RECLAIM,
    RECONCILE,
    ROLLBACK,
    in_order,
)
from cleantail_airflow.airflow_exceptions import AirflowException, AirflowFailException
from cleantail_airflow.dag_defaults import ALERT, FIRST_DAY, OUTCOME, default_args
from cleantail_airflow.kafka_connection import client_settings
from cleantail_airflow.outcomes.failures import failures_of
from cleantail_airflow.outcomes.run_xcoms import checked_by, plan_of, report_of
from cleantail_airflow.tasks.alert_task import AlertOperator
from cleantail_airflow.tasks.approve_task import ApproveOperator
from cleantail_airflow.tasks.assets import announce, asset_of, schedule_of
from cleantail_airflow.tasks.evaluate_task import EvaluateOperator
from cleantail_airflow.tasks.run_params import PARAMS, RECONCILE_PARAM, ROLLBACK_TO, require_known_params
from cleantail_airflow.tasks.spark_job import CleantailSparkOperator, OutcomeOperator, exception_for, loaded_topic
from cleantail_airflow.tasks.spark_pool import POOL

IS_ROLLBACK = "the run is a rollback"
NOTHING_PUBLISHED = "nothing was published, so the topic's asset is not updated"


class IngestOperator(CleantailSparkOperator):
    """Appends new records of the topic's source. Skipped, without Spark, if nothing is new."""

    job = INGEST

    def new_input(self, context: Context) -> NewInput:
        from cleantail.intake import Poll, feed_of

        require_known_params(context)
        if context["params"].get(ROLLBACK_TO):
            self.skip(IS_ROLLBACK)
        topic = loaded_topic(self.topic, self.config_dir)
        try:
            new = feed_of(topic).new_input(Poll(topic, client_settings, int(time.time() * 1000)))
        except CleantailError as e:
            raise exception_for(str(e), e.exit_code) from None
        if new.bytes is None:
            self.skip(new.nothing)
        return new

    def arguments(self, context: Context) -> list[str]:
        new = self.new_input(context)
        client = self.client_arguments(json.dumps(dict(new.client))) if new.client else []
        return [*(argument for file in new.files for argument in ("--file", str(file))), *client]


class ConvertDeletesOperator(IngestOperator):
    """Converts the equality deletes of an adopted table into deletes of one data file each, which a round can read.

    A sink in upsert mode keeps writing equality deletes. The task is skipped, without Spark, if the table has none.
    """

    job = CONVERT_DELETES

    def arguments(self, context: Context) -> list[str]:
        self.new_input(context)
        return []


class CompactOperator(CleantailSparkOperator):
    """Compacts one work unit on a branch of its own.

    `unit` is a WorkUnit of the plan (cleantail.log.work_units) as JSON, without data of records.
    """

    job = COMPACT
    template_fields: Sequence[str] = (*CleantailSparkOperator.template_fields, "unit")

    def __init__(self, *, unit: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.unit = unit

    @property
    def partitions(self) -> str:
        numbers = ", ".join(str(work["partition"]) for work in self.unit["partitions"])
        return f"partitions {numbers}"

    def arguments(self, context: Context) -> list[str]:
        return ["--unit", json.dumps(self.unit)]

    def snapshots_read(self, context: Context) -> tuple[int, ...]:
        return (int(self.unit["base_snapshot_id"]),)


class CheckQualityOperator(CleantailSparkOperator):
    """Checks the branches of all units. Failed partitions fail the task; the others are published anyway.

    `publishes`: its application also publishes what passed, unless the round waits for approval. The task `publish`
    then shows the result from the evidence and the table.
    """

    job = CHECK_QUALITY

    def __init__(self, *, publishes: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.publishes = publishes

    def arguments(self, context: Context) -> list[str]:
        plan = self.due_plan(context)
        results = context["ti"].xcom_pull(task_ids=COMPACT, map_indexes=range(len(plan.units)))
        reports = (report_of(EndedJob(COMPACT, result)) for result in results if result)
        request = CheckRequest(plan.round, tuple(report.branch for report in reports if report.branch))
        publish = ["--publish"] if self.publishes else []
        return ["--round", CHECK_REQUEST_JSON.text(request), "--now", str(plan.now_ms), *publish]


class PublishingOperator(CleantailSparkOperator):
    """Base of the tasks that update the topic's asset, which starts the DAGs that wait for it.

    If nothing was published, the task is skipped, and its result is still an XCom.
    """

    def __init__(self, *, topic: str, **kwargs: Any) -> None:
        super().__init__(topic=topic, outlets=[asset_of(topic)], **kwargs)
        self.operation = BY_NAME[self.job].kind

    def ended(self, context: Context, ended: EndedJob, report: JobReport) -> None:
        if not report.published:
            context["ti"].xcom_push("return_value", ended.xcom)
            self.skip(NOTHING_PUBLISHED)
        announce(context, self.topic, self.operation, report)


class PublishOperator(PublishingOperator):
    """Publishes the partitions of a round that passed, also if others failed.

    `source` is the id of the task that has checked the round. `after_publishing_check`: its application may have
    published the round already. Then this task shows that and starts no application.

    The XCom of `source` names the round. The job reads what passed from the evidence, and a person's answer from the
    answers next to the table.
    """

    job = PUBLISH

    def __init__(self, *, source: str = CHECK_QUALITY, after_publishing_check: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.source = source
        self.after_publishing_check = after_publishing_check
        self.operation = BY_NAME[source].kind

    def done_before(self, context: Context) -> RoundResult | None:
        if not self.after_publishing_check:
            return None
        topic = loaded_topic(self.topic, self.config_dir)
        run, heads = context["ti"], self.snapshots_read(context)
        return recorded_publication(topic, run.dag_id, run.run_id, heads)

    def arguments(self, context: Context) -> list[str]:
        plan, checked = plan_of(context), checked_by(context, self.source)
        if not (plan and checked):
            self.skip(f"{self.source} reported no verdict, so nothing is published")
        return [
            "--kind",
            self.operation,
            "--round",
            REFERENCE_JSON.text(checked.reference(plan.round)),
            "--now",
            str(plan.now_ms),
        ]

    def snapshots_read(self, context: Context) -> tuple[int, ...]:
        checked = checked_by(context, self.source)
        return tuple(unit.head_snapshot_id for unit in checked.units) if checked else ()

    def failed(self, context: Context, ended: EndedJob, report: JobReport, error: AirflowException) -> None:
        """Raise only for partitions that the check did not report as red.

        If a round was repeated, it was checked again. Partitions that failed only then are this task's failure.
        """
        new = tuple(verdict for verdict in report.verdicts if verdict.partition not in report.red_before)
        if report.error or ended.is_empty:
            super().failed(context, ended, report, error)
        elif failures_of(self.topic, new):
            super().failed(context, ended, replace(report, verdicts=new), error)
        else:
            self.log.info("published partitions %s, blocked %s", [*report.published], [*report.held_back])


class ReconcileOperator(PublishingOperator):
    """Compares the table with its topic in Kafka, and removes the keys that were deleted there, in a round of its own.

    The task first reads from the brokers, without Spark, whether the comparison is allowed.
    """

    job = RECONCILE

    def arguments(self, context: Context) -> list[str]:
        from cleantail.kafka.source_topic import SourceTopic
        from cleantail.kafka.table_position import table_position

        self.due_plan(context)
        topic = loaded_topic(self.topic, self.config_dir)
        try:
            settings = client_settings(topic)
            SourceTopic.of(topic, settings).require_comparable(table_position(topic).position)
        except CleantailError as e:
            raise exception_for(str(e), e.exit_code) from None
        return self.client_arguments(json.dumps(dict(settings)))


class ExpireTombstonesOperator(PublishingOperator):
    """Removes tombstones past their horizon: its job makes, checks and publishes a round of its own."""

    job = EXPIRE_TOMBSTONES

    def arguments(self, context: Context) -> list[str]:
        plan = self.due_plan(context)
        assert plan.sweep is not None, "the station is idle without it"
        return ["--round", EXPIRY_REQUEST_JSON.text(plan.sweep), "--now", str(plan.now_ms)]


class RollbackOperator(PublishingOperator):
    """Undoes rounds if the run was triggered with `rollback_to`. All other tasks of such a run are skipped.

    With `publish: approve` only an approver of the topic may trigger such a run.
    """

    job = ROLLBACK

    def arguments(self, context: Context) -> list[str]:
        to = context["params"].get(ROLLBACK_TO)
        if not to:
            self.skip("the run was not triggered with rollback_to")
        run: Any = context["dag_run"]
        user = getattr(run, "triggering_user_name", None)
        topic = loaded_topic(self.topic, self.config_dir)
        try:
            require_approver(topic, "a rollback", user)
        except HeldError as error:
            raise AirflowFailException(f"{error}. One of them has to trigger the run") from None
        by = user or run.run_id
        # an earlier try may have undone the rounds: with the time of the request the job undoes no further round
        requested = [f"--asked-ms={int(run.run_after.timestamp() * 1000)}"] if run.run_after else []
        return ["--to", to, f"--by={by}", f"--request={run.run_id}", *requested]


class ReclaimOperator(CleantailSparkOperator):
    """Rewrites files whose records are mostly deleted, expires snapshots, removes orphans."""

    job = RECLAIM

    def arguments(self, context: Context) -> list[str]:
        return ["--now", str(self.due_plan(context).now_ms)]


@dataclass(frozen=True, slots=True)
class TasksOf:
    """Makes the tasks of the stations for one topic. A station that the topic does not need has none."""

    topic: Topic
    config_dir: str

    @property
    def of_topic(self) -> dict[str, Any]:
        """Return the arguments of every operator except those that wait for a person."""
        return {"topic": self.topic.topic, "config_dir": self.config_dir}

    @property
    def on_spark(self) -> dict[str, Any]:
        """Return the arguments of the operators that start Spark: they take a slot of the pool."""
        return {**self.of_topic, "pool": POOL}

    def ingest(self) -> list[Any]:
        return [] if self.topic.fed_by in (SINK, HAND) else [IngestOperator(task_id=INGEST, **self.on_spark)]

    def convert_deletes(self) -> list[Any]:
        """Return the task if a sink fills the topic's table."""
        if self.topic.columns is None:
            return []
        return [ConvertDeletesOperator(task_id=CONVERT_DELETES, trigger_rule="none_failed", **self.on_spark)]

    def evaluate(self) -> list[Any]:
        return [EvaluateOperator(task_id=EVALUATE, trigger_rule="none_failed", **self.of_topic)]

    def compact(self, evaluate: EvaluateOperator) -> list[Any]:
        """Return the task, mapped over the work units that `evaluate` returns."""
        compact = CompactOperator.partial(task_id=COMPACT, map_index_template="{{ task.partitions }}", **self.on_spark)
        return [compact.expand(unit=evaluate.output)]

    def check_quality(self) -> list[Any]:
        """Return the check. If rounds may wait, `approve` follows, which is skipped if no approval is needed."""
        may_wait = self.topic.waits_for_people
        check = CheckQualityOperator(task_id=CHECK_QUALITY, publishes=not may_wait, **self.on_spark)
        if not may_wait:
            return [check]
        early: dict[str, Any] = {"trigger_rule": "one_done", "retries": 0, "early": True}
        alert = AlertOperator(task_id=ALERT_EARLY, **early, **self.of_topic)
        return [check, alert, self._approve(APPROVE, CHECK_QUALITY, "one_done")]

    def publish(self) -> list[Any]:
        """Return the task. It also runs after a red check (one_done), and after a skipped approval (all_done)."""
        if self.topic.waits_for_people:
            return [PublishOperator(task_id=PUBLISH, trigger_rule="all_done", **self.on_spark)]
        by_check: dict[str, Any] = {"trigger_rule": "one_done", "after_publishing_check": True}
        return [PublishOperator(task_id=PUBLISH, **by_check, **self.on_spark)]

    def reconcile(self) -> list[Any]:
        if self.topic.source.kafka is None:
            return []
        reconcile = ReconcileOperator(task_id=RECONCILE, trigger_rule="all_done", **self.on_spark)
        return [reconcile, *self._approval(RECONCILE, APPROVE_RECONCILE, PUBLISH_RECONCILE)]

    def expire_tombstones(self) -> list[Any]:
        """Return the tasks, which also run after failed ones.

        If rounds may wait, `expire_tombstones` is skipped if it published nothing, for example while it waits.
        """
        expire = ExpireTombstonesOperator(task_id=EXPIRE_TOMBSTONES, trigger_rule="all_done", **self.on_spark)
        return [expire, *self._approval(EXPIRE_TOMBSTONES, APPROVE_EXPIRY, PUBLISH_EXPIRY)]

    def reclaim(self) -> list[Any]:
        return [ReclaimOperator(task_id=RECLAIM, trigger_rule="all_done", **self.on_spark)]

    def _approval(self, source: str, approve: str, publish: str) -> list[Any]:
        """Return the tasks that wait for an answer and publish, if rounds may wait."""
        if not self.topic.waits_for_people:
            return []
        publishing = PublishOperator(task_id=publish, source=source, trigger_rule="one_done", **self.on_spark)
        return [self._approve(approve, source, "all_done"), publishing]

    def _approve(self, task_id: str, source: str, trigger_rule: str) -> ApproveOperator:
        rule: dict[str, Any] = {"trigger_rule": trigger_rule}
        return ApproveOperator(task_id=task_id, source=source, topic=self.topic, config_dir=self.config_dir, **rule)


UPKEEP = (RECONCILE, EXPIRE_TOMBSTONES, RECLAIM)
BOXES: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys((COMPACT, CHECK_QUALITY, PUBLISH), ("round", "A round: compact, check, publish")),
    **dict.fromkeys(UPKEEP, ("upkeep", "Upkeep: keys deleted at the source, expired tombstones, space")),
}
"""Station -> the group of tasks in the grid that has it, and its tooltip."""


def add_tasks(topic: Topic, config_dir: str) -> None:
    """Add the tasks to the current DAG: those of the stations in a chain, then those of `when_needed`."""
    make, made = TasksOf(topic, config_dir), dict[str, list[Any]]()
    of_stations: dict[str, Callable[[], list[Any]]] = {
        INGEST: make.ingest,
        CONVERT_DELETES: make.convert_deletes,
        EVALUATE: make.evaluate,
        COMPACT: lambda: make.compact(made[EVALUATE][0]),
        CHECK_QUALITY: make.check_quality,
        PUBLISH: make.publish,
        RECONCILE: make.reconcile,
        EXPIRE_TOMBSTONES: make.expire_tombstones,
        RECLAIM: make.reclaim,
    }
    for box, stations in itertools.groupby(in_order(of_stations), lambda item: BOXES.get(item[0])):
        with _group(*box) if box else nullcontext():
            for station, tasks_of in stations:
                made[station] = tasks_of()
    chain = [task for tasks in made.values() for task in tasks]
    for before, after in itertools.pairwise(chain):
        before >> after
    # evaluate may skip a task of the upkeep before the stations ahead of it have ended
    late = [made[station] for station in (PUBLISH, *UPKEEP) if made[station]]
    for number, earlier in enumerate(late):
        for later in late[number + 2 :]:
            earlier[-1] >> later[0]
    with _group("when_needed", "Only on request or if needed: rollback, a failed outcome, alerts"):
        rollback = RollbackOperator(task_id=ROLLBACK, **make.on_spark)
        outcome = OutcomeOperator(task_id=OUTCOME, trigger_rule="one_failed", retries=0)
        alert = AlertOperator(task_id=ALERT, trigger_rule="all_done", **make.of_topic)
    made[EVALUATE][0] >> rollback
    [*chain, rollback] >> outcome
    [*chain, rollback] >> alert


def _group(name: str, tooltip: str) -> TaskGroup:
    """Make a group of tasks in the grid. The names of the tasks do not contain the group."""
    return TaskGroup(group_id=name, tooltip=tooltip, prefix_group_id=False)


HEAD = ("| setting | value | from |", "|---|---|---|")


def settings_section(topic: Topic) -> str:
    """Return the table of settings. What the topic's own YAML sets is bold (cleantail.config.settings_in_force)."""
    title = f"## Settings of {topic.topic}"
    asset = f"Its asset is {code_span(topic_asset_uri(topic.topic))}."
    return "\n".join([title, asset, "", *HEAD, *map(_row, settings_in_force(topic))])


def _row(setting: Setting) -> str:
    name = f"**{setting.name}**" if setting.origin is Origin.TOPIC else setting.name
    equivalent = f" = {setting.readable}" if setting.readable else ""
    return f"| {name} | {code_span(setting.shown)}{equivalent} | {setting.origin.value} |"


def code_span(text: str) -> str:
    """Return text that Markdown shows unchanged, also in a table: a backtick does not end the code, nor a bar the
    cell."""
    line = one_line(text)
    fence = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    pad = " " if line[:1] == "`" or line[-1:] == "`" else ""
    return f"{fence}{pad}{line}{pad}{fence}".replace("|", "\\|")


def topic_dag(topic: Topic, group: TopicGroup | None = None) -> DAG:
    """Make the DAG of one topic. Equal YAML makes an equal DAG, so that Airflow keeps one version of it.

    `group`: the group whose schedule it follows, for a topic of a group that has a DAG of its own.
    """
    # only a topic that is read from Kafka can be compared with its source
    described = PARAMS if topic.source.kafka is None else {**PARAMS, RECONCILE: RECONCILE_PARAM}
    with DAG(
        dag_id=dag_id_of(topic.topic, topic.platform.dag_prefix),
        description=one_line(topic.description) or f"Log compaction of {topic.table}",
        doc_md=f"{__doc__}\n\n{settings_section(topic)}",
        schedule=schedule_of(group or topic),
        start_date=FIRST_DAY,
        catchup=False,
        max_active_runs=1,
        tags=_tags(topic),
        params={name: Param(**values) for name, values in described.items()},
        default_args=default_args(group.owner if group else topic.owner, topic.platform),
    ) as dag:
        add_tasks(topic, str(topic.platform.config_dir))
    return dag


def _tags(topic: Topic) -> list[str]:
    policy = ",".join(sorted(topic.config.cleanup_policy))
    return ["cleantail", policy, topic.config.compaction_strategy]
