"""The import error of the topics whose YAML is broken; without broken topics this file does nothing.

Airflow hides every DAG of a file that has an import error. So the DAGs are in cleantail_topics.py, which passes over
broken topics, and the error is here, in a file that has no DAG. It says file, line and key, and no value.
"""

from __future__ import annotations

from cleantail_airflow import refuse_broken_topics
from cleantail_airflow.installation import config_dir

refuse_broken_topics(config_dir())
