"""Kafka's log compaction of one changelog topic that is kept in an Iceberg table.

## What a run does, task by task
- `ingest` (only where the topic has a `source.path`, `source.kafka` or `source.table`): appends the files that the
  table does not have yet, reads every partition in Kafka on to its last stable offset, or reads what the snapshots of a
  sink's table have brought; each record exactly once. Skipped where nothing is new.
- `convert_deletes` (only where a sink fills the topic's table): turns deletes by values of columns, as sinks in upsert
  mode write them, into deletion vectors (position deletes in format version 2). Skipped where there are none.
- `evaluate`: reads the table's metadata, without Spark: which partitions are due, and why. Its log shows the decision
  for each of them.
- `compact`, one Spark application per work unit: finds the superseded offsets and deletes them on a branch, of which
  readers see nothing.
- `check_quality`: checks the branches by the built-in rules and by the topic's own `checks`. Where nobody has to
  approve the topic's rounds, its application makes the commit of `publish` as well, right after the check.
- `publish`: one commit on `main` with deletes, checkpoints and horizons of the partitions that passed. It asks evidence
  and table what became of the round, and starts an application of its own only where they do not say. Updates the
  topic's asset, for DAGs that run after a compaction; skipped where nothing was published.
- `reconcile` (only of a topic with `source.kafka`): removes keys that are alive here and gone in Kafka, through a
  branch and checks of its own. Skipped unless the run was triggered with `reconcile`, or `cleantail.reconcile` is
  `needed` and the broker may have removed deletions before they were read.
- `expire_tombstones`: removes tombstones past their horizon, through a branch and checks of its own.
- `approve` and, for tombstones, `approve_expiry` with `publish_expiry`, for keys that are gone in Kafka
  `approve_reconcile` with `publish_reconcile` (only where the topic's YAML says `publish:
  approve` or sets `cleantail.max.drop.ratio`): a round that has to be approved waits here, and holds no process and no
  slot meanwhile.
- `reclaim`: rewrites files with many deleted records, merges small ones, expires snapshots, removes orphans.
- `rollback`: only in a run that was triggered with `rollback_to`; nothing else happens in it.
- `outcome`: turns the run red where a task failed; skipped when all went well.
- `alert`: tells the channels of the topic's `alerts` what began and what is over, each once. Told before: a red check,
  by the task that saw it; a deadline that the run before was to keep, by `evaluate`; that a round waits and that it was
  answered, by `approve`; and where a round can wait for a person `alert_early` tells the rest before it waits.

The grid shows the tasks in groups, which open by a click: `round` (compact to publish), `upkeep` (keys that are gone
in Kafka, tombstones, space) and `when_needed` (rollback, outcome, alert). Tasks keep their names without the group's.

Skipped is calm: what has nothing to do is skipped by `evaluate`, without a process. Nothing due at all: the run is
green and says so in its note, and all tasks after `evaluate` are skipped, but for `alert` where there is something to
tell. Why is in the log of `evaluate`, in its Rendered Templates (`reason`), and in the XCom `skipped` of each skipped
task.

## When a task is red
- `ingest`: a line of a file is not a record, or names another topic (`source.topic`), and nothing of the run was
  appended. The log names file and line: correct or remove the file, then clear the task. From Kafka: the message says
  what is wrong with the topic (not there, no right, made anew, records gone before they were read, a partition that
  stands still), and nothing of the portion at hand was appended. Brokers that do not answer are asked again. From a
  table: it names the snapshot that removed records or is gone, or column, partition and offset of what is no record.
- `convert_deletes`: the deletes cannot be read, or Spark sees other records deleted than were found: the message says
  in which file, and nothing was changed. Or others changed the table every time: clear the task.
- `evaluate`: catalog or table cannot be used; nothing was changed. The log says which; clear the task when it can be
  reached again.
- `compact`: the Spark application failed; `main` is untouched. Where the message names bad input, correct that. Else
  clear the task: it repeats safely.
- `check_quality`: the partitions in the message are held back and `main` has nothing of them; the others are
  published. The message lists partition, expectation, counts and offsets; the topic's page shows the records.
  What was held back stays on a branch `failed_…`, which the tab Compaction and `cleantail status` name.
  Correct the data or the check. The partition is tried again by itself after a pause, at the next run after **Release**
  on the tab Compaction, or at once by **Trigger** with `force`.
- `publish`: other writers rewrote the same files more often than the round was started over. Nothing is lost: the
  next run does it.
  Or what somebody approved cannot be published as it was shown: nothing was, the next run asks again.
  Or nobody who may has approved it, or an XCom says else than the evidence: the message says which, and what to clear.
- `reconcile`: as `check_quality`, for keys that are gone in Kafka. Or the message says why the table cannot be compared
  with its topic there, as where that has `delete` in its cleanup.policy: then nothing was removed.
- `expire_tombstones`: as `check_quality`, for the removal of tombstones.
- `rollback`: the message says why nothing was undone, as a snapshot that has expired, or a user who is not among the
  approvers of a topic with `publish: approve`.
- `reclaim`: files could not be rewritten. The data is right, the space not yet free: clear the task.
- `alert`, `alert_early`: a channel in the message could not be reached: look at its Airflow connection. The next run
  tells it.

A task that stays *scheduled* waits for a slot of the pool `cleantail_spark` (Admin → Pools): as many Spark
applications run at once, over all topics, as `log.cleaner.threads` in `config/defaults.yaml` says.

## A round waits for approval
**Browse → Required Actions**, or the tab of the task `approve`: until when an answer is awaited, why, the counts by
partition, a sample of the records that would go with the offset that stays in their place, links to page and Data Docs.
**Approve** publishes exactly what was shown; what was appended meanwhile is untouched. **Reject**, and no answer in
time, drops it; the partitions rest for `cleantail.approval.pause.ms` or until they are released. The topic's next runs
wait behind it, other topics do not. Where nothing had to be asked the task is skipped, never green.

## By hand
**Trigger** asks for `force` (pass over the dirty ratio, never over the bounds), `partition` (only this one), `now_ms`
(another clock, in trials), of a topic with `source.kafka` for `reconcile` (compare with Kafka), and for `rollback_to`
(undo: `last` is to before the last published round; what was appended since stays; the next run compacts anew, so
correct the YAML first). A run that is triggered with any other name ends at its first task. A wrong file that was
ingested is taken back on the command line alone. The same code without Airflow:

```
cleantail status TOPIC                 # log state by partition
cleantail plan TOPIC                   # what a run would do now, and why; changes nothing
cleantail compact TOPIC --force        # the whole round
cleantail reconcile TOPIC --dry-run    # keys that are alive here and gone in Kafka
cleantail release TOPIC PARTITION      # out of quarantine
cleantail rollback TOPIC --dry-run     # what undoing the last round would do
cleantail rollback TOPIC --ingestion FILE --dry-run  # what taking a wrong file back would do
cleantail read TOPIC --partition 0     # records in offset order
cleantail check-config                 # after every change of YAML
```

Semantics: [Kafka's log compaction](https://kafka.apache.org/documentation/#compaction),
[topic configs](https://kafka.apache.org/documentation/#topicconfigs),
[KIP-280](https://cwiki.apache.org/confluence/display/KAFKA/KIP-280%3A+Enhanced+log+compaction).
The architecture and all settings are in the repository's docs/.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic, dag_id_of
from cleantail.config.topic_group import TopicGroup
from cleantail.human import one_line
from cleantail_airflow.dag_defaults import FIRST_DAY, default_args
from cleantail_airflow.tasks.assets import schedule_of
from cleantail_airflow.tasks.dag_docs import settings_section
from cleantail_airflow.tasks.run_params import PARAMS, RECONCILE, RECONCILE_PARAM
from cleantail_airflow.topic_tasks import add_tasks


def topic_dag(topic: Topic, platform: Platform, group: TopicGroup | None = None) -> DAG:
    """Makes the DAG of one topic. The same YAML makes the same DAG, so that Airflow keeps one version of it. `group`:
    on whose schedule it runs, of a topic that has a DAG of its own though it is in a group."""
    with DAG(
        dag_id=dag_id_of(topic.topic, platform.dag_prefix),
        description=one_line(topic.description) or f"Log compaction of {topic.table}",
        doc_md=f"{__doc__}\n\n{settings_section(topic)}",
        schedule=schedule_of(group or topic),
        start_date=FIRST_DAY,
        catchup=False,
        max_active_runs=1,
        tags=_tags(topic),
        params=_params(topic),
        default_args=default_args(group.owner if group else topic.owner, platform),
    ) as dag:
        add_tasks(topic, str(platform.config_dir))
    return dag


def _params(topic: Topic) -> dict[str, Param]:
    """Returns the parameters of a topic's runs: only one that is read from Kafka can be compared with its source."""
    described = PARAMS if topic.source.kafka is None else {**PARAMS, RECONCILE: RECONCILE_PARAM}
    return {name: Param(**values) for name, values in described.items()}


def _tags(topic: Topic) -> list[str]:
    policy = ",".join(sorted(topic.config.cleanup_policy))
    return ["cleantail", policy, topic.config.compaction_strategy]
