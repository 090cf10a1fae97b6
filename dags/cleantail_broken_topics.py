"""The import error of the topics whose YAML is broken; without broken topics this file does nothing.

Airflow hides every DAG of a file that has an import error. So the DAGs are in cleantail_topics.py, which passes over
broken topics, and the error is here, in a file that has no DAG. Airflow shows such errors to all who may see any,
whatever DAGs they may read: so this one says file, line and key, and no value. The rest is said by
`cleantail check-config`, and on the topic's page to those who may read its DAG.
"""

from __future__ import annotations

import os

from cleantail.errors import CleantailError, ConfigError
from cleantail_airflow.installation import config_dir
from cleantail_airflow.tasks.assets import usable_groups, usable_topics

config = config_dir(os.environ)
errors = [error for _, error in usable_topics(config) if isinstance(error, ConfigError)]
errors += [error for _, error in usable_groups(config) if isinstance(error, ConfigError)]
if errors:
    # a broken defaults.yaml breaks every topic in the same way
    lines = dict.fromkeys(line for error in errors for line in error.locations)
    head = "topics without a DAG until their file is right; what is wrong says `cleantail check-config`:"
    raise CleantailError("\n".join([head, *lines]))
