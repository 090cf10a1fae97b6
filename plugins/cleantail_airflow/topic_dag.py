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
import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from airflow.sdk import DAG, Param, TaskGroup

from cleantail.config.run_schedule import topic_asset_uri
from cleantail.config.settings_in_force import Origin, Setting, settings_in_force
from cleantail.config.topic import Topic, dag_id_of
from cleantail.config.topic_group import TopicGroup
from cleantail.config.topic_source import HAND, SINK
from cleantail.human import one_line
from cleantail.rounds.stations import (
    ALERT_EARLY,
    APPROVE,
    APPROVE_EXPIRY,
    APPROVE_RECONCILE,
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
from cleantail_airflow.dag_defaults import FIRST_DAY, default_args
from cleantail_airflow.task_ids import ALERT, OUTCOME
from cleantail_airflow.tasks.alert_task import AlertOperator
from cleantail_airflow.tasks.approve_task import ApproveOperator
from cleantail_airflow.tasks.assets import schedule_of
from cleantail_airflow.tasks.evaluate_task import EvaluateOperator
from cleantail_airflow.tasks.run_params import PARAMS, RECONCILE_PARAM
from cleantail_airflow.tasks.spark_job import OutcomeOperator
from cleantail_airflow.tasks.spark_pool import POOL
from cleantail_airflow.tasks.spark_tasks import (
    CheckQualityOperator,
    CompactOperator,
    ConvertDeletesOperator,
    ExpireTombstonesOperator,
    IngestOperator,
    PublishOperator,
    ReclaimOperator,
    ReconcileOperator,
    RollbackOperator,
)


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
    with DAG(
        dag_id=dag_id_of(topic.topic, topic.platform.dag_prefix),
        description=one_line(topic.description) or f"Log compaction of {topic.table}",
        doc_md=f"{__doc__}\n\n{settings_section(topic)}",
        schedule=schedule_of(group or topic),
        start_date=FIRST_DAY,
        catchup=False,
        max_active_runs=1,
        tags=_tags(topic),
        params=_params(topic),
        default_args=default_args(group.owner if group else topic.owner, topic.platform),
    ) as dag:
        add_tasks(topic, str(topic.platform.config_dir))
    return dag


def _params(topic: Topic) -> dict[str, Param]:
    """Return the parameters of a topic's runs. Only a topic that is read from Kafka can be compared with its source."""
    described = PARAMS if topic.source.kafka is None else {**PARAMS, RECONCILE: RECONCILE_PARAM}
    return {name: Param(**values) for name, values in described.items()}


def _tags(topic: Topic) -> list[str]:
    policy = ",".join(sorted(topic.config.cleanup_policy))
    return ["cleantail", policy, topic.config.compaction_strategy]
