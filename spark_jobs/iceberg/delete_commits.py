"""Says what a round deletes, as commits: staged on its branch, and replayed onto `main` (commits.publish_deletes).

A file that a sink has registered more than once is registered once before anything is deleted of it: deletes hide a
record in every registration of its file. That takes a commit of its own for each sequence number that files came with,
since a rewrite gives all of its files one. They come right before the round's own, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JJavaError

from cleantail.adopt.adoption import VECTORS_VERSION
from cleantail.errors import ConflictError
from cleantail.rounds.size_history import OPERATION, REGISTERED_ONCE
from spark_jobs.iceberg.commit_errors import conflict
from spark_jobs.iceberg.delete_files import format_version
from spark_jobs.iceberg.iceberg_reads import (
    BranchChange,
    KeptFile,
    data_files_of,
    files_with_deletes,
    history,
    identity,
)
from spark_jobs.iceberg.jvm.manifest_threads import committing
from spark_jobs.iceberg.jvm.many_calls import answers

Registrations = Mapping[str, tuple[tuple[int, tuple[tuple[str, int], ...]], ...]]
"""Data file -> (sequence number, its delete files) of each of its registrations, in their order."""


def stage_deletes(
    jvm: Any, iceberg: Any, branch: str, base_snapshot_id: int, change: BranchChange, summary: Mapping[str, str]
) -> None:
    """Creates the branch at the base, in place of one that a killed run left behind, with the change on it. Raises
    OvertakenError where another commit to the table came first, and ConflictError."""
    transaction = iceberg.newTransaction()
    try:
        refs = transaction.manageSnapshots()
        refs = refs.removeBranch(branch) if iceberg.refs().containsKey(branch) else refs
        refs.createBranch(branch, base_snapshot_id).commit()
        change = register_once(jvm, iceberg, transaction, change, base_snapshot_id, branch)
        delta = committing(transaction.newRowDelta(), iceberg).toBranch(branch).validateFromSnapshot(base_snapshot_id)
        _add(delta, change)
        with_summary(delta, summary).commit()
        transaction.commitTransaction()
    except Py4JJavaError as e:
        raise conflict(e) from None


def register_once(
    jvm: Any, iceberg: Any, operations: Any, change: BranchChange, since: int, branch: str | None = None
) -> BranchChange:
    """Commits rewrites after which each file that is kept is registered once, and returns what is left of the change.

    `operations`: the table itself, or a transaction on it. A file's old delete files go with its registrations: Iceberg
    drops those that are older than all other files. A new deletion vector comes in the same commit; position deletes
    may come later, and a row delta that adds them must find that no other has come since.
    """
    if not change.kept:
        return change
    paths = {str(kept.file.location()) for kept in change.kept}
    removed, added = _deletes_of(iceberg, since, paths), _by_data_file(jvm, change.added, paths)
    at_once = [path for path in removed if format_version(iceberg) >= VECTORS_VERSION]
    for sequence_number in sorted({kept.sequence_number for kept in change.kept}):
        rewrite = (
            committing(operations.newRewrite(), iceberg).validateFromSnapshot(since).dataSequenceNumber(sequence_number)
        )
        rewrite = rewrite.toBranch(branch) if branch else rewrite
        for file in (k.file for k in change.kept if k.sequence_number == sequence_number):
            path = str(file.location())
            # a copy does not say in which manifest it is: the file goes from all of them
            copy = jvm.org.apache.iceberg.DataFiles.builder(iceberg.specs().get(file.specId())).copy(file).build()
            rewrite.deleteFile(copy).addFile(copy)
            for delete in removed.get(path, ()):
                rewrite.deleteFile(delete)
            for delete in added.get(path, ()) if path in at_once else ():
                rewrite.addFile(delete)
        with_summary(rewrite, {OPERATION: REGISTERED_ONCE}).commit()
    done = {identity(f) for files in removed.values() for f in files}
    done |= {identity(f) for path in at_once for f in added.get(path, ())}
    left = [tuple(f for f in files if identity(f) not in done) for files in (change.added, change.removed)]
    return replace(change, added=left[0], removed=left[1])


def _deletes_of(iceberg: Any, snapshot_id: int, paths: Collection[str]) -> dict[str, list[Any]]:
    """Returns data file -> the delete files of all its registrations in a snapshot, of the files that are named. What a
    snapshot says that it has removed lacks the bounds by which position deletes are known to be of one file."""
    by_file: dict[str, dict[tuple[str, int], Any]] = {}
    for file, deletes in files_with_deletes(iceberg, snapshot_id):
        if deletes and (path := str(file.location())) in paths:
            by_file.setdefault(path, {}).update((identity(delete), delete) for delete in deletes)
    return {path: list(deletes.values()) for path, deletes in by_file.items()}


def _by_data_file(jvm: Any, deletes: Iterable[Any], paths: Collection[str]) -> dict[str, list[Any]]:
    """Returns data file -> its delete files, of the files that are named."""
    by_file: dict[str, list[Any]] = {}
    some = list(deletes)
    for path, delete in zip(data_files_of(jvm, some), some, strict=True):
        if path in paths:
            by_file.setdefault(path, []).append(delete)
    return by_file


def same_deletes_since(jvm: Any, iceberg: Any, base_snapshot_id: int, change: BranchChange) -> int:
    """Returns the snapshot that the table is at. Raises ConflictError unless the data files that are to change are
    registered as they were in the base, with the same delete files.

    With deletion vectors Iceberg makes sure of these by itself. Of position deletes it only knows whether any were
    added at all: that is right from the returned snapshot on, and too strict from the base on.
    """
    now = int(iceberg.currentSnapshot().snapshotId())
    if now == base_snapshot_id:
        return now
    if not any(commit.snapshot_id == base_snapshot_id for commit in history(iceberg)):
        raise ConflictError("what the round read was rolled back, or has expired, which makes its result void")
    touched = {*data_files_of(jvm, change.added), *(str(k.file.location()) for k in change.kept)}
    before, after = (_registrations(iceberg, snapshot_id, change.kept) for snapshot_id in (base_snapshot_id, now))
    for path in sorted(touched):
        if after.get(path) != before.get(path):
            raise ConflictError(f"{path} was rewritten, registered again or got other deletes after the round read it")
    return now


def _registrations(iceberg: Any, snapshot_id: int, kept: Iterable[KeptFile]) -> Registrations:
    """Returns how each data file of a snapshot is registered. Of those that are not kept once it does not count when
    they came."""
    once = {str(k.file.location()) for k in kept}
    by_path: dict[str, list[tuple[int, tuple[tuple[str, int], ...]]]] = {}
    for file, deletes in files_with_deletes(iceberg, snapshot_id):
        path = str(file.location())
        arrived = int(file.dataSequenceNumber()) if path in once else 0
        by_path.setdefault(path, []).append((arrived, tuple(sorted(identity(delete) for delete in deletes))))
    return {path: tuple(sorted(registrations)) for path, registrations in by_path.items()}


def replay(jvm: Any, delta: Any, change: BranchChange, by_position: bool) -> None:
    """Replays the delete files. A data file that a round changes has one delete file after it, which replaces those
    that the base had."""
    referenced, once = jvm.java.util.ArrayList(), {str(k.file.location()) for k in change.kept}
    _add(delta, change)
    # the transaction has taken a file that is kept once away itself, and put it there again
    answers((referenced.add, (path,)) for path in data_files_of(jvm, change.added) if path not in once)
    delta.validateDataFilesExist(referenced)
    if by_position:
        delta.validateNoConflictingDeleteFiles()


def _add(delta: Any, change: BranchChange) -> None:
    """Tells a row delta which delete files go and which come."""
    removed = ((delta.removeDeletes, (file,)) for file in change.removed)
    answers([*removed, *((delta.addDeletes, (file,)) for file in change.added)])


def with_summary(update: Any, summary: Mapping[str, str]) -> Any:
    """Returns the update with entries in its snapshot's summary."""
    answers((update.set, (key, value)) for key, value in summary.items())
    return update
