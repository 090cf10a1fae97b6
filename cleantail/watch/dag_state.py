"""State of the DAG that runs a topic, from Airflow, and the topics that failed in a run of a group. Pure.

Plans and results of packs come from Airflow's database. So they are used only to show failures to users.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from cleantail.errors import TableError
from cleantail.human import ago
from cleantail.rounds.pack_results import PACK_RESULT_JSON
from cleantail.rounds.stations import BY_NAME, EVALUATE, ROLLBACK, RUN_PACK, SHOWN, STATIONS, TopicOutcome

FAILED, RUNNING = "failed", "running"
"""States of a run, as Airflow names them."""
NAMED = 3
"""Number of failed tasks that a sentence names. The page of the topic links all of them."""


@dataclass(frozen=True, slots=True)
class DagRun:
    """A run of the DAG. `start_ms` and `end_ms` are Unix ms, None before the start or the end."""

    run_id: str
    state: str
    start_ms: int | None = None
    end_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FailedTask:
    """A failed task of the last run.

    `map_index` is -1 for a task that is not mapped. `label`: name of a mapped instance in the UI, such as `partitions
    0, 1`. `reason`: first line of the task's error, or of one topic's error in a group's task.
    """

    task_id: str
    map_index: int = -1
    label: str = ""
    reason: str = ""

    @property
    def title(self) -> str:
        """Return `compact (partitions 0, 1)`, or just `evaluate`."""
        if self.map_index < 0:
            return self.task_id
        return f"{self.task_id} ({self.label or f'map index {self.map_index}'})"


@dataclass(frozen=True, slots=True)
class DagState:
    """The DAG that runs a topic.

    `last`: newest run that has ended. `active`: newest run that is running or queued. `failed_tasks`: tasks of `last`.
    `group`: the group, if the DAG runs other topics too. Then runs that were triggered for another topic do not count,
    and `failed_tasks` has only tasks in which this topic failed. `may_open`: the viewer may open the DAG in Airflow.
    """

    dag_id: str = ""
    group: str = ""
    exists: bool = True
    import_error: bool = False
    paused: bool = False
    last: DagRun | None = None
    active: DagRun | None = None
    failed_tasks: tuple[FailedTask, ...] = ()
    may_open: bool = True

    @property
    def failed(self) -> bool:
        """Return whether the last run failed because of this topic. A later successful run resets this."""
        return self.ended_red and (not self.group or bool(self.failed_tasks))

    @property
    def ended_red(self) -> bool:
        """Return whether the last run failed, because of any topic."""
        return self.last is not None and self.last.state == FAILED

    @property
    def running(self) -> bool:
        return self.active is not None and self.active.state == RUNNING

    @property
    def stands_still(self) -> bool:
        """Return whether no run does due work, although the scheduler is running."""
        return self.paused or not self.exists


BLOCKED_BY_CHECK = "the check failed, blocked partitions: "
"""Beginning of a failed check's error, after the topic. The state of a blocked log has the whole reason."""


def failure_text(dag: DagState, now_ms: int, known: tuple[str, ...] = ()) -> str:
    """Return `its last run failed 3 min ago in task evaluate`, or "" if the last run did not fail.

    Reasons that begin with `known` are left out.
    """
    if not dag.failed or dag.last is None:
        return ""
    when_text = f" {ago(dag.last.end_ms, now_ms)}" if dag.last.end_ms is not None else ""
    names = [task.title for task in dag.failed_tasks[:NAMED]]
    if len(dag.failed_tasks) > NAMED:
        names.append(f"{len(dag.failed_tasks) - NAMED} more")
    tasks_text = f" in {'task' if len(names) == 1 else 'tasks'} {', '.join(names)}" if names else ""
    others = (task.reason for task in dag.failed_tasks if task.reason and not task.reason.startswith(known))
    reasons = "; ".join(dict.fromkeys(others))
    who = f"it failed in the last run of group {dag.group}" if dag.group else "its last run failed"
    return f"{who}{when_text}{tasks_text}{f': {reasons}' if reasons else ''}"


def standstill_text(dag: DagState) -> str:
    """Return why no run begins by itself, or "" if one does."""
    if not dag.exists:
        return f"Airflow has no DAG of its group {dag.group}" if dag.group else "Airflow has no DAG of it"
    whose = f"the DAG of its group {dag.group}" if dag.group else "its DAG"
    return f"{whose} is paused" if dag.paused else ""


SHOWN_AT = {part: station.name for station in SHOWN.values() for part in station.errors_of}
"""Station at which a topic's work ended with an error -> the station that shows the error."""
CHECKED_AT = {station.kind: station.name for station in STATIONS if station.checks}
"""Kind of a round -> the station that shows its failed checks."""
CRASHED = "the Spark application of its pack ended before its turn"
REASON_CHARS = 300
EVERY_TOPIC = ""
"""Key for failures of all topics. No topic has this name."""


def failures_by_topic(
    plan: Any, results: Mapping[int, Any], failed: Mapping[tuple[str, int], str], only: str = ""
) -> dict[str, tuple[FailedTask, ...]]:
    """Return the failed tasks of each topic that failed. Failures of all topics are under EVERY_TOPIC.

    `plan`: the run's GroupPlan as plain JSON, or None. `results`: number of a pack -> its PackResult. `failed`: (task,
    map index) of each failed task -> its reason. `only`: the topic that the run was triggered for. A reason is omitted
    if it may be about another topic.
    """
    by_topic: dict[str, tuple[FailedTask, ...]] = {}
    skipped = _skipped(plan)
    if (EVALUATE, -1) in failed:
        by_topic[only or EVERY_TOPIC] = (FailedTask(EVALUATE, reason=failed[EVALUATE, -1]),)
    elif only and (ROLLBACK, -1) in failed:
        by_topic[only] = (FailedTask(ROLLBACK, reason=failed[ROLLBACK, -1]),)
    for number, pack in enumerate(_packs(plan)):
        errors, crashed = pack.get("errors") or {}, (RUN_PACK, number) in failed
        outcomes = _outcomes(results.get(number))
        for topic in pack.get("topics") or ():
            if topic in errors:
                tasks = [_task(RUN_PACK, number, str(errors[topic]))]
            elif topic in outcomes:
                tasks = _of_outcome(outcomes[topic], number, skipped)
            else:
                tasks = [_task(RUN_PACK, number, CRASHED)] if crashed else []
            if tasks:
                by_topic[str(topic)] = tuple(tasks)
    return by_topic


def _packs(plan: Any) -> list[Mapping[str, Any]]:
    packs = plan.get("packs") if isinstance(plan, dict) else None
    return [pack for pack in packs if isinstance(pack, dict)] if isinstance(packs, list) else []


def _outcomes(result: Any) -> dict[str, TopicOutcome]:
    if result is None:
        return {}
    try:
        return {outcome.topic: outcome for outcome in PACK_RESULT_JSON.of_plain(result, "a pack's result").topics}
    except TableError:
        return {}


def _skipped(plan: Any) -> Collection[str]:
    """Return the stations without work when the run was planned. `run_pack` shows failures at these stations."""
    named = plan.get("skipped") if isinstance(plan, dict) else None
    return [str(task) for task in named] if isinstance(named, list | tuple) else []


def _of_outcome(outcome: TopicOutcome, number: int, skipped: Collection[str]) -> list[FailedTask]:
    reasons: dict[str, str] = {}
    if outcome.error:
        reasons[SHOWN_AT.get(outcome.station, outcome.station)] = outcome.error
    for part, result in outcome.rounds.items():
        if any(verdict.failed for verdict in result.verdicts):
            reasons.setdefault(CHECKED_AT[BY_NAME[part].kind], "")
    return [_task(RUN_PACK if task in skipped else task, number, reason) for task, reason in reasons.items()]


def _task(task_id: str, number: int, reason: str) -> FailedTask:
    """Return a task without the pack's label, which names other topics."""
    return FailedTask(task_id, number, f"pack {number}", short_reason(reason))


def short_reason(reason: str) -> str:
    """Return the first line of an error, of limited length."""
    first = next((line.strip() for line in reason.splitlines() if line.strip()), "")
    return first if len(first) <= REASON_CHARS else f"{first[:REASON_CHARS]}…"
