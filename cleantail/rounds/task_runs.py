"""Says which Airflow task did something: kept in the evidence, so that a page can lead to its run and its log. Pure.

Airflow names a task to the processes that it starts by variables of the environment. Without them a person has run
the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from cleantail.rounds.evidence_row import EvidenceRow

VARIABLES = {
    "dag_id": "AIRFLOW_CTX_DAG_ID",
    "run_id": "AIRFLOW_CTX_DAG_RUN_ID",
    "task_id": "AIRFLOW_CTX_TASK_ID",
}
"""Column of the evidence -> the variable in which Airflow says it."""


@dataclass(frozen=True, slots=True)
class TaskRun:
    """Describes one task in one run of a DAG, by Airflow's own names."""

    dag_id: str
    run_id: str
    task_id: str

    @property
    def run_path(self) -> str:
        """Returns where Airflow's UI shows the run, from the UI's root."""
        return f"/dags/{quote(self.dag_id, safe='')}/runs/{quote(self.run_id, safe='')}"

    @property
    def log_path(self) -> str:
        """Returns where Airflow's UI shows the task's log, from the UI's root."""
        return f"{self.run_path}/tasks/{quote(self.task_id, safe='')}"


def columns_of(env: Mapping[str, str]) -> dict[str, str | None]:
    """Returns the columns of the evidence that say who writes: all null where no Airflow task does."""
    return {column: env.get(variable) or None for column, variable in VARIABLES.items()}


def task_run_of(row: EvidenceRow) -> TaskRun | None:
    """Returns the task that wrote a row; None of the command line, and of rows of versions that did not know."""
    dag_id, run_id, task_id = row.get("dag_id"), row.get("run_id"), row.get("task_id")
    return TaskRun(dag_id, run_id, task_id) if dag_id and run_id and task_id else None
