"""Makes one Airflow DAG for each topic of config/topics. A broken file has none: see cleantail_broken_topics.py."""

from __future__ import annotations

import os

from airflow.sdk import get_parsing_context

from cleantail.config.claims.dag_ids import dag_id_of
from cleantail.config.loading import dag_prefix
from cleantail.config.topic import Topic
from cleantail_airflow.installation import config_dir
from cleantail_airflow.tasks.assets import usable_topics
from cleantail_airflow.topic_dag import topic_dag

parsed_dag_id = get_parsing_context().dag_id  # a task needs only its own DAG
prefix = dag_prefix(config_dir(os.environ))

for _, topic in usable_topics(config_dir(os.environ)):
    if isinstance(topic, Topic) and parsed_dag_id in (None, dag_id_of(topic.topic, prefix)):
        globals()[f"dag of {topic.topic}"] = topic_dag(topic, config_dir(os.environ))
