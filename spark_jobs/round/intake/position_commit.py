"""Records and how far their source was read in one commit, and only onto the position that was read from.

Every such commit makes a snapshot of `main`, also one that brings no record. By that a catalog sees any two of them as
what they are, one after the other: the later one finds another position than it was planned on, and appends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError

from cleantail.errors import ConflictError
from cleantail.log.source_position import PROPERTY_POSITION
from cleantail.retries import COMMITS
from spark_jobs.iceberg.commit_errors import unknown_or_conflict
from spark_jobs.iceberg.delete_commits import with_summary
from spark_jobs.iceberg.iceberg_reads import texts
from spark_jobs.iceberg.jvm.manifest_threads import committing
from spark_jobs.iceberg.tables import TopicTable


@dataclass(frozen=True, slots=True)
class Advance:
    """Says how a commit moves the position: its text `before` (None where there was none) and `after`, and the summary
    of the snapshot. A first read goes on behind the files that the table had at `base_snapshot_id`. `name`: the table
    property that has the position."""

    before: str | None
    after: str
    summary: Mapping[str, str]
    base_snapshot_id: int | None = None
    name: str = PROPERTY_POSITION


def append_and_advance(table: TopicTable, files: Sequence[Any], advance: Advance) -> None:
    """Appends the data files to `main` and moves the position, both or neither.

    A change that is there already is done: so a commit of which the answer was lost is tried again. Raises
    ConflictError where another ingestion has moved the position meanwhile; then nothing was appended.
    """

    def once() -> None:
        transaction = table.load().newTransaction()
        text = texts(transaction.table().properties()).get(advance.name)
        if text == advance.after:
            return
        if text != advance.before or not _has_same_files(transaction.table(), advance):
            raise ConflictError(f"another ingestion into {table.topic.table} was faster: nothing was appended")
        _stage(transaction, files, advance)
        try:
            # not commitTransaction: that would lay the change onto whatever came in between
            transaction.underlyingOps().commit(transaction.startMetadata(), transaction.currentMetadata())
        except Py4JJavaError as e:
            raise unknown_or_conflict(e) from None

    COMMITS.run(once)


def _has_same_files(table: Any, advance: Advance) -> bool:
    """Returns whether a first read may go on where it was planned: once there is a position, files cannot come beyond
    it."""
    if advance.before is not None:
        return True
    snapshot = table.currentSnapshot()
    return advance.base_snapshot_id == (None if snapshot is None else int(snapshot.snapshotId()))


def _stage(transaction: Any, files: Sequence[Any], advance: Advance) -> None:
    append = committing(transaction.newAppend() if files else transaction.newFastAppend(), transaction.table())
    for file in files:
        append.appendFile(file)
    with_summary(append, advance.summary).commit()
    transaction.updateProperties().set(advance.name, advance.after).commit()
