"""Holds what Airflow says of the DAGs that run topics, by topic: of each its own, or that of its group."""

from __future__ import annotations

from collections.abc import Collection

from cleantail.watch.dag_state import DagState
from cleantail_airflow.page.configuration import Configured
from cleantail_airflow.page.dag_states import dag_states
from cleantail_airflow.page.group_runs import topics_in_groups
from cleantail_airflow.page.pending_approvals import approval_tasks


def dags_of(configured: Configured, topics: Collection[str]) -> dict[str, DagState]:
    """Returns the state of the DAG that runs it, for each of the topics: at most six queries for all of them."""
    groups: dict[str, tuple[str, list[str]]] = {}
    alone = {}
    for topic in topics:
        dag_id = configured.dag_ids[topic]
        if (group := configured.runs_in.get(topic)) is None:
            alone[topic] = dag_id
        else:
            groups.setdefault(dag_id, (group, []))[1].append(topic)
    states = dag_states(alone.values())
    return {topic: states[dag_id] for topic, dag_id in alone.items()} | topics_in_groups(groups)


def approvals_of(configured: Configured, topics: Collection[str]) -> dict[str, str]:
    """Returns the task that waits for an answer, of the topics that have one. No group waits: a topic whose rounds may
    wait for a person has a DAG of its own."""
    ids = {configured.dag_ids[topic]: topic for topic in topics if topic not in configured.runs_in}
    return {ids[dag_id]: task for dag_id, task in approval_tasks(list(ids)).items()} if ids else {}
