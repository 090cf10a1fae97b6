"""Query Airflow's database for the states of the DAGs that run topics, and for rounds that wait for a person.

The number of queries does not depend on the number of topics. It is two for topics with DAGs of their own, four for
groups, one for approvals. Permissions are not checked here: callers pass only what the viewer may see. The API server
may read the database through Airflow's models. Tasks may not, and never call this.

A group's run is red if any of its topics failed. The facts about one topic are in two XComs: the plan of `evaluate` and
the reports of `run_pack`. These XComs are read once for each ended run. If they were deleted or are in an XCom backend,
the failure is not attributed to any topic.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun as RunModel
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from sqlalchemy import and_, func, or_, select

from cleantail.doctor import WRONG, Finding
from cleantail.rounds.stations import EVALUATE, RUN_PACK
from cleantail.watch.dag_state import EVERY_TOPIC, DagRun, DagState, FailedTask, failures_by_topic, short_reason
from cleantail_airflow.dag_defaults import DOCTOR, OUTCOME, PLAN
from cleantail_airflow.outcomes.configured_topics import Configured
from cleantail_airflow.outcomes.failures import LOST, NOTE, parsed_note

ENDED = (DagRunState.SUCCESS, DagRunState.FAILED)
ACTIVE = (DagRunState.RUNNING, DagRunState.QUEUED)


def dag_states(dag_ids: Collection[str]) -> dict[str, DagState]:
    """Return the state of each DAG. Every id has an entry."""
    ids = sorted(dag_ids)
    if not ids:
        return {}
    with create_session() as session:
        models = _models(session, ids)
        runs = session.execute(_runs_query(ids)).all()
    runs_of = {dag_id: list(rows) for dag_id, rows in groupby(runs, key=lambda row: row.dag_id)}
    return {dag_id: _with_runs(models[dag_id], runs_of.get(dag_id, ())) for dag_id in ids}


def _models(session: Any, dag_ids: Collection[str]) -> dict[str, DagState]:
    """Return each DAG's state without its runs. A stale DAG is one that no file defines any longer."""
    columns = select(DagModel.dag_id, DagModel.is_stale, DagModel.is_paused, DagModel.has_import_errors)
    missing = {dag_id: DagState(dag_id=dag_id, exists=False) for dag_id in dag_ids}
    return missing | {
        row.dag_id: DagState(
            dag_id=row.dag_id,
            exists=not row.is_stale,
            import_error=bool(row.has_import_errors),
            paused=bool(row.is_paused),
        )
        for row in session.execute(columns.where(DagModel.dag_id.in_(dag_ids)))
    }


_NOTE_OF_TASK = and_(
    XComModel.dag_id == TaskInstance.dag_id,
    XComModel.run_id == TaskInstance.run_id,
    XComModel.task_id == TaskInstance.task_id,
    XComModel.map_index == TaskInstance.map_index,
    XComModel.key == NOTE,
)


def _runs_query(dag_ids: Collection[str]) -> Any:
    """Return the query for the newest ended run of each DAG and for all active runs, newest first.

    An ended run has one row for each failed task, with its note, or one row if no task failed. A cleared run is active
    again with its old id, so an active run need not be the newest.
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
        select(*columns, *task, XComModel.value.label("note"))
        .outerjoin(TaskInstance, failed)
        .outerjoin(XComModel, _NOTE_OF_TASK)
        .where(or_(RunModel.id.in_(newest), active))
        .order_by(RunModel.dag_id, RunModel.id.desc(), TaskInstance.end_date, TaskInstance.map_index)
    )


def _with_runs(state: DagState, rows: Collection[Any]) -> DagState:
    ended = [row for row in rows if row.state in ENDED]
    active = sorted((row for row in rows if row.state in ACTIVE), key=lambda row: row.state != DagRunState.RUNNING)
    return replace(
        state,
        last=dag_run(ended[0]) if ended else None,
        active=dag_run(active[0]) if active else None,
        failed_tasks=_failed_tasks(ended),
    )


def _failed_tasks(rows: Iterable[Any]) -> tuple[FailedTask, ...]:
    """Return the tasks in the order in which they failed, with the reasons that they noted.

    The task `outcome` fails in every red run. It is left out if another task failed.
    """
    failed = [
        FailedTask(row.task_id, row.map_index, row.label or "", "" if row.task_id == OUTCOME else _reason(row.note))
        for row in rows
        if row.task_id is not None
    ]
    return tuple(task for task in failed if task.task_id != OUTCOME) or tuple(failed)


def _reason(note: Any) -> str:
    """Return the first line of a noted error, or why the error is missing."""
    return LOST if note is None else short_reason(parsed_note(_plain(note) or {}).reason)


def dag_run(row: Any) -> DagRun:
    return DagRun(row.run_id, str(row.state), _ms(row.start_date), _ms(row.end_date))


def _ms(at: datetime | None) -> int | None:
    return int(at.timestamp() * 1000) if at is not None else None


def approval_tasks(dag_ids: Collection[str]) -> dict[str, str]:
    """Return DAG -> the task that waits for an answer. If several tasks wait, the last one counts.

    The evidence cannot answer this: a round is `checked` also just before it is published, or after the answer.
    """
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


RUNS_SEEN = 20
"""Maximum number of a group's newest runs that are read. A person may have triggered many for one topic each."""
MOST_RUNS = 256
"""Maximum number of failed runs whose failures are cached."""
TOPIC = "topic"
"""Parameter of a group's run that limits it to one topic."""
Failures = Mapping[str, tuple[FailedTask, ...]]

_kept: dict[tuple[str, str, Any], Failures] = {}


class _Run(NamedTuple):
    dag_id: str
    run: DagRun
    only: str
    ended_at: Any


def topics_in_groups(groups: Mapping[str, tuple[str, Collection[str]]]) -> dict[str, DagState]:
    """Return topic -> the state of its group's DAG. `groups`: id of a group's DAG -> the group, and the topics."""
    if not groups:
        return {}
    with create_session() as session:
        models = _models(session, list(groups))
        runs = _newest_runs(session, groups)
        last, active = _by_topic(groups, runs, ENDED), _by_topic(groups, runs, ACTIVE)
        red = {run for run in last.values() if run is not None and run.run.state == DagRunState.FAILED}
        failures = _failures(session, red)
    states = {}
    for dag_id, (group, topics) in groups.items():
        for topic in topics:
            ended, at_work = last[topic], active[topic]
            failed = failures.get(ended, {}) if ended else {}
            states[topic] = replace(
                models[dag_id],
                group=group,
                last=ended.run if ended else None,
                active=at_work.run if at_work else None,
                failed_tasks=failed.get(topic) or failed.get(EVERY_TOPIC, ()),
            )
    return states


def _newest_runs(session: Any, dag_ids: Iterable[str]) -> list[_Run]:
    """Return the newest runs of each DAG and all active ones, newest first."""
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
    """Return the newest run of each topic in one of the states, without runs for another topic only."""
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
    """Return run -> topic -> the tasks in which it failed."""
    key_of = {run: (run.dag_id, run.run.run_id, run.ended_at) for run in runs}
    unread = [run for run in runs if key_of[run] not in _kept]
    if unread:
        tasks, xcoms = _tasks_that_failed(session, unread), _xcoms(session, unread)
        for run in unread:
            where = (run.dag_id, run.run.run_id)
            while len(_kept) >= MOST_RUNS:
                _kept.pop(next(iter(_kept)), None)
            results = {number: value for number, value in xcoms[where].items() if number is not None}
            _kept[key_of[run]] = failures_by_topic(xcoms[where].get(None), results, tasks[where], run.only)
    return {run: _kept.get(key_of[run], {}) for run in runs}


def _tasks_that_failed(session: Any, runs: Collection[_Run]) -> dict[tuple[str, str], dict[tuple[str, int], str]]:
    """Return run -> (task, map index) of each failed task -> its reason."""
    columns = (TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id, TaskInstance.map_index, XComModel.value)
    failed = (_of(TaskInstance, runs), TaskInstance.state == TaskInstanceState.FAILED)
    query = select(*columns).outerjoin(XComModel, _NOTE_OF_TASK).where(*failed)
    tasks: dict[tuple[str, str], dict[tuple[str, int], str]] = defaultdict(dict)
    for row in session.execute(query):
        tasks[row.dag_id, row.run_id][row.task_id, row.map_index] = _reason(row.value)
    return tasks


def _xcoms(session: Any, runs: Collection[_Run]) -> dict[tuple[str, str], dict[int | None, Any]]:
    """Return run -> the plan under None, and the result of each pack under the pack's number."""
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
    """Return an XCom as it was pushed. The database stores it as JSON text."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return None


def dags_of(configured: Configured, topics: Collection[str]) -> dict[str, DagState]:
    """Return topic -> the state of the DAG that runs it."""
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
    """Return topic -> the task that waits for an answer. A topic whose rounds may wait has a DAG of its own."""
    ids = {configured.dag_ids[topic]: topic for topic in topics if topic not in configured.runs_in}
    return {ids[dag_id]: task for dag_id, task in approval_tasks(list(ids)).items()} if ids else {}


class Examined(NamedTuple):
    """The DAG `cleantail_doctor`, the findings of its last run (problems first), and whether the viewer may trigger
    the DAG."""

    dag: DagState
    findings: tuple[Finding, ...]
    may_trigger: bool = False

    @property
    def wrong(self) -> int:
        return sum(finding.state == WRONG for finding in self.findings)


def last_examination(dag_id: str) -> Examined | None:
    """Return the findings of the last ended run of the DAG that examines the installation; None without the DAG."""
    dag = dag_states([dag_id])[dag_id]
    if not dag.exists:
        return None
    value = None
    if dag.last is not None:
        query = select(XComModel.value).where(
            XComModel.dag_id == dag_id,
            XComModel.run_id == dag.last.run_id,
            XComModel.task_id == DOCTOR,
            XComModel.key == "return_value",
        )
        with create_session() as session:
            value = _plain(session.execute(query).scalar())
    try:
        findings = [Finding(**finding) for finding in value or ()]
    except TypeError:  # of another version of Cleantail
        findings = []
    return Examined(dag, tuple(sorted(findings, key=lambda finding: finding.state != WRONG)))
