"""Makes the Airflow DAGs of config/: one for each topic, or for each group of topics.

A broken file has none: see cleantail_broken_topics.py.
"""

from __future__ import annotations

import os

from airflow.sdk import get_parsing_context

from cleantail_airflow.all_dags import all_dags
from cleantail_airflow.installation import config_dir

# a task needs only its own DAG
for dag in all_dags(config_dir(os.environ), only=get_parsing_context().dag_id):
    globals()[f"dag of {dag.dag_id}"] = dag
