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
from collections.abc import Sequence
from typing import Any

from airflow.sdk import DAG, TaskGroup, task_group

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic, dag_id_of
from cleantail.config.topic_group import TopicGroup
from cleantail.human import counted, one_line
from cleantail.rounds.stations import EVALUATE, ROLLBACK, RUN_PACK, SHOWN
from cleantail_airflow.dag_defaults import FIRST_DAY, default_args
from cleantail_airflow.groups.alert_group import AlertGroupOperator
from cleantail_airflow.groups.evaluate_group import EvaluateGroupOperator
from cleantail_airflow.groups.group_plan import group_params
from cleantail_airflow.groups.run_pack_task import RunPackOperator
from cleantail_airflow.groups.station_tasks import GroupRollbackOperator, station_class
from cleantail_airflow.task_ids import ALERT, OUTCOME
from cleantail_airflow.tasks.assets import schedule_of
from cleantail_airflow.tasks.spark_job import OutcomeOperator
from cleantail_airflow.tasks.spark_pool import POOL

LABEL = "{{ task.label }}"


def add_group_tasks(group: str, config_dir: str) -> None:
    of_group: dict[str, Any] = {"group": group, "config_dir": config_dir}
    evaluate = EvaluateGroupOperator(task_id=EVALUATE, **of_group)

    @task_group(group_id="pack", prefix_group_id=False, tooltip="One pack of topics: its work, and its stations")
    def stations(pack: dict[str, Any]) -> None:
        run_pack = RunPackOperator(task_id=RUN_PACK, pack=pack, pool=POOL, map_index_template=LABEL, **of_group)
        for name in SHOWN:
            run_pack >> station_class(name)(
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
        params=group_params(),
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
