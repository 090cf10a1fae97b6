"""The history of `main` through the JVM, and the commit that takes note that others rewrote it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cleantail.errors import ConflictError
from cleantail.rounds.commit_summaries import OPERATION, ROUNDS
from cleantail.rounds.rewritten_history import (
    GoneCommits,
    MainHistory,
    Mark,
    after_rewriting,
    changes,
    lost_marks,
    marks_of,
    may_be_rewritten,
    property_of_marks,
)
from spark_jobs.iceberg.iceberg_reads import texts
from spark_jobs.iceberg.jvm.static_members import static

SNAPSHOTS = "org.apache.iceberg.util.SnapshotUtil"


def main_history(jvm: Any, iceberg: Any) -> MainHistory:
    """Return the history of `main` of an Iceberg `Table`, also of one of a transaction."""
    current = iceberg.currentSnapshot()
    oldest = static(jvm, SNAPSHOTS, "oldestAncestor")(iceberg) if current is not None else None
    return MainHistory(
        table_uuid=str(iceberg.uuid()),
        current=mark_of(current),
        has=lambda snapshot_id: is_ancestor(jvm, iceberg, snapshot_id),
        oldest_sequence_number=int(oldest.sequenceNumber()) if oldest is not None else 0,
        is_whole=oldest is None or oldest.parentId() is None,
        last_round=lambda: _last_round(iceberg),
    )


def _last_round(iceberg: Any) -> Mark | None:
    snapshot = iceberg.currentSnapshot()
    while snapshot is not None and snapshot.summary().get(OPERATION) not in ROUNDS:
        snapshot = iceberg.snapshot(snapshot.parentId()) if snapshot.parentId() is not None else None
    return mark_of(snapshot)


def is_ancestor(jvm: Any, iceberg: Any, snapshot_id: int) -> bool:
    """Return whether a snapshot is in the ancestry of `main`."""
    if iceberg.currentSnapshot() is None:
        return False
    return bool(static(jvm, SNAPSHOTS, "isAncestorOf")(iceberg, snapshot_id))


def mark_of(snapshot: Any) -> Mark | None:
    """Return the mark of a snapshot; None if there is none."""
    return None if snapshot is None else Mark(int(snapshot.snapshotId()), int(snapshot.sequenceNumber()))


def require_history(jvm: Any, iceberg: Any, table: str) -> None:
    """Raises ConflictError if others rewrote the history of `main`, and no commit took note of it yet."""
    properties = texts(iceberg.properties())
    if may_be_rewritten(properties) and lost_marks(properties, main_history(jvm, iceberg), table):
        raise ConflictError(
            f"{table}: another program took the last round or the last ingestion out of the history of main (a "
            "rollback, or CREATE OR REPLACE TABLE): nothing was changed. The next run starts from what "
            "the table has now"
        )


def marked(transaction: Any, table: str, *, published: bool = False, ingested: bool = False) -> dict[str, str]:
    """Return the property with marks at the snapshot that a transaction has just made. The first one marks the last
    ingestion too: versions without marks made those before it."""
    now = transaction.table()
    marks, mark = marks_of(texts(now.properties()), table, str(now.uuid())), mark_of(now.currentSnapshot())
    marks = replace(marks, published=mark) if published else marks
    return property_of_marks(replace(marks, ingested=mark) if ingested or marks.ingested is None else marks)


def properties_after(jvm: Any, iceberg: Any, table: str, at_ms: int) -> tuple[dict[str, str], tuple[str, ...], bool]:
    """Return which properties to set and to remove if others rewrote the history, and whether a published round is
    gone with it."""
    properties = texts(iceberg.properties())
    if not may_be_rewritten(properties):
        return {}, (), False
    history = main_history(jvm, iceberg)
    if (lost := lost_marks(properties, history, table)) is None:
        return {}, (), False
    gone = GoneCommits((), True)
    if lost.ingested:
        gone = _gone(iceberg, history, lost.ingested.snapshot_id)
    after = after_rewriting(properties, history, lost, gone, table, at_ms)
    return *changes(properties, after), lost.published is not None


def _gone(iceberg: Any, history: MainHistory, snapshot_id: int) -> GoneCommits:
    """Return the commits from a lost one back to the ancestry of `main`."""
    summaries, parent = list[Mapping[str, str]](), snapshot_id
    while parent is not None and not history.has(parent) and (snapshot := iceberg.snapshot(parent)) is not None:
        summaries.append(texts(snapshot.summary()))
        parent = snapshot.parentId()
    return GoneCommits(tuple(summaries), parent is None or history.has(parent))
