"""Finds the topics whose round waits for a person: Airflow keeps its questions in its own database.

The evidence alone cannot tell: a round is `checked` there also in the seconds before it is published, and when it was
answered but not yet published. One query answers for all topics, so that the page stays fast.
"""

from __future__ import annotations

from collections.abc import Collection

from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from sqlalchemy import select


def approval_tasks(dag_ids: Collection[str]) -> dict[str, str]:
    """Returns, by DAG, the task that waits for an answer; of several the one that has asked last."""
    query = (
        select(TaskInstance.dag_id, TaskInstance.task_id)
        .join(HITLDetail, HITLDetail.ti_id == TaskInstance.id)
        .where(
            TaskInstance.dag_id.in_(list(dag_ids)),
            TaskInstance.state == TaskInstanceState.AWAITING_INPUT,
            HITLDetail.responded_at.is_(None),
        )
        .order_by(HITLDetail.created_at)
    )
    with create_session() as session:
        return {row.dag_id: row.task_id for row in session.execute(query)}
