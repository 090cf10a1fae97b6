"""Asks Airflow's own database about the topics' DAGs: two queries for all topics, whatever their number.

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
    """Returns the state of each DAG; every id that was passed is in the answer."""
    ids = sorted(dag_ids)
    if not ids:
        return {}
    models = select(DagModel.dag_id, DagModel.is_stale, DagModel.is_paused, DagModel.has_import_errors)
    with create_session() as session:
        dag_models = {row.dag_id: row for row in session.execute(models.where(DagModel.dag_id.in_(ids)))}
        rows = session.execute(_runs(ids)).all()
    by_dag = {dag_id: list(of_dag) for dag_id, of_dag in groupby(rows, key=lambda row: row.dag_id)}
    return {dag_id: _state(dag_models.get(dag_id), by_dag.get(dag_id, [])) for dag_id in ids}


def _runs(dag_ids: Collection[str]) -> Any:
    """Selects of each DAG the newest run that has ended, and all that run or are queued; newest first.

    The run that has ended has a row for each of its tasks that failed. A run that is cleared runs again under its old
    number.
    """
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
    """Makes the state of one DAG. A stale one is no longer in any file."""
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
    """Returns the tasks in the order in which they failed; the leaf that turns the run red only where it is alone."""
    failed = [FailedTask(row.task_id, row.map_index, row.label or "") for row in rows if row.task_id is not None]
    return tuple(task for task in failed if task.task_id != OUTCOME) or tuple(failed)


def _run(row: Any) -> DagRun:
    return DagRun(row.run_id, str(row.state), _ms(row.start_date), _ms(row.end_date))


def _ms(at: datetime | None) -> int | None:
    return int(at.timestamp() * 1000) if at is not None else None
