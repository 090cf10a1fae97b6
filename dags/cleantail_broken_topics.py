"""The import error of the topics whose YAML is broken; without broken topics this file does nothing.

Airflow hides every DAG of a file that has an import error. So the DAGs are in cleantail_topics.py, which passes over
broken topics, and the error is here, in a file that has no DAG.
"""

from __future__ import annotations

import os

from cleantail.config import ConfigError
from cleantail.errors import CleantailError
from cleantail_airflow.assets import usable_topics
from cleantail_airflow.places import config_dir

found = [str(error) for _, error in usable_topics(config_dir(os.environ)) if isinstance(error, ConfigError)]
if found:
    problems = dict.fromkeys(found)  # a broken defaults.yaml breaks every topic in the same way
    raise CleantailError("\n".join(["topics without a DAG until their file is right:", *problems]))
