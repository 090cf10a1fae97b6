"""The rows of evidence of what was undone: rounds, and ingestions that were taken back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import HeldError
from cleantail.lake.runs.rollback_preview import LogUndo, LogWithout
from cleantail.rounds.commit_summaries import ROLLBACK
from cleantail.rounds.evidence_row import EvidenceRow
from cleantail.rounds.past_ingestions import UNDID_INGESTION, IngestionUndo
from cleantail.rounds.past_rounds import PUBLISHED, UNDID
from cleantail.rounds.rollback_plan import RollbackPlan, UndoneRound
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.evidence_store import append_rows, evidence_table, rows_of

if TYPE_CHECKING:
    from pyiceberg.table import Table


def append_rollback(
    table: TopicTable, platform: Platform, planned: RollbackPlan, logs: Sequence[LogUndo], by: str, now_ms: int
) -> None:
    """Appends one row for each log: records before and after, which rounds were undone, and by whom."""
    name = f"{UNDID}{', '.join(u.round for u in planned.undone)}"
    evidence = evidence_table(platform)
    put_back = _put_back_bytes(evidence, table, planned.undone)
    head: EvidenceRow = {"round": name, "kind": ROLLBACK, "outcome": PUBLISHED, "note": f"by {by}", "now_ms": now_ms}
    rows: list[EvidenceRow] = [
        {
            "partition": log.partition,
            "base_snapshot_id": planned.to_snapshot_id,
            "first_dirty_offset": log.checkpoint_after or 0,
            "end_offset": log.checkpoint or 0,
            "records_in": log.records,
            "records_out": log.records_after,
            "saved_bytes": put_back.get(log.partition, 0),
        }
        for log in logs
    ]
    append_rows(evidence, table, [head | row for row in rows])


def require_new(platform: Platform, topic: Topic, request: str) -> None:
    """Raises HeldError where a run has done its rollback before, and so long ago that the table's history does not know
    it any more: who clears its task later would undo another round in the name of who triggered it."""
    rows = rows_of(evidence_table(platform), {"topic": topic.topic, "kind": ROLLBACK, "run_id": request})
    if request and rows:
        raise HeldError(
            f"{topic.topic}: run {request} has rolled back before ({rows[0]['round']}): nothing was undone. For "
            "another rollback trigger another run"
        )


def _put_back_bytes(evidence: Table, table: TopicTable, undone: Iterable[UndoneRound]) -> dict[int, int]:
    """Returns partition -> bytes that the undone rounds had hidden, as their own rows say, so that exactly that is
    taken from what they saved. Of rounds with the same name the last one counts."""
    rounds = {(u.round, u.kind) for u in undone}
    rows = rows_of(evidence, {"topic": table.topic.topic, "outcome": PUBLISHED})
    ordered = sorted(rows, key=lambda r: r["checked_at_ms"])
    last = {(r["round"], r["kind"], r["partition"]): r for r in ordered if (r["round"], r["kind"]) in rounds}
    hidden: Counter[int] = Counter()
    for row in last.values():
        hidden[row["partition"]] += row["saved_bytes"] or 0
    return hidden


def append_undone_ingestion(
    table: TopicTable, platform: Platform, planned: IngestionUndo, logs: Sequence[LogWithout], by: str, now_ms: int
) -> None:
    """Appends one row for each log: records and log end before and after, which ingestion was taken back, and by
    whom."""
    name = f"{UNDID}{UNDID_INGESTION}{planned.ingestion.snapshot_id}"
    note = f"by {by}: {planned.ingestion.names}"
    head: EvidenceRow = {"round": name, "kind": ROLLBACK, "outcome": PUBLISHED, "note": note, "now_ms": now_ms}
    rows: list[EvidenceRow] = [
        {
            "partition": log.partition,
            "base_snapshot_id": planned.to_snapshot_id or 0,
            "first_dirty_offset": log.log_end_after,
            "end_offset": log.log_end,
            "records_in": log.records,
            "records_out": log.records_after,
        }
        for log in logs
    ]
    append_rows(evidence_table(platform), table, [head | row for row in rows])
