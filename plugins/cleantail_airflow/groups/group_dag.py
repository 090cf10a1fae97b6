"""Kafka's log compaction of a group of topics, each kept in an Iceberg table of its own.

## What a run does, task by task
- `evaluate`: looks at every topic of the group, without Spark: what is new at its source, which partitions are due, and
  why. The topics that have something to do are packed by bytes and count, the most urgent first. A topic that cannot be
  looked at holds no other one back: a pack of its own shows why.
- `run_pack`, one Spark application per pack: goes through its topics one after the other, and does all that is due of
  each: ingest, compact, check, publish, reconcile, expire tombstones, reclaim. What is wrong with one topic ends that
  topic's work, and the next one goes on. After a crash the task is tried again: what was published is not done anew.
- `ingest`, `compact`, `check_quality`, `publish`, `reconcile`, `expire_tombstones`, `reclaim`: show, pack by pack, what
  became of the topics at this station; the log has a line for each. Where nothing was to do the station is skipped.
  `publish` updates the assets of the topics that it names, for DAGs that run after a compaction.
- `rollback`: only in a run that was triggered with `topic` and `rollback_to`; nothing else happens in it.
- `outcome`: turns the run red where a task failed; skipped when all went well.
- `alert`: tells the channels of each topic's `alerts` what began and what is over, each once, and remembers which
  topics are left to the next run.

Nothing due at all: the run is green and says so in its note, and all tasks after `evaluate` are skipped.

A topic whose rounds may wait for a person (`publish: approve`, `cleantail.max.drop.ratio`) is not here: it has a DAG of
its own, on the group's schedule, so that no other topic waits with it.

## When a task is red
- `evaluate`: the catalog cannot be used; nothing was changed.
- `run_pack`: of the pack that says *cannot be worked on*: the message names topics, files and keys; correct the YAML.
  Else the application crashed, or another writer was in the way: the task is tried again by itself. Or a topic failed
  at a station that `evaluate` had skipped, since nothing was to be done there then: the message names both.
- A station: its message names the topics, and what went wrong with each, in the words of a topic's own DAG. All other
  topics of the pack were done. Correct the data, the check or the YAML; the next run does the topic. To have it done at
  once clear `run_pack` with what follows it: a station alone only shows the same again.
- A partition whose check is red rests in quarantine: **Release** is on the topic's page.
- `alert`: a channel in the message could not be reached: look at its Airflow connection. The next run tells it.

## Limits
`limits:` of the group's YAML say how much a pack holds, how many packs a run does and how long it begins new ones;
`log.cleaner.threads` of defaults.yaml says how many packs are worked on at once. What did not come in time is first in
the next run, and the event `deadline_missed` says so where `max.compaction.lag.ms` has passed.

## By hand
**Trigger** asks for `topic` (only this one), `force`, `partition`, `now_ms`, `reconcile` and `rollback_to`, as a
topic's own DAG does. On the command line each topic has its commands as ever: `cleantail plan TOPIC`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from airflow.sdk import DAG

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic, dag_id_of
from cleantail.config.topic_group import TopicGroup
from cleantail.human import counted, one_line
from cleantail_airflow.dag_defaults import FIRST_DAY, default_args
from cleantail_airflow.groups.group_params import group_params
from cleantail_airflow.groups.group_tasks import add_group_tasks
from cleantail_airflow.tasks.assets import schedule_of

NAMED = 200
"""The DAG's docs name so many of its topics."""


def group_dag(group: TopicGroup, topics: Sequence[Topic], platform: Platform) -> DAG:
    """Makes the DAG of one group. `topics`: those that it runs. Its tasks read them anew, so that nothing but its docs
    knows them: they name the topics, and change with their settings, so that Airflow's version of the DAG does too."""
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
    """Names the topics, and the digest of all their settings: equal YAML makes an equal text."""
    settings = sorted(topic.model_dump_json() for topic in topics)
    digest = hashlib.sha256("\n".join(settings).encode()).hexdigest()[:16]
    names = [f"- {topic.topic}" for topic in sorted(topics, key=lambda topic: topic.topic)[:NAMED]]
    more = [f"- and {counted(len(topics) - NAMED, 'more topic')}"] if len(topics) > NAMED else []
    title = f"## Topics of {group.group}"
    return "\n".join([title, f"{counted(len(topics), 'topic')}, settings `{digest}`.", "", *names, *more])
