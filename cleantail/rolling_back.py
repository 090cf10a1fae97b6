"""Adapter: what a rollback would do, from Iceberg metadata through PyIceberg, without Spark. Changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cleantail.catalogs import load_table, open_catalog
from cleantail.config import Platform, Topic
from cleantail.errors import CleantailError
from cleantail.partition_state import PartitionState, states_of_properties
from cleantail.rollback import Commit, RollbackPlan, answer_to, plan_rollback
from cleantail.table_metadata import added_files, live_files

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class LogUndo:
    """One log now and after a rollback: its checkpoint (None before a first round) and its live records."""

    partition: int
    checkpoint: int | None
    checkpoint_after: int | None
    records: int
    records_after: int


def preview(topic: Topic, platform: Platform, to: int | None) -> tuple[RollbackPlan, tuple[LogUndo, ...]]:
    """The plan on the table as it is now, and what it means for each log. Raises as plan_rollback does."""
    table = load_table(open_catalog(platform, os.environ), topic, platform)
    if table is None:
        raise CleantailError(f"topic {topic.topic} has no table yet: nothing to undo")
    plan = plan_rollback(list(history_of(table)), to, topic.table)
    return plan, tuple(_logs(table, plan))


def done_already(topic: Topic, platform: Platform, request: str) -> Commit | None:
    """The rollback in main's history that the same request asked for."""
    table = load_table(open_catalog(platform, os.environ), topic, platform)
    return answer_to(list(history_of(table)), request) if table is not None else None


def history_of(table: Table) -> Iterator[Commit]:
    """The ancestry of `main`, newest first, as far as it is kept."""
    by_id: dict[int, Any] = {s.snapshot_id: s for s in table.metadata.snapshots}
    snapshot: Any = table.current_snapshot()
    while snapshot is not None:
        summary = snapshot.summary
        operation = summary.operation.value if summary else ""
        own = dict(summary.additional_properties) if summary else {}
        yield Commit(snapshot.snapshot_id, snapshot.parent_snapshot_id, snapshot.timestamp_ms, operation, own)
        snapshot = by_id.get(snapshot.parent_snapshot_id)


def _logs(table: Table, plan: RollbackPlan) -> Iterator[LogUndo]:
    now = _records(live_files(table, table.metadata.current_snapshot_id))
    after = _records(live_files(table, plan.to_snapshot_id))
    for snapshot_id in plan.appends:
        for partition, records in _records(added_files(table, snapshot_id)).items():
            after[partition] = after.get(partition, 0) + records
    states = states_of_properties(table.properties, ".".join(table.name()))
    for partition in sorted({*now, *after, *plan.states}):
        state = states.get(partition, PartitionState())
        before = plan.states.get(partition, state)
        checkpoint = before.checkpoint if before else None
        yield LogUndo(partition, state.checkpoint, checkpoint, now.get(partition, 0), after.get(partition, 0))


def _records(files: Any) -> dict[int, int]:
    counts: dict[int, int] = {}
    for file in files:
        counts[file.partition] = counts.get(file.partition, 0) + file.live_records
    return counts
