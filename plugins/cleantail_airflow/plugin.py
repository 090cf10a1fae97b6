"""What Airflow loads from this folder: the listener that keeps the pool of Spark applications."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from cleantail_airflow import pool


class CleantailPlugin(AirflowPlugin):
    """Operators and notifiers are imported by the DAGs; only listeners have to be registered."""

    name = "cleantail"
    listeners = [pool]
