"""What Airflow loads from this folder: the listener that keeps the pool of Spark applications, and the page."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from cleantail_airflow import page, pool


class CleantailPlugin(AirflowPlugin):
    """Operators and notifiers are imported by the DAGs; what else Airflow should know is registered here."""

    name = "cleantail"
    listeners = [pool]
    fastapi_apps = page.FASTAPI_APPS
    external_views = page.EXTERNAL_VIEWS
