"""The plugin that Airflow loads: the listeners and the pages."""

from __future__ import annotations

import logging

from airflow.plugins_manager import AirflowPlugin

from cleantail.home.process import keep_logs_printable
from cleantail_airflow.page import mount
from cleantail_airflow.tasks import run_note, spark_pool

logger = logging.getLogger(__name__)
# only these: loggers of other packages in the process stay as they are
keep_logs_printable("cleantail", "cleantail_airflow", "pyiceberg")

try:  # once here: processes that Airflow forks later for tasks or parsing need not import it again
    from cleantail_airflow import dag_files  # noqa: F401
except ImportError as e:  # a server without Airflow's provider for Spark still has the page; DAG files report this
    logger.info("the modules of DAGs were not imported ahead: %s", e)


class CleantailPlugin(AirflowPlugin):
    """Registers the listeners and pages. DAGs import the operators and notifiers themselves."""

    name = "cleantail"
    listeners = [run_note, spark_pool]
    fastapi_apps = mount.FASTAPI_APPS
    external_views = mount.EXTERNAL_VIEWS
