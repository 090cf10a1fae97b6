"""The commits that readers see: appends, published deletes, rewrites and rollbacks, each all or nothing on `main`.

All work the same way: the change is written to files that readers do not see, on a branch or in no snapshot, then these
are put onto `main` in one Iceberg transaction together with the table properties that go with it (docs/architecture.md,
decision 4). A crash leaves all that was old or all that is new, and appends to `main` meanwhile neither block nor break
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException

from cleantail.errors import ConflictError
from cleantail.retries import COMMITS
from cleantail.rounds.rollback import Commit, writer_entries
from spark_jobs.iceberg.commit_errors import conflict, overtaken, void
from spark_jobs.iceberg.delete_commits import register_once, replay, same_deletes_since, with_summary
from spark_jobs.iceberg.iceberg_reads import (
    BranchChange,
    added_by,
    history,
    require_own_deletes,
    texts,
)
from spark_jobs.iceberg.jvm.manifest_threads import committing
from spark_jobs.iceberg.jvm.many_calls import answers, ask

if TYPE_CHECKING:
    from spark_jobs.iceberg.tables import TopicTable


@dataclass(frozen=True, slots=True)
class Rollback:
    """Says what `main` becomes: a snapshot of its history (None: nothing), an empty commit with `summary`, the appends
    again. `removed`: names of properties that go."""

    to_snapshot_id: int | None
    appends: tuple[int, ...]
    properties: Mapping[str, str]
    summary: Mapping[str, str]
    removed: tuple[str, ...] = ()


def append_files(
    table: TopicTable, files: Sequence[Any], properties: Mapping[str, str], summary: Mapping[str, str]
) -> None:
    """Appends data files to `main`, with the properties, in one commit, and only where the table has none of these: by
    them it is known that the files were appended. A lock of one machine does not hold back a driver elsewhere that was
    given up, and goes on. Raises ConflictError, with nothing appended, where somebody else was faster."""

    def once() -> None:
        iceberg = table.load()
        transaction = iceberg.newTransaction()
        there = texts(iceberg.properties())
        if faster := sorted(name for name in properties if name in there):
            raise ConflictError(f"another ingestion into {table.topic.table} has set {faster[0]}: nothing was appended")
        append = committing(transaction.newAppend(), iceberg)
        answers((append.appendFile, (file,)) for file in files)
        with_summary(append, summary).commit()
        try:
            _commit(transaction, properties)
        except Py4JJavaError as e:
            raise conflict(e) from None

    COMMITS.run(once)


def publish_deletes(
    table: TopicTable,
    branch_changes: Sequence[BranchChange],
    partitions: set[int],
    base_snapshot_id: int,
    properties: Mapping[str, str],
    summary: Mapping[str, str],
    branches: Iterable[str] = (),
    before: Mapping[str, str] | None = None,
) -> int:
    """Replays the delete files of the given partitions onto `main`, and drops the branches that had them; returns the
    new snapshot's id.

    `before`: the table's properties as they were read for what is written. Where one that is written is another by
    now, somebody else has published, perhaps this very round: a driver that was given up, and goes on.

    A delete file of an adopted table may be of several logs: there the partitions are all or none.

    A round that removes nothing makes a snapshot too: with its summary it can be undone. Raises ConflictError when
    a data file in which it deletes was rewritten, or got other deletes, since the base snapshot, or when that is gone;
    also when a file that it keeps once was registered again.
    """
    if table.topic.columns is None:
        branch_changes = [change.of_partitions(partitions) for change in branch_changes]
    change = reduce(_joined, branch_changes, BranchChange((), (), 0)) if partitions else BranchChange((), (), 0)
    by_position = "PARQUET" in ask(ask(change.added, "format"), "toString")

    def once() -> int:
        iceberg = table.load()
        since = base_snapshot_id
        if by_position or change.kept:
            now = same_deletes_since(table.jvm, iceberg, base_snapshot_id, change)
            since = now if by_position else since
        transaction = iceberg.newTransaction()
        if before is not None:
            _require_as_read(table, texts(transaction.table().properties()), before, properties)
        try:
            if partitions:
                rest = register_once(table.jvm, iceberg, transaction, change, since)
                delta = (
                    committing(transaction.newRowDelta(), iceberg).validateFromSnapshot(since).validateDeletedFiles()
                )
                replay(table.jvm, delta, rest, by_position)
                with_summary(delta, summary).commit()
            _drop(transaction, [branch for branch in branches if iceberg.refs().containsKey(branch)])
            _commit(transaction, properties)
        except Py4JJavaError as e:
            raise overtaken(e) if by_position else conflict(e) from None
        except IllegalArgumentException as e:
            raise void(e) from None
        return int(transaction.currentMetadata().currentSnapshot().snapshotId())

    return COMMITS.run(once)


def _require_as_read(
    table: TopicTable, now: Mapping[str, str], before: Mapping[str, str], written: Mapping[str, str]
) -> None:
    """Raises ConflictError where a property that is written is not any more what it was."""
    if changed := sorted(name for name in written if now.get(name) != before.get(name)):
        raise ConflictError(f"{table.topic.table} has another {changed[0]} than the round went by: somebody published")


def _joined(one: BranchChange, other: BranchChange) -> BranchChange:
    return BranchChange(one.added + other.added, one.removed + other.removed, 0, one.kept + other.kept)


def replace_files(
    table: TopicTable,
    new: Iterable[Any],
    old: Iterable[tuple[Any, Sequence[Any]]],
    base_snapshot_id: int,
    sequence_number: int,
    summary: Mapping[str, str],
) -> None:
    """Replaces data files, each with its delete files as the base has them, by others; these keep the sequence number
    by which a round knew the old. Raises ConflictError when an old file has changed meanwhile."""
    iceberg = table.load()
    rewrite = committing(iceberg.newRewrite(), iceberg).validateFromSnapshot(base_snapshot_id)
    rewrite = rewrite.dataSequenceNumber(sequence_number)
    replaced = list(old)
    paths = map(str, ask([file for file, _ in replaced], "location"))
    require_own_deletes(table.jvm, zip(paths, (deletes for _, deletes in replaced), strict=True))
    gone = (each for file, deletes in replaced for each in (file, *deletes))
    answers([*((rewrite.deleteFile, (file,)) for file in gone), *((rewrite.addFile, (file,)) for file in new)])
    try:
        with_summary(rewrite, summary).commit()
    except Py4JJavaError as e:
        raise conflict(e) from None
    except IllegalArgumentException as e:
        raise void(e) from None


def roll_back(table: TopicTable, plan: Callable[[Sequence[Commit], Mapping[str, str]], Rollback]) -> int:
    """Makes `main` the snapshot that `plan` names, with the appends that it keeps; returns the new snapshot's id.

    `plan` gets main's history, newest first, and the table's properties. One commit, and only onto the metadata
    that was planned on: with whatever another writer commits meanwhile it is planned anew. Raises ConflictError
    when others were faster every time.
    """

    def once() -> int:
        transaction = table.load().newTransaction()
        iceberg = transaction.table()
        rollback = plan(list(history(iceberg)), texts(iceberg.properties()))
        _lay_out(table, transaction, iceberg, rollback)
        try:
            # not commitTransaction: that would lay the change onto whatever came in between
            transaction.underlyingOps().commit(transaction.startMetadata(), transaction.currentMetadata())
        except Py4JJavaError as e:
            raise conflict(e) from None
        return int(transaction.currentMetadata().currentSnapshot().snapshotId())

    return COMMITS.run(once)


def _lay_out(table: TopicTable, transaction: Any, iceberg: Any, rollback: Rollback) -> None:
    """Stages the rollback in its order: back to the snapshot, an empty commit of its own, the appends, the
    properties."""
    appends = [(iceberg.snapshot(s), added_by(iceberg, s)) for s in rollback.appends]
    _go_back(table, transaction, rollback.to_snapshot_id)
    with_summary(committing(transaction.newFastAppend(), iceberg), rollback.summary).commit()
    for snapshot, files in appends:
        append = committing(transaction.newFastAppend(), iceberg)
        answers((append.appendFile, (file,)) for file in files)
        with_summary(append, writer_entries(texts(snapshot.summary()))).commit()
    _set(transaction, rollback.properties, rollback.removed)


def _go_back(table: TopicTable, transaction: Any, snapshot_id: int | None) -> None:
    """Sets `main` to the snapshot, or removes it, as it was before its first commit: for that Iceberg has no call."""
    if snapshot_id is not None:
        transaction.manageSnapshots().setCurrentSnapshot(snapshot_id).commit()
        return
    operations = transaction.table().operations()
    now = operations.current()
    before = table.jvm.org.apache.iceberg.TableMetadata.buildFrom(now).removeRef("main").build()
    operations.commit(now, before)


def _drop(transaction: Any, branches: Sequence[str]) -> None:
    if not branches:
        return
    refs = transaction.manageSnapshots()
    answers((refs.removeBranch, (branch,)) for branch in branches)
    refs.commit()


def _commit(transaction: Any, properties: Mapping[str, str]) -> None:
    """Commits the transaction and the properties that go with it, all or nothing, and only onto the metadata that it
    was planned on: commitTransaction would lay the change onto whatever came in between."""
    _set(transaction, properties)
    transaction.underlyingOps().commit(transaction.startMetadata(), transaction.currentMetadata())


def _set(transaction: Any, properties: Mapping[str, str], removed: Iterable[str] = ()) -> None:
    update = transaction.updateProperties()
    answers((update.set, (key, value)) for key, value in properties.items())
    answers((update.remove, (key,)) for key in removed)
    update.commit()
