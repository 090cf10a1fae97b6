"""Says what became of a run's tasks, as the task that tells sees it near the run's end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from airflow.sdk import Context

from cleantail.config.alert_channels import Event
from cleantail.log.log_state import LogState
from cleantail.watch.incidents import Condition
from cleantail_airflow.alerts.alerting import run_url
from cleantail_airflow.alerts.red_check import Failure
from cleantail_airflow.outcomes.failure_notes import pulled_note
from cleantail_airflow.task_ids import ALERT, ALERT_EARLY, OUTCOME

NOT_MAPPED = -1
"""Airflow's map index of a task that is not mapped."""


@dataclass(frozen=True, slots=True)
class EndedTask:
    """Describes a task instance of the run that has ended."""

    task_id: str
    state: str
    map_index: int = NOT_MAPPED


@dataclass(frozen=True, slots=True)
class FailedTask:
    """Describes a task instance that failed in this run, with what it noted.

    `red` has the failed expectations, if it failed by those; `at_ms` is when it failed (wall clock), 0 where it noted
    nothing.
    """

    task_id: str
    reason: str
    link: str
    red: tuple[Failure, ...] = ()
    at_ms: int = 0


def ended_tasks(context: Context) -> list[EndedTask]:
    """Asks Airflow which task instances have ended, but for those that tell and the leaf that turns a run red."""
    ti: Any = context["ti"]
    rows = ti.get_task_breadcrumbs(dag_id=ti.dag_id, run_id=ti.run_id)
    return [
        EndedTask(row["task_id"], str(row["state"]), NOT_MAPPED if row.get("map_index") is None else row["map_index"])
        for row in rows
        if row["task_id"] not in (OUTCOME, ALERT, ALERT_EARLY)
    ]


def failed_tasks(ended: Iterable[EndedTask], context: Context) -> list[FailedTask]:
    """Returns the failed ones, with their notes and the links to their logs."""
    return [_failed_task(task, run_url(context), context) for task in ended if task.state == "failed"]


def _failed_task(task: EndedTask, of_run: str, context: Context) -> FailedTask:
    note = pulled_note(context, task.task_id, None if task.map_index == NOT_MAPPED else task.map_index)
    mapped = "" if task.map_index == NOT_MAPPED else f"/mapped/{task.map_index}"
    return FailedTask(task.task_id, note.reason, f"{of_run}/tasks/{task.task_id}{mapped}", note.red, note.at_ms)


@dataclass(frozen=True, slots=True)
class RunCoverage:
    """Says what this run has tried and looked at: only of that it can tell that something is over."""

    succeeded: frozenset[str]
    green: bool
    partitions: frozenset[int]
    only_partition: int | None
    """The param `partition` of the run: deadlines of other logs are not this run's."""

    @classmethod
    def of(
        cls,
        ended: Sequence[EndedTask],
        logs: Iterable[LogState] | None,
        only_partition: int | None,
        all_tried: bool = True,
    ) -> RunCoverage:
        """Returns the coverage of a run with these tasks. One that did not fail counts as tried, unless `all_tried` is
        false."""
        states: dict[str, set[str]] = {}
        for task in ended:
            states.setdefault(task.task_id, set()).add(task.state)
        succeeded = frozenset(task_id for task_id, of_task in states.items() if of_task == {"success"})
        green = all_tried and not any(of_task & {"failed", "upstream_failed"} for of_task in states.values())
        return cls(succeeded, green, frozenset(log.partition for log in logs or ()), only_partition)

    def includes(self, condition: Condition) -> bool:
        """Returns whether the run can tell if the condition is over.

        A task is well again when it succeeded, or when a whole run had nothing for it to do and was green.
        """
        if condition.event is Event.RUN_FAILED:
            return self.green or condition.subject.removeprefix("task ") in self.succeeded
        if condition.event is Event.APPROVAL:  # `waiting_subjects` has asked Airflow
            return True
        of_the_run = condition.event in (Event.DEADLINE_MISSED, Event.ERASURE)
        other_log = self.only_partition not in (None, condition.partition)
        return condition.partition in self.partitions and not (of_the_run and other_log)
