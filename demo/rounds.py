"""Run the DAGs: trigger them by REST, follow their tasks, and print one line for each task that ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.markup import escape

from demo.airflow_api import AirflowApi
from demo.home import DemoError

POLL_S = 0.8
RUN_WITHIN_S = 900
LOG_LINES = 25
SHOWN = {
    "success": "[green]done[/green]",
    "failed": "[red]failed[/red]",
    "up_for_retry": "[yellow]tries again[/yellow]",
}


@dataclass(frozen=True, slots=True)
class Round:
    """A finished DAG run."""

    dag_id: str
    state: str
    seconds: float
    tasks: tuple[dict[str, Any], ...]

    def task(self, task_id: str) -> dict[str, Any]:
        return next(task for task in self.tasks if task["task_id"] == task_id)

    @property
    def failed(self) -> list[dict[str, Any]]:
        return [task for task in self.tasks if task["state"] == "failed"]


class Scheduler:
    """Calls Airflow for the demonstration, from several threads. `stop` ends all calls."""

    def __init__(self, api: AirflowApi, console: Console, started: float) -> None:
        self.api = api
        self._console = console
        self._started = started
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def say(self, text: str) -> None:
        """Print one line with the time since the start. `text` may have rich's markup."""
        self._console.print(f"[dim]{time.monotonic() - self._started:5.0f} s[/dim]  {text}", soft_wrap=True)

    def wait_for(self, dag_ids: Iterable[str]) -> None:
        """Wait until Airflow has read the DAG files. Raises DemoError with the import errors."""
        for dag_id in dag_ids:
            self.api.wait_for_dag(dag_id, self._stopped.is_set)

    def run(self, dag_id: str, name: str) -> Round:
        """Trigger the DAG and wait for its end. Raises DemoError if it takes too long or `stop` is set."""
        run_id = name.replace(" ", "-")
        self.api.trigger(dag_id, run_id)
        printed: set[tuple[str, int, int, str]] = set()
        end = time.monotonic() + RUN_WITHIN_S
        while time.monotonic() < end:
            if self._stopped.wait(POLL_S):
                raise DemoError(f"{dag_id}: gave up waiting")
            run = self.api.run(dag_id, run_id)
            tasks = self.api.tasks(dag_id, run_id)
            self._print_new_states(f"{dag_id:<26}{name:<11}", tasks, printed)
            if run["state"] in ("success", "failed"):
                return Round(dag_id, run["state"], _seconds(run), tuple(tasks))
        raise DemoError(f"{dag_id}: {name} did not end within {RUN_WITHIN_S} s")

    def run_green(self, dag_id: str, name: str) -> Round:
        """Do the same as `run`. Raises DemoError for a failed run, with the end of the log of the first failed task."""
        ended = self.run(dag_id, name)
        if ended.state == "success":
            return ended
        first = min(ended.failed, key=lambda task: task["end_date"] or "~")
        lines = "\n".join(self.api.log(first)[-LOG_LINES:])
        raise DemoError(f"{dag_id}: {first['task_id']} failed in {name}; the end of its log:\n{lines}")

    def _print_new_states(
        self, head: str, tasks: list[dict[str, Any]], printed: set[tuple[str, int, int, str]]
    ) -> None:
        for task in sorted(tasks, key=lambda task: task["end_date"] or ""):
            state = (task["task_id"], task["map_index"], task["try_number"], task["state"])
            if task["state"] in SHOWN and state not in printed:
                printed.add(state)
                seconds = f"{_seconds(task):5.1f} s"
                self.say(f"{head}{task['task_id']:<19}{SHOWN[task['state']]}  {seconds}  {escape(_label(task))}")


def _label(task: dict[str, Any]) -> str:
    return str(task.get("rendered_map_index") or "") if task["map_index"] >= 0 else ""


def _seconds(span: dict[str, Any]) -> float:
    """Return the seconds from start to end of a run or a task, from Airflow's times. 0 if it never started."""
    if not (span["start_date"] and span["end_date"]):
        return 0.0
    return (datetime.fromisoformat(span["end_date"]) - datetime.fromisoformat(span["start_date"])).total_seconds()
