"""A row of the evidence table: the result of a check of one log, or a later outcome. Pure.

1. A check writes one row for each log of its round, with the outcome `checked` or `held_back`.
2. The later outcome of a log that passed is another row.
3. A rollback writes one row for each log. A reclaim writes one row for the topic, whose `partition` is null.
4. An ingestion writes one row for each gap: offsets that Kafka deleted before they were read.
5. An erasure writes one row for each commit that removed records from a side table. Its `partition` is null.
6. Rows have no value in columns that were added later. Read such columns with `row.get`.
7. Rows past `cleantail.evidence.retention.ms` are merged into one row a day (cleantail.rounds.past_rounds.day_rows).

PyArrow reads and writes such rows as dictionaries. `cleantail.lake.recorded_rounds` reads them,
and `spark_jobs/round/evidence.py` writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypedDict, get_args, get_type_hints
from urllib.parse import quote

from cleantail.codec import Codec

VARIABLES = {
    "dag_id": "AIRFLOW_CTX_DAG_ID",
    "run_id": "AIRFLOW_CTX_DAG_RUN_ID",
    "task_id": "AIRFLOW_CTX_TASK_ID",
}
"""Column of the evidence -> the variable by which Airflow names the task to its processes.

Without these variables, the writer is the command line.
"""
WORK_COLUMNS = ("dag_id", "run_id", "task_id", "began_ms", "saved_bytes")
CLOCKS_AGREE_MS = 600_000
"""Smallest difference of two clocks that counts. A run reads its clock once, and its last task may end minutes
later."""
CHECKED_ROUND: Final = "checked_round"
"""The column with the log's part of the round (cleantail.rounds.recorded_checks.RoundPart) as JSON. Null in rows that
no check wrote."""
DELETED_JSON: Codec[Mapping[str, int]] = Codec(Mapping[str, int])
"""The column `deleted`: reason -> number of records that a round removed."""


class EvidenceRow(TypedDict, total=False):
    """The columns by name. Times are Unix ms, and ends of offsets are exclusive.

    `note`: the user who decided, and the reason. `deleted` (records by reason), `checks`, `sample` and `checked_round`
    are JSON. `freed_bytes`: of a reclaim, or of reclaims that a rollback undid. `dag_id`, `run_id` and `task_id` name
    the Airflow task that wrote the row, null for the command line. `began_ms` and `saved_bytes` are null if they are
    unknown. `rounds`: number of rounds in the row of a day, null for one.
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
    rounds: int | None


_ARROW_TYPES = {int: "int64", str: "string", bool: "bool"}
EVIDENCE_COLUMNS: Final[Mapping[str, str]] = {
    name: "int32" if name == "partition" else _ARROW_TYPES[(get_args(kind) or (kind,))[0]]
    for name, kind in get_type_hints(EvidenceRow).items()
}
"""Column of the evidence table -> PyArrow's name of its type, in the table's order."""


def deleted_of(row: EvidenceRow) -> Mapping[str, int]:
    """Parse the numbers of removed records by reason. Raises TableError."""
    return DELETED_JSON.value(row["deleted"], "column deleted of the evidence")


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One task in one run of a DAG, by Airflow's names."""

    dag_id: str
    run_id: str
    task_id: str

    @property
    def run_path(self) -> str:
        """Return the path of the run in Airflow's UI."""
        return f"/dags/{quote(self.dag_id, safe='')}/runs/{quote(self.run_id, safe='')}"

    @property
    def log_path(self) -> str:
        """Return the path of the task's log in Airflow's UI."""
        return f"{self.run_path}/tasks/{quote(self.task_id, safe='')}"


def columns_of(env: Mapping[str, str]) -> dict[str, str | None]:
    """Return the columns that name the writer. All are null if the writer is not an Airflow task."""
    return {column: env.get(variable) or None for column, variable in VARIABLES.items()}


def task_run_of(row: EvidenceRow) -> TaskRun | None:
    """Return the task that wrote a row; None for the command line."""
    dag_id, run_id, task_id = row.get("dag_id"), row.get("run_id"), row.get("task_id")
    return TaskRun(dag_id, run_id, task_id) if dag_id and run_id and task_id else None


@dataclass(frozen=True, slots=True)
class RoundWork:
    """The times of the work on a round, and its tasks.

    `began_ms` and `ended_at_ms` are Unix ms of the wall clock. The end is the time of the round's outcome. `checked_by`
    and `ended_by`: the Airflow tasks that wrote check and outcome, None for the command line. `saved_bytes` is an
    estimate.
    """

    began_ms: int | None = None
    saved_bytes: int | None = None
    checked_by: TaskRun | None = None
    ended_at_ms: int | None = None
    ended_by: TaskRun | None = None

    def ended(self, row: EvidenceRow) -> RoundWork:
        return replace(self, ended_at_ms=row["checked_at_ms"], ended_by=task_run_of(row))


def work_of(row: EvidenceRow) -> RoundWork:
    return RoundWork(row.get("began_ms"), row.get("saved_bytes"), task_run_of(row))


def together(works: Iterable[RoundWork]) -> RoundWork:
    """Merge the work on a round's logs, from the first beginning to the last end."""
    all_works = list(works)
    began = [w.began_ms for w in all_works if w.began_ms is not None]
    saved = [w.saved_bytes for w in all_works if w.saved_bytes is not None]
    ended = [w.ended_at_ms for w in all_works if w.ended_at_ms is not None]
    return RoundWork(
        began_ms=min(began, default=None),
        saved_bytes=sum(saved) if saved else None,
        checked_by=next((w.checked_by for w in all_works if w.checked_by), None),
        ended_at_ms=max(ended, default=None),
        ended_by=next((w.ended_by for w in all_works if w.ended_by), None),
    )


def clocks_differ(round_clock_ms: int, wall_clock_ms: int) -> bool:
    """Return whether a round's own clock (`--now`, or the param now_ms) differs from the wall clock."""
    return abs(round_clock_ms - wall_clock_ms) > CLOCKS_AGREE_MS
