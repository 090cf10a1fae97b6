"""Says what Airflow loads from this folder: the listeners that keep the pool of Spark applications and write the notes
of idle runs, and the page."""

from __future__ import annotations

import logging

from airflow.plugins_manager import AirflowPlugin

from cleantail.home.process import keep_logs_printable
from cleantail_airflow.page import mount
from cleantail_airflow.tasks import airflow_listeners

logger = logging.getLogger(__name__)
# in each process of Airflow that loads its plugins; what others log in it is not ours to change
keep_logs_printable("cleantail", "cleantail_airflow", "pyiceberg")

try:  # here once, and not anew in each process that Airflow forks for a task or to parse a file
    from cleantail_airflow import dag_files  # noqa: F401
except ImportError as e:  # a server without Airflow's provider for Spark has the page all the same; DAG files say it
    logger.info("the modules of DAGs were not imported ahead: %s", e)


class CleantailPlugin(AirflowPlugin):
    """Registers what Airflow should know beside the operators and notifiers, which DAGs import by themselves."""

    name = "cleantail"
    listeners = [airflow_listeners]
    fastapi_apps = mount.FASTAPI_APPS
    external_views = mount.EXTERNAL_VIEWS
