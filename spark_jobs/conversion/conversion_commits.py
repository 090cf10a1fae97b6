"""The commits of a conversion: on a branch that no reader sees, and from there onto `main`, with the same delete files.

What was found stays true whatever is appended meanwhile, and whatever deletes by value come: these are of files as they
are. It does not where a data file in which records are deleted was rewritten or got other deletes, or where a delete
file that is to go has gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException

from cleantail.adopt.equality_deletes import Converted
from cleantail.errors import ConflictError
from cleantail.retries import COMMITS
from cleantail.rounds.size_history import CONVERT, OPERATION
from spark_jobs.conversion.snapshot_entries import SnapshotEntries, registrations, snapshot_entries
from spark_jobs.iceberg.branches import branch_name, change_refs, created_at_s
from spark_jobs.iceberg.commit_errors import overtaken, void
from spark_jobs.iceberg.delete_commits import replay, stage_deletes, with_summary
from spark_jobs.iceberg.iceberg_reads import BranchChange, data_file_of, history, identity
from spark_jobs.iceberg.jvm.java_collections import each
from spark_jobs.iceberg.jvm.manifest_threads import committing

STEM = "rw_deletes"
"""What the names of a conversion's branches begin with."""
STALE_S = 86_400
"""A branch that is older was left behind by a killed run."""
Load = Callable[[], Any]


def stage(jvm: Any, load: Load, base: int, change: BranchChange, done: Converted) -> str:
    """Commits the change to a new branch at the base, and returns its name."""
    branch = branch_name(STEM)
    try:
        COMMITS.run(lambda: stage_deletes(jvm, load(), branch, base, change, _summary(done)))
    except IllegalArgumentException as e:
        raise void(e) from None
    return branch


def undo_stage(load: Load, branch: str) -> None:
    """Takes the branch away, if it is there."""
    change_refs(
        load, lambda table: table.manageSnapshots().removeBranch(branch) if table.refs().containsKey(branch) else None
    )


def drop_stale(load: Load) -> None:
    """Takes branches away that killed runs have left behind, a day later."""
    before_s = time.time() - STALE_S
    for name in [str(name) for name in each(load().refs().keySet())]:
        if name.startswith(STEM) and created_at_s(name) < before_s:
            undo_stage(load, name)


def publish(
    jvm: Any, load: Load, base: int, entries: SnapshotEntries, change: BranchChange, done: Converted, branch: str
) -> int:
    """Commits the change to `main` and drops the branch, all or nothing; returns the new snapshot's id. Raises
    ConflictError where what it rests on has changed."""

    def once() -> None:
        table = load()
        now = int(table.currentSnapshot().snapshotId())
        if now != base:
            _require_unchanged(jvm, table, base, entries, change)
        transaction = table.newTransaction()
        try:
            delta = committing(transaction.newRowDelta(), table).validateFromSnapshot(now).validateDeletedFiles()
            replay(jvm, delta, change, by_position=True)
            with_summary(delta, _summary(done)).commit()
            if table.refs().containsKey(branch):
                transaction.manageSnapshots().removeBranch(branch).commit()
            transaction.commitTransaction()
        except Py4JJavaError as e:
            raise overtaken(e) from None
        except IllegalArgumentException as e:
            raise void(e) from None

    COMMITS.run(once)
    return int(load().currentSnapshot().snapshotId())


def _require_unchanged(jvm: Any, table: Any, base: int, entries: SnapshotEntries, change: BranchChange) -> None:
    """Raises ConflictError unless the data files in which records are deleted are registered as in the base, with the
    same delete files of their own, and all delete files that are to go are there."""
    if not any(commit.snapshot_id == base for commit in history(table)):
        raise ConflictError("what the conversion read was rolled back, or has expired, which makes its result void")
    later = snapshot_entries(jvm, table, int(table.currentSnapshot().snapshotId()))
    before, after = registrations(entries), registrations(later)
    for path in sorted(data_file_of(jvm, file) for file in change.added):
        if before[path] != after.get(path):
            raise ConflictError(f"{path} was rewritten, registered again or got other deletes meanwhile")
    there = {identity(e.file) for e in later.foreign} | {identity(e.file) for own in later.own.values() for e in own}
    for file in change.removed:
        if identity(file) not in there:
            raise ConflictError(f"{file.location()} was taken away meanwhile")


def _summary(done: Converted) -> dict[str, str]:
    return {
        OPERATION: CONVERT,
        "cleantail.converted-equality-deletes": str(done.equality_deletes),
        "cleantail.converted-shared-position-deletes": str(done.shared_position_deletes),
    }
