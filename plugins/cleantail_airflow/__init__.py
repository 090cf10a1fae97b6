"""Cleantail's side of Airflow: the DAGs of a configuration (`topic_dags`), operators, notifier, page, and the pool that
bounds its Spark applications.

Light at import, since every DAG file and every Airflow process imports it: no pyspark, no great_expectations, no
pyiceberg until a task runs; and no operator until someone asks for DAGs, as the plugin does once in each of Airflow's
processes, before it forks others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cleantail_airflow.dag_files import refuse_broken_topics, topic_dags

__all__ = ["refuse_broken_topics", "topic_dags"]


def __getattr__(name: str) -> Any:
    """Imports what makes DAGs when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("cleantail_airflow.dag_files"), name)
