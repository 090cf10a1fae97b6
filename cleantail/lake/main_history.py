"""The history of `main` by PyIceberg, and a table's properties as they count (cleantail.rounds.rewritten_history)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cleantail.rounds.commit_summaries import OPERATION, ROUNDS
from cleantail.rounds.rewritten_history import (
    GoneCommits,
    MainHistory,
    Mark,
    after_rewriting,
    lost_marks,
    may_be_rewritten,
)

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot


def properties_that_count(table: Table) -> Mapping[str, str]:
    """Return a table's properties; if others rewrote its history, those that are left. Raises TableError."""
    if not may_be_rewritten(table.properties):
        return table.properties
    name, by_id = ".".join(table.name()), {s.snapshot_id: s for s in table.metadata.snapshots}
    current = table.current_snapshot()
    line, at = list["Snapshot"](), current
    while at is not None:
        line.append(at)
        at = by_id.get(at.parent_snapshot_id) if at.parent_snapshot_id is not None else None
    ancestors, oldest = {s.snapshot_id for s in line}, line[-1] if line else None
    history = MainHistory(
        table_uuid=str(table.metadata.table_uuid),
        current=None if current is None else _mark(current),
        has=ancestors.__contains__,
        oldest_sequence_number=(oldest.sequence_number or 0) if oldest else 0,
        is_whole=oldest is None or oldest.parent_snapshot_id is None,
        last_round=lambda: next((_mark(s) for s in line if s.summary and s.summary.get(OPERATION) in ROUNDS), None),
    )
    if (lost := lost_marks(table.properties, history, name)) is None:
        return table.properties
    summaries, parent = list[Mapping[str, str]](), lost.ingested.snapshot_id if lost.ingested else None
    while parent is not None and parent not in ancestors and (snapshot := by_id.get(parent)) is not None:
        summaries.append(dict(snapshot.summary.additional_properties) if snapshot.summary else {})
        parent = snapshot.parent_snapshot_id
    gone = GoneCommits(tuple(summaries), parent is None or parent in ancestors)
    return after_rewriting(table.properties, history, lost, gone, name)


def _mark(snapshot: Snapshot) -> Mark:
    return Mark(snapshot.snapshot_id, snapshot.sequence_number or 0)
