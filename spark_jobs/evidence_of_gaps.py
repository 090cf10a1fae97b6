"""The rows of evidence of what was never read: offsets that had gone from Kafka before their turn."""

from __future__ import annotations

from collections.abc import Iterable

from cleantail.config import Platform
from cleantail.kafka.positions import Gap
from cleantail.past_rounds import GAP, PUBLISHED
from spark_jobs.evidence import append_rows, evidence_table
from spark_jobs.tables import TopicTable


def append_gaps(table: TopicTable, platform: Platform, gaps: Iterable[Gap], now_ms: int) -> None:
    """One row a gap. A crash before it leaves the row out, no more: the table's position has the gap."""
    head = {"round": "", "kind": GAP, "outcome": PUBLISHED, "now_ms": now_ms}
    rows = [
        {
            "partition": gap.partition,
            "first_dirty_offset": gap.from_offset,
            "end_offset": gap.to_offset,
            "note": gap.text,
        }
        for gap in gaps
    ]
    append_rows(evidence_table(platform), table, [head | row for row in rows])
