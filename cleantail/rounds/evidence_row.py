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

from collections.abc import Mapping
from typing import Final, TypedDict

from cleantail.codec import Codec

CHECKED_ROUND: Final = "checked_round"
"""The column with the log's part of the round (cleantail.rounds.checked.recorded_checks.RoundPart) as JSON; null in
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
