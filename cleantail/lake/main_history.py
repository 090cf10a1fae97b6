"""The history of `main` by PyIceberg, and a table's properties as they count (cleantail.rounds.rewritten_history)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cleantail.log.main_history import PROPERTY_HISTORY, MainHistory, Mark
from cleantail.rounds.rewritten_history import GoneCommits, after_rewriting, lost_marks

if TYPE_CHECKING:
    from pyiceberg.table import Table


def properties_that_count(table: Table) -> Mapping[str, str]:
    """Return a table's properties; if others rewrote its history, those that are left. Raises TableError."""
    if PROPERTY_HISTORY not in table.properties:
        return table.properties
    name, by_id = ".".join(table.name()), {s.snapshot_id: s for s in table.metadata.snapshots}
    current = table.current_snapshot()
    ancestors, oldest, at = set[int](), current, current
    while at is not None:
        ancestors.add(at.snapshot_id)
        oldest, at = at, by_id.get(at.parent_snapshot_id) if at.parent_snapshot_id is not None else None
    history = MainHistory(
        table_uuid=str(table.metadata.table_uuid),
        current=None if current is None else Mark(current.snapshot_id, current.sequence_number or 0),
        has=ancestors.__contains__,
        oldest_sequence_number=(oldest.sequence_number or 0) if oldest else 0,
        is_whole=oldest is None or oldest.parent_snapshot_id is None,
    )
    if (lost := lost_marks(table.properties, history, name)) is None:
        return table.properties
    summaries, parent = list[Mapping[str, str]](), lost.ingested.snapshot_id if lost.ingested else None
    while parent is not None and parent not in ancestors and (snapshot := by_id.get(parent)) is not None:
        summaries.append(dict(snapshot.summary.additional_properties) if snapshot.summary else {})
        parent = snapshot.parent_snapshot_id
    gone = GoneCommits(tuple(summaries), parent is None or parent in ancestors)
    return after_rewriting(table.properties, history, lost, gone, name)
