"""The rows of evidence of what was never read: offsets that had gone from Kafka before their turn."""

from __future__ import annotations

from collections.abc import Sequence

from cleantail.config.platform import Platform
from cleantail.log.source_position import Gap
from cleantail.rounds.evidence_row import EvidenceRow
from cleantail.rounds.past_rounds import GAP, PUBLISHED
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.evidence_store import append_once


def record_gaps(table: TopicTable, platform: Platform, gaps: Sequence[Gap]) -> None:
    """Appends a row for each of the gaps that the evidence does not have yet. `gaps` are those of the table's position,
    which has them since the commit that went on behind them: a crash right after it loses no row."""
    append_once(table, platform, [_row(gap) for gap in gaps], told_by=("partition", "first_dirty_offset", "end_offset"))


def _row(gap: Gap) -> EvidenceRow:
    return {
        "round": "",
        "kind": GAP,
        "outcome": PUBLISHED,
        "note": gap.text,
        "now_ms": gap.at_ms,
        "partition": gap.partition,
        "first_dirty_offset": gap.from_offset,
        "end_offset": gap.to_offset,
    }
