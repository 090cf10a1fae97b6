"""The rows of evidence of what a read of a source table has passed over."""

from __future__ import annotations

from collections.abc import Sequence

from cleantail.config.platform import Platform
from cleantail.log.source_position import SnapshotGap
from cleantail.rounds.evidence_row import EvidenceRow
from cleantail.rounds.past_rounds import GAP, PUBLISHED
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.evidence_store import append_once


def record_changes(table: TopicTable, platform: Platform, gaps: Sequence[SnapshotGap]) -> None:
    """Appends a row for each of the gaps that the evidence does not have yet. `gaps` are those of the table's position,
    which has them since the commit that went on behind them: a crash right after it loses no row."""
    append_once(table, platform, [_row(gap) for gap in gaps], told_by=("base_snapshot_id", "note"))


def _row(gap: SnapshotGap) -> EvidenceRow:
    """Returns a row without a partition: nobody knows whose records they were."""
    return {
        "round": "",
        "kind": GAP,
        "outcome": PUBLISHED,
        "note": gap.text,
        "now_ms": gap.at_ms,
        "base_snapshot_id": gap.snapshot_id,
    }
