"""All DAGs of a configuration: one for each topic that is in no group, and one for each group."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from airflow.sdk import DAG

from cleantail.config.claims.dag_ids import dag_id_of
from cleantail.config.groups.topic_group import TopicGroup
from cleantail.config.loading import load_platform
from cleantail.config.topic import Topic
from cleantail_airflow.groups.group_dag import group_dag
from cleantail_airflow.tasks.assets import usable_groups, usable_topics
from cleantail_airflow.topic_dag import topic_dag


def all_dags(config_dir: Path, only: str | None = None) -> Iterator[DAG]:
    """Yields the DAGs of the usable topics and groups; `only`: the id of the one that is wanted. A broken file has
    none; with a broken defaults.yaml there are none at all."""
    topics = [topic for _, topic in usable_topics(config_dir) if isinstance(topic, Topic)]
    if not topics:
        return
    platform = load_platform(config_dir, os.environ)
    groups = {g.group: g for _, g in usable_groups(config_dir) if isinstance(g, TopicGroup)}
    for topic in topics:
        group = groups.get(topic.group) if topic.group else None
        own = topic.dag_name == topic.topic and (topic.group is None or group is not None)
        if own and only in (None, dag_id_of(topic.topic, platform.dag_prefix)):
            yield topic_dag(topic, platform, group)
    for name, group in groups.items():
        if only in (None, dag_id_of(name, platform.dag_prefix)):
            yield group_dag(group, [topic for topic in topics if topic.dag_name == name], platform)
