"""Makes one Airflow DAG for each topic of config/topics. A broken file has none: see cleantail_broken_topics.py."""

from __future__ import annotations

import os

from airflow.sdk import get_parsing_context

from cleantail.config.claims.dag_ids import dag_id_of
from cleantail.config.loading import load_platform
from cleantail.config.topic import Topic
from cleantail_airflow.installation import config_dir
from cleantail_airflow.tasks.assets import usable_topics
from cleantail_airflow.topic_dag import topic_dag

config = config_dir(os.environ)
parsed_dag_id = get_parsing_context().dag_id  # a task needs only its own DAG

if topics := [topic for _, topic in usable_topics(config) if isinstance(topic, Topic)]:
    # with a broken defaults.yaml no topic is usable: only the other file says so
    platform = load_platform(config, os.environ)
    for topic in topics:
        if parsed_dag_id in (None, dag_id_of(topic.topic, platform.dag_prefix)):
            globals()[f"dag of {topic.topic}"] = topic_dag(topic, platform)
