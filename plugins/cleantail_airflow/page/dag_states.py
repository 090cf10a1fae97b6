"""What Airflow knows of the topics' DAGs, from its own database: two queries for all topics, whatever their number.

Callers ask only for DAGs that the viewer may read: nothing here asks again. The API server may read the database by
Airflow's models; tasks may not, and never come here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from itertools import groupby
from typing import Any

from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun as RunModel
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from sqlalchemy import and_, func, or_, select

from cleantail.watch.dag_state import DagRun, DagState, FailedTask
from cleantail_airflow.task_ids import OUTCOME

ENDED = (DagRunState.SUCCESS, DagRunState.FAILED)
ACTIVE = (DagRunState.RUNNING, DagRunState.QUEUED)


def dag_states(dag_ids: Collection[str]) -> dict[str, DagState]:
    """DAG -> what is known of it; every name that was asked for is in the answer."""
    found = sorted(dag_ids)
    if not found:
        return {}
    models = select(DagModel.dag_id, DagModel.is_stale, DagModel.is_paused, DagModel.has_import_errors)
    with create_session() as session:
        known = {row.dag_id: row for row in session.execute(models.where(DagModel.dag_id.in_(found)))}
        rows = session.execute(_runs(found)).all()
    by_dag = {name: list(of_dag) for name, of_dag in groupby(rows, key=lambda row: row.dag_id)}
    return {name: _state(known.get(name), by_dag.get(name, [])) for name in found}


def _runs(dag_ids: Collection[str]) -> Any:
    """Of each DAG the newest run that has ended, with a row for each task of it that failed, and all that run or are
    queued; newest first. A run that is cleared runs again under its old number."""
    newest = (
        select(func.max(RunModel.id))
        .where(RunModel.dag_id.in_(dag_ids), RunModel.state.in_(ENDED))
        .group_by(RunModel.dag_id)
    )
    failed = and_(
        TaskInstance.dag_id == RunModel.dag_id,
        TaskInstance.run_id == RunModel.run_id,
        TaskInstance.state == TaskInstanceState.FAILED,
        RunModel.state == DagRunState.FAILED,
    )
    columns = (RunModel.dag_id, RunModel.run_id, RunModel.state, RunModel.start_date, RunModel.end_date)
    task = (TaskInstance.task_id, TaskInstance.map_index, TaskInstance._rendered_map_index.label("label"))
    active = and_(RunModel.dag_id.in_(dag_ids), RunModel.state.in_(ACTIVE))
    return (
        select(*columns, *task)
        .outerjoin(TaskInstance, failed)
        .where(or_(RunModel.id.in_(newest), active))
        .order_by(RunModel.dag_id, RunModel.id.desc(), TaskInstance.end_date, TaskInstance.map_index)
    )


def _state(model: Any, rows: Collection[Any]) -> DagState:
    """Of one DAG. A stale one is no longer in any file."""
    ended = [row for row in rows if row.state in ENDED]
    active = sorted((row for row in rows if row.state in ACTIVE), key=lambda row: row.state != DagRunState.RUNNING)
    return DagState(
        exists=model is not None and not model.is_stale,
        import_error=bool(model is not None and model.has_import_errors),
        paused=bool(model is not None and model.is_paused),
        last=_run(ended[0]) if ended else None,
        active=_run(active[0]) if active else None,
        failed_tasks=_failed_tasks(ended),
    )


def _failed_tasks(rows: Iterable[Any]) -> tuple[FailedTask, ...]:
    """In the order in which they failed; without the leaf that only turns the run red, where another failed."""
    found = [FailedTask(row.task_id, row.map_index, row.label or "") for row in rows if row.task_id is not None]
    return tuple(task for task in found if task.task_id != OUTCOME) or tuple(found)


def _run(row: Any) -> DagRun:
    return DagRun(row.run_id, str(row.state), _ms(row.start_date), _ms(row.end_date))


def _ms(at: datetime | None) -> int | None:
    return int(at.timestamp() * 1000) if at is not None else None
