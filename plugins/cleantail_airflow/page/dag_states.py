"""Asks Airflow's own database about the topics' DAGs: two queries for all topics, whatever their number.

Whether the viewer may read a DAG is not looked at here: callers ask only for DAGs that they may. The API server may
read the database by Airflow's models; tasks may not, and never call this.
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
    columns = select(DagModel.dag_id, DagModel.is_stale, DagModel.is_paused, DagModel.has_import_errors)
    with create_session() as session:
        models = {row.dag_id: row for row in session.execute(columns.where(DagModel.dag_id.in_(ids)))}
        runs = session.execute(_runs_query(ids)).all()
    runs_of = {dag_id: list(rows) for dag_id, rows in groupby(runs, key=lambda row: row.dag_id)}
    return {dag_id: _state(dag_id, models.get(dag_id), runs_of.get(dag_id, [])) for dag_id in ids}


def _runs_query(dag_ids: Collection[str]) -> Any:
    """Returns the query for the newest ended run of each DAG, and for all that run or are queued; newest first.

    An ended run has one row for each of its tasks that failed, and one where none did. A run that somebody clears is
    active again with the id that it had, so it need not be the newest.
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


def _state(dag_id: str, model: Any, rows: Collection[Any]) -> DagState:
    """Returns the state of one DAG. Airflow calls a DAG stale that is in no file any more: it does not exist."""
    ended = [row for row in rows if row.state in ENDED]
    active = sorted((row for row in rows if row.state in ACTIVE), key=lambda row: row.state != DagRunState.RUNNING)
    return DagState(
        dag_id=dag_id,
        exists=model is not None and not model.is_stale,
        import_error=bool(model is not None and model.has_import_errors),
        paused=bool(model is not None and model.is_paused),
        last=dag_run(ended[0]) if ended else None,
        active=dag_run(active[0]) if active else None,
        failed_tasks=_failed_tasks(ended),
    )


def _failed_tasks(rows: Iterable[Any]) -> tuple[FailedTask, ...]:
    """Returns the tasks in the order in which they failed.

    The task `outcome` fails in every red run, since another has failed: it is left out where another is there.
    """
    failed = [FailedTask(row.task_id, row.map_index, row.label or "") for row in rows if row.task_id is not None]
    return tuple(task for task in failed if task.task_id != OUTCOME) or tuple(failed)


def dag_run(row: Any) -> DagRun:
    """Returns the run of a row of the query."""
    return DagRun(row.run_id, str(row.state), _ms(row.start_date), _ms(row.end_date))


def _ms(at: datetime | None) -> int | None:
    return int(at.timestamp() * 1000) if at is not None else None
