"""Make the Airflow DAGs of config/: one for each topic, or for each group of topics.

A broken file has none: see cleantail_broken_topics.py.
"""

from __future__ import annotations

from cleantail_airflow import topic_dags
from cleantail_airflow.installation import config_dir

globals().update(topic_dags(config_dir()))
