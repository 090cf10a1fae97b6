"""Says what Airflow loads from this folder: the listeners that keep the pool of Spark applications and write the notes
of idle runs, and the page."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from cleantail_airflow import dag_files  # noqa: F401  # here once, and not in each process that Airflow forks
from cleantail_airflow.tasks import idle_runs, pool
from cleantail_airflow.web import mount


class CleantailPlugin(AirflowPlugin):
    """Registers what Airflow should know beside the operators and notifiers, which DAGs import by themselves."""

    name = "cleantail"
    listeners = [pool, idle_runs]
    fastapi_apps = mount.FASTAPI_APPS
    external_views = mount.EXTERNAL_VIEWS
