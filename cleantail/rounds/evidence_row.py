"""A row of the evidence table: what one check has found in one log, or what became of it. Pure.

1. A check writes one row for each log of its round, with the outcome `checked` or `held_back`.
2. What became of a log that passed is a later row of its own, with another outcome. Rows are never changed.
3. A rollback writes one row for each log, and a reclaim one row for the topic, whose `partition` is null.
4. An ingestion writes one row for each gap: offsets that had gone from Kafka before they were read.
5. A version that did not know a column has written no such column, so a reader asks for it with `row.get`.

PyArrow gives and takes such rows as dictionaries. Modules `cleantail.lake.evidence_table` and
`cleantail.lake.recorded_rounds` read them, and `spark_jobs/round/evidence.py` writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypedDict
from urllib.parse import quote

from cleantail.codec import Codec

VARIABLES = {
    "dag_id": "AIRFLOW_CTX_DAG_ID",
    "run_id": "AIRFLOW_CTX_DAG_RUN_ID",
    "task_id": "AIRFLOW_CTX_TASK_ID",
}
"""Column of the evidence -> the variable in which Airflow says it."""
COLUMNS = ("dag_id", "run_id", "task_id", "began_ms", "saved_bytes")
CLOCKS_AGREE_MS = 600_000
"""A run asks the clock once, and its last task may come minutes later: a difference below this says nothing."""
CHECKED_ROUND: Final = "checked_round"
"""The column with the log's part of the round (cleantail.rounds.recorded_checks.RoundPart) as JSON; null in
rows that no check wrote, and in those of earlier versions."""
DELETED_JSON: Codec[Mapping[str, int]] = Codec(Mapping[str, int])
"""The column `deleted`: reason -> how many records a round removed for it."""
EVIDENCE_COLUMNS: Final = {
    "topic": "string",
    "partition": "int32",
    "round": "string",
    "kind": "string",
    "outcome": "string",
    "note": "string",
    "now_ms": "int64",
    "checked_at_ms": "int64",
    "base_snapshot_id": "int64",
    "head_snapshot_id": "int64",
    "first_dirty_offset": "int64",
    "end_offset": "int64",
    "records_in": "int64",
    "records_out": "int64",
    "tombstones_in": "int64",
    "tombstones_out": "int64",
    "deleted": "string",
    "freed_bytes": "int64",
    "passed": "bool",
    "checks": "string",
    "dag_id": "string",
    "run_id": "string",
    "task_id": "string",
    "began_ms": "int64",
    "saved_bytes": "int64",
    CHECKED_ROUND: "string",
    "sample": "string",
}
"""Column of the evidence table -> its type, by PyArrow's name, in the table's order."""


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


@dataclass(frozen=True, slots=True)
class Work:
    """Says when a round was worked on, and by which tasks. `began_ms`, `ended_at_ms`: Unix ms of the wall clock; the
    end is when it was known what became of the round. `checked_by`, `ended_by`: the Airflow tasks that wrote it, None
    of the command line. `saved_bytes`: an estimate."""

    began_ms: int | None = None
    saved_bytes: int | None = None
    checked_by: TaskRun | None = None
    ended_at_ms: int | None = None
    ended_by: TaskRun | None = None

    def ended(self, row: EvidenceRow) -> Work:
        """Returns the work with what a later row says became of it."""
        return replace(self, ended_at_ms=row["checked_at_ms"], ended_by=task_run_of(row))


def work_of(row: EvidenceRow) -> Work:
    """Returns what the row of a check says of the work before it."""
    return Work(row.get("began_ms"), row.get("saved_bytes"), task_run_of(row))


def together(works: Iterable[Work]) -> Work:
    """Returns the works on a round's logs as one: from the first begin to the last end."""
    all_works = list(works)
    began = [w.began_ms for w in all_works if w.began_ms is not None]
    saved = [w.saved_bytes for w in all_works if w.saved_bytes is not None]
    ended = [w.ended_at_ms for w in all_works if w.ended_at_ms is not None]
    return Work(
        began_ms=min(began, default=None),
        saved_bytes=sum(saved) if saved else None,
        checked_by=next((w.checked_by for w in all_works if w.checked_by), None),
        ended_at_ms=max(ended, default=None),
        ended_by=next((w.ended_by for w in all_works if w.ended_by), None),
    )


def clocks_differ(round_clock_ms: int, wall_clock_ms: int) -> bool:
    """Returns whether a round's own clock (`--now`, or the param now_ms) was not that of the wall."""
    return abs(round_clock_ms - wall_clock_ms) > CLOCKS_AGREE_MS


class EvidenceRow(TypedDict, total=False):
    """Holds the columns by name. Times are Unix ms, and ends of offsets are exclusive.

    `note`: who decided, and why. `deleted` (records by reason), `checks`, `sample` and `checked_round` are JSON;
    `freed_bytes` is a reclaim's. `dag_id`, `run_id` and `task_id` name the Airflow task that wrote the row. They are
    null where a person ran the command line, and `began_ms` and `saved_bytes` are null where nobody knows them.
    """

    topic: str
    partition: int
    round: str
    kind: str
    outcome: str | None
    note: str | None
    now_ms: int
    checked_at_ms: int
    base_snapshot_id: int
    head_snapshot_id: int
    first_dirty_offset: int
    end_offset: int
    records_in: int
    records_out: int
    tombstones_in: int
    tombstones_out: int
    deleted: str
    freed_bytes: int
    passed: bool
    checks: str
    dag_id: str | None
    run_id: str | None
    task_id: str | None
    began_ms: int | None
    saved_bytes: int | None
    checked_round: str | None
    sample: str | None


def deleted_of(row: EvidenceRow) -> Mapping[str, int]:
    """Parses how many records went, by reason. Raises TableError where the column cannot be read."""
    return DELETED_JSON.value(row["deleted"], "column deleted of the evidence")
