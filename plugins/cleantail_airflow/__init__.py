"""Cleantail in Airflow: the DAGs of a configuration (`topic_dags`, `doctor_dag`, `erasure_dag`), operators, notifier,
pages, and the pool that limits its Spark applications.

Every DAG file and every Airflow process imports this package. So it imports no pyspark, great_expectations or pyiceberg
before a task runs, and no operator before DAGs are requested. The plugin imports the operators once in each of
Airflow's main processes, before these fork others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cleantail_airflow.dag_files import doctor_dag, erasure_dag, refuse_broken_topics, topic_dags

__all__ = ["doctor_dag", "erasure_dag", "refuse_broken_topics", "topic_dags"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("cleantail_airflow.dag_files"), name)
