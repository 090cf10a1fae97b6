"""Holds what Airflow says of a topic's DAG: there or not, paused, running, how its last run ended. Plain values,
pure."""

from __future__ import annotations

from dataclasses import dataclass

from cleantail.human import ago

FAILED, RUNNING = "failed", "running"
"""States of a run, as Airflow calls them."""
NAMED = 3
"""The number of failed tasks that a sentence names; the page of the topic links all that were read."""


@dataclass(frozen=True, slots=True)
class DagRun:
    """Describes a run of the DAG. Times are Unix ms, None where it has not begun, or not ended."""

    run_id: str
    state: str
    start_ms: int | None = None
    end_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FailedTask:
    """Describes a task of the last run that failed.

    `map_index` says which of a mapped task's instances it is, -1 for a task that is not mapped; `label` is what the UI
    calls that instance, as `partitions 0, 1`. `reason` is what is known of a failure of one topic in a group's task.
    """

    task_id: str
    map_index: int = -1
    label: str = ""
    reason: str = ""

    @property
    def title(self) -> str:
        """Returns `compact (partitions 0, 1)`, or just `evaluate`."""
        if self.map_index < 0:
            return self.task_id
        return f"{self.task_id} ({self.label or f'map index {self.map_index}'})"


@dataclass(frozen=True, slots=True)
class DagState:
    """Describes the DAG that runs a topic. `last` is its newest run that has ended, `active` its newest that runs or is
    queued, and `failed_tasks` are those of `last`.

    `group`: whose DAG it is, where that runs other topics as well. Then `last` and `active` are runs that were not
    triggered for another topic, and `failed_tasks` those in which this topic failed.
    """

    dag_id: str = ""
    group: str = ""
    exists: bool = True
    import_error: bool = False
    paused: bool = False
    last: DagRun | None = None
    active: DagRun | None = None
    failed_tasks: tuple[FailedTask, ...] = ()

    @property
    def failed(self) -> bool:
        """Returns whether the last run is red, by this topic; a green run after it makes it good."""
        return self.ended_red and (not self.group or bool(self.failed_tasks))

    @property
    def ended_red(self) -> bool:
        """Returns whether the last run is red, by whichever topic."""
        return self.last is not None and self.last.state == FAILED

    @property
    def running(self) -> bool:
        return self.active is not None and self.active.state == RUNNING

    @property
    def stands_still(self) -> bool:
        """Returns whether nothing that is due would be done, though the scheduler works."""
        return self.paused or not self.exists


def failure_text(dag: DagState, now_ms: int) -> str:
    """Returns `its last run failed 3 min ago in task evaluate`; empty where the last run did not fail."""
    if not dag.failed or dag.last is None:
        return ""
    when_text = f" {ago(dag.last.end_ms, now_ms)}" if dag.last.end_ms is not None else ""
    names = [task.title for task in dag.failed_tasks[:NAMED]]
    if len(dag.failed_tasks) > NAMED:
        names.append(f"{len(dag.failed_tasks) - NAMED} more")
    tasks_text = f" in {'task' if len(names) == 1 else 'tasks'} {', '.join(names)}" if names else ""
    reasons = "; ".join(dict.fromkeys(task.reason for task in dag.failed_tasks if task.reason))
    who = f"it failed in the last run of group {dag.group}" if dag.group else "its last run failed"
    return f"{who}{when_text}{tasks_text}{f': {reasons}' if reasons else ''}"


def standstill_text(dag: DagState) -> str:
    """Returns why no run begins by itself; empty where one does."""
    if not dag.exists:
        return f"Airflow has no DAG of its group {dag.group}" if dag.group else "Airflow has no DAG of it"
    whose = f"the DAG of its group {dag.group}" if dag.group else "its DAG"
    return f"{whose} is paused" if dag.paused else ""
