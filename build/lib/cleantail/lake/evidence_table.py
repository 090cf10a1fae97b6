"""Adapter: the rows of one topic in the evidence table, through PyIceberg, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleantail.rounds.evidence_row import EvidenceRow
from cleantail.rounds.past_rounds import Round, rounds_of
from cleantail.rounds.round_work import COLUMNS

if TYPE_CHECKING:
    from pyiceberg.table import Table


def read_evidence(table: Table, topic: str) -> list[Round]:
    """Returns the topic's rounds, newest first."""
    from pyiceberg.expressions import EqualTo

    fields = ("partition", "round", "kind", "now_ms", "checked_at_ms", "first_dirty_offset", "end_offset")
    measures = ("records_in", "records_out", "deleted", "passed", "checks", "outcome", "note")
    snapshots = ("base_snapshot_id", "head_snapshot_id", "sample")
    table_columns = set(table.schema().column_names)  # an earlier version's table has fewer until its next round
    selected = tuple(name for name in (*fields, *measures, *snapshots, *COLUMNS) if name in table_columns)
    scan = table.scan(row_filter=EqualTo("topic", topic), selected_fields=selected)
    evidence: list[EvidenceRow] = scan.to_arrow().to_pylist()
    return rounds_of(evidence)
