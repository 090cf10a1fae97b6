"""The id of a topic's DAG in Airflow: `platform.dag_prefix` and the topic's name. Whatever goes by a DAG asks here.

Airflow's rights, pages, logs and questions go by DAG. Tables, evidence, assets, metrics and incidents go by topic.
Without a prefix both names are one, and a topic that has the name of another team's DAG would take that DAG's id and
rights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

V = TypeVar("V")

ID_CHARS = 250
"""The length of Airflow's longest id of a DAG."""
PREFIX_CHARS = 64


def dag_id_of(topic: str, prefix: str) -> str:
    """Returns the id of the topic's DAG."""
    return prefix + topic


def topic_of(dag_id: str, prefix: str) -> str | None:
    """Returns the topic whose DAG would have this id; None for an id without the prefix, which is no topic's."""
    return dag_id.removeprefix(prefix) if dag_id.startswith(prefix) and dag_id != prefix else None


def dag_ids_of(topics: Iterable[str], prefix: str) -> dict[str, str]:
    """Returns topic -> the id of its DAG."""
    return {topic: dag_id_of(topic, prefix) for topic in topics}


def by_topic(by_dag_id: Mapping[str, V], dag_ids: Mapping[str, str]) -> dict[str, V]:
    """Returns the values that are known by DAG id, by the topics of `dag_ids`; topics without a value are left out."""
    return {topic: by_dag_id[dag_id] for topic, dag_id in dag_ids.items() if dag_id in by_dag_id}
