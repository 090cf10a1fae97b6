"""Asks Airflow's own database what the runs of groups say of each single topic: four queries, whatever their number.

A group's run is red when anything of any topic was. What concerns one topic is what its pack reported of it, which the
task `run_pack` returns, and what `evaluate` planned: both are XComs. Those of a run that has ended are read once, and
what is kept of them are the topics that failed. Where they are gone, or out of the database (an XCom backend), no
topic is said to have failed: then the run says so, and the topics' tables what is held back.

Whether the viewer may see a topic is not looked at here: callers ask only for topics that they may see.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun as RunModel
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from sqlalchemy import and_, func, or_, select

from cleantail.watch.dag_state import EVERY_TOPIC, DagRun, DagState, FailedTask, failures_by_topic
from cleantail_airflow.page.dag_states import ACTIVE, ENDED, dag_run
from cleantail_airflow.task_ids import EVALUATE, PLAN, RUN_PACK

RUNS_SEEN = 20
"""So many of a group's newest runs are looked at: a person may have triggered many of them for one topic each."""
MOST_RUNS = 256
"""The number of failed runs of which is kept who failed in them."""
TOPIC = "topic"
"""The parameter of a group's run that names the only topic that it is for."""
Failures = Mapping[str, tuple[FailedTask, ...]]
NO_FAILURES: Failures = {}

_kept: dict[tuple[str, str, Any], Failures] = {}


class _Run(NamedTuple):
    dag_id: str
    run: DagRun
    only: str
    ended_at: Any


def topics_in_groups(groups: Mapping[str, tuple[str, Collection[str]]]) -> dict[str, DagState]:
    """Returns the state of the DAG that runs it for each topic. `groups`: id of a group's DAG -> its group, and the
    topics that are asked for."""
    if not groups:
        return {}
    with create_session() as session:
        columns = select(DagModel.dag_id, DagModel.is_stale, DagModel.is_paused, DagModel.has_import_errors)
        models = {row.dag_id: row for row in session.execute(columns.where(DagModel.dag_id.in_(groups)))}
        runs = _newest_runs(session, groups)
        last, active = _by_topic(groups, runs, ENDED), _by_topic(groups, runs, ACTIVE)
        red = {run for run in last.values() if run is not None and run.run.state == DagRunState.FAILED}
        failures = _failures(session, red)
    states = {}
    for dag_id, (group, topics) in groups.items():
        model = models.get(dag_id)
        exists = model is not None and not model.is_stale
        for topic in topics:
            ended, at_work = last[topic], active[topic]
            states[topic] = DagState(
                dag_id=dag_id,
                group=group,
                exists=exists,
                import_error=bool(model is not None and model.has_import_errors),
                paused=bool(model is not None and model.is_paused),
                last=ended.run if ended else None,
                active=at_work.run if at_work else None,
                failed_tasks=_of_topic(topic, failures.get(ended, NO_FAILURES)) if ended else (),
            )
    return states


def _of_topic(topic: str, failures: Failures) -> tuple[FailedTask, ...]:
    return failures.get(topic) or failures.get(EVERY_TOPIC, ())


def _newest_runs(session: Any, dag_ids: Iterable[str]) -> list[_Run]:
    """Returns the newest runs of each DAG and all that are active, newest first."""
    place = func.row_number().over(partition_by=RunModel.dag_id, order_by=RunModel.id.desc()).label("place")
    ids = list(dag_ids)
    numbered = select(RunModel.id, place).where(RunModel.dag_id.in_(ids)).subquery()
    newest = select(numbered.c.id).where(numbered.c.place <= RUNS_SEEN)
    columns = (RunModel.dag_id, RunModel.run_id, RunModel.state, RunModel.start_date, RunModel.end_date, RunModel.conf)
    active = and_(RunModel.dag_id.in_(ids), RunModel.state.in_(ACTIVE))
    query = select(*columns).where(or_(RunModel.id.in_(newest), active)).order_by(RunModel.id.desc())
    return [_Run(row.dag_id, dag_run(row), _only(row.conf), row.end_date) for row in session.execute(query)]


def _only(conf: Any) -> str:
    topic = conf.get(TOPIC) if isinstance(conf, dict) else None
    return topic if isinstance(topic, str) else ""


def _by_topic(
    groups: Mapping[str, tuple[str, Collection[str]]], runs: Iterable[_Run], states: Collection[str]
) -> dict[str, _Run | None]:
    """Returns the newest run of each topic in one of the states: of those that were not for another topic."""
    for_all: dict[str, list[_Run]] = defaultdict(list)
    for run in runs:
        if run.run.state in states:
            for_all[run.dag_id].append(run)
    found: dict[str, _Run | None] = {}
    for dag_id, (_, topics) in groups.items():
        newest_for_all = next((n for n, run in enumerate(for_all[dag_id]) if not run.only), len(for_all[dag_id]))
        alone = {run.only: run for run in reversed(for_all[dag_id][:newest_for_all])}
        general = for_all[dag_id][newest_for_all] if newest_for_all < len(for_all[dag_id]) else None
        found |= {topic: alone.get(topic, general) for topic in topics}
    return found


def _failures(session: Any, runs: Collection[_Run]) -> dict[_Run, Failures]:
    """Returns which topics failed in each run, and in which tasks."""
    key_of = {run: (run.dag_id, run.run.run_id, run.ended_at) for run in runs}
    unread = [run for run in runs if key_of[run] not in _kept]
    if unread:
        tasks, xcoms = _failed_tasks(session, unread), _xcoms(session, unread)
        for run in unread:
            where = (run.dag_id, run.run.run_id)
            while len(_kept) >= MOST_RUNS:
                _kept.pop(next(iter(_kept)), None)
            _kept[key_of[run]] = failures_by_topic(
                xcoms[where].get(None), _results(xcoms[where]), tasks[where], run.only
            )
    return {run: _kept.get(key_of[run], {}) for run in runs}


def _results(xcoms: Mapping[int | None, Any]) -> dict[int, Any]:
    return {number: value for number, value in xcoms.items() if number is not None}


def _failed_tasks(session: Any, runs: Collection[_Run]) -> dict[tuple[str, str], set[tuple[str, int]]]:
    columns = (TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id, TaskInstance.map_index)
    query = select(*columns).where(_of(TaskInstance, runs), TaskInstance.state == TaskInstanceState.FAILED)
    tasks: dict[tuple[str, str], set[tuple[str, int]]] = defaultdict(set)
    for row in session.execute(query):
        tasks[row.dag_id, row.run_id].add((row.task_id, row.map_index))
    return tasks


def _xcoms(session: Any, runs: Collection[_Run]) -> dict[tuple[str, str], dict[int | None, Any]]:
    """Returns the plan of each run under None, and the result of each of its packs under the pack's number."""
    plan = and_(XComModel.task_id == EVALUATE, XComModel.key == PLAN)
    result = and_(XComModel.task_id == RUN_PACK, XComModel.key == "return_value")
    columns = (XComModel.dag_id, XComModel.run_id, XComModel.task_id, XComModel.map_index, XComModel.value)
    xcoms: dict[tuple[str, str], dict[int | None, Any]] = defaultdict(dict)
    for row in session.execute(select(*columns).where(_of(XComModel, runs), or_(plan, result))):
        number = None if row.task_id == EVALUATE else row.map_index
        xcoms[row.dag_id, row.run_id][number] = _plain(row.value)
    return xcoms


def _of(model: Any, runs: Iterable[_Run]) -> Any:
    return or_(*(and_(model.dag_id == run.dag_id, model.run_id == run.run.run_id) for run in runs))


def _plain(value: Any) -> Any:
    """Returns an XCom as it was pushed: the database has it as a text of JSON."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return None
