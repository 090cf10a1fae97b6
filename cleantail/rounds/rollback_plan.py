"""Undo rounds: restore a topic's table and its logs' states from before them, and keep later appends. Pure.

1. A rollback makes `main` the snapshot before the undone rounds, and adds each later append again. An append keeps its
   files, its offsets and the marks of its source files.
2. Deletes and rewrites of those rounds, and of `reclaim` since, are left out.
3. A rollback is refused if a later commit is not a round of Cleantail, an append, or a rewrite that changes no record.
   Undoing such a commit would lose the work of another writer.
4. The logs' states return to those before the rounds. The log end never moves back, and a quarantine stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from typing import Any

from cleantail.errors import CleantailError, NoSnapshotError, TableError
from cleantail.human import instant
from cleantail.log.partition_state import PartitionState
from cleantail.rounds.commit_summaries import (
    BEFORE,
    CONVERT,
    MEND,
    OPERATION,
    REQUEST,
    ROLLBACK,
    ROUND,
    UNDONE,
    Commit,
    freed_by_reclaims,
    unpacked,
    whole_rounds,
)


@dataclass(frozen=True, slots=True)
class UndoneRound:
    """A published round that a rollback undoes. The rollback returns to `before_snapshot_id`."""

    round: str
    kind: str
    snapshot_id: int
    at_ms: int
    before_snapshot_id: int | None


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """The plan of a rollback. `appends`: the snapshots whose files are appended again, oldest first. `states`: those of
    the touched logs before the undone rounds, None if a log had no state. `freed_bytes`: bytes that the
    undone reclaims had freed and that files take again. `earlier`: published rounds that stay and could be undone
    too."""

    to_snapshot_id: int
    to_at_ms: int
    undone: tuple[UndoneRound, ...]
    appends: tuple[int, ...]
    rewrites: int
    states: Mapping[int, PartitionState | None]
    freed_bytes: int = 0
    earlier: tuple[UndoneRound, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "to_snapshot_id": self.to_snapshot_id,
            "to_at_ms": self.to_at_ms,
            "undone": [asdict(u) for u in self.undone],
            "appends_kept": len(self.appends),
            "rewrites_undone": self.rewrites,
            "earlier": [asdict(u) for u in self.earlier],
        }


def plan_rollback(
    history: Sequence[Commit], to: int | None, table: str, states: Mapping[int, PartitionState]
) -> RollbackPlan:
    """Plan the rollback to snapshot `to`, or to before the last published round if `to` is None.

    `history` is the ancestry of `main`, newest first, as far as it is kept. `states`: those of the logs now. Raises
    CleantailError if there is no round to undo. Raises TableError if the history does not reach that far or has a
    commit that cannot be undone. It is also raised if another program changed the horizons of tombstones after a round
    to undo.
    """
    # 1. the commits since the snapshot to go back to, with at least one round among them
    history = whole_rounds(history)
    target = _target(history, to, table)
    since = history[: history.index(target)]
    rounds = [c for c in since if c.is_round]
    if not rounds:
        raise CleantailError(f"{table}: no round was published after snapshot {target.snapshot_id}: nothing to undo")
    # 2. a rollback must be able to undo each of them
    for commit in since:
        if reason := _refusal(commit):
            raise TableError(f"{table}: {reason}")
    # 3. the earliest round of a log decides; the state before a round is the state after the log's earlier round
    before: dict[int, PartitionState | None] = {}
    for commit in rounds:
        where = f"{table}: {BEFORE} of snapshot {commit.snapshot_id}"
        before |= unpacked(commit.summary[BEFORE], {**states, **before}, where)
    return RollbackPlan(
        to_snapshot_id=target.snapshot_id,
        to_at_ms=target.at_ms,
        undone=tuple(_undone(c) for c in rounds),
        appends=kept_appends(since),
        rewrites=sum(c.operation == "replace" for c in since),
        states=before,
        freed_bytes=freed_by_reclaims(since),
        earlier=published_rounds(history[history.index(target) :]),
    )


def kept_appends(since: Sequence[Commit]) -> tuple[int, ...]:
    """Return the snapshots of these commits (newest first) whose files are appended again, oldest first."""
    return tuple(c.snapshot_id for c in reversed(since) if c.operation == "append" and not _is_record(c))


def published_rounds(history: Sequence[Commit]) -> tuple[UndoneRound, ...]:
    """Return the rounds in `main`'s kept history that a rollback can still undo, newest first."""
    history = whole_rounds(history)
    kept = {c.snapshot_id for c in history}
    within_reach = takewhile(lambda c: not _refusal(c), history)
    return tuple(_undone(c) for c in within_reach if c.is_round and c.parent_id in kept)


def rollbacks(history: Sequence[Commit]) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """Return (Unix ms, names of the undone rounds) of each rollback in `main`'s kept history."""
    return tuple((c.at_ms, tuple(c.summary.get(UNDONE, "").split(","))) for c in history if _is_record(c))


def _target(history: Sequence[Commit], to: int | None, table: str) -> Commit:
    by_id = {c.snapshot_id: c for c in history}
    if to is not None:
        if to not in by_id:
            raise NoSnapshotError(
                f"{table}: snapshot {to} is not in the table's history: it never was there, has expired or was undone",
                to,
            )
        return by_id[to]
    last = next((c for c in history if c.is_round), None)
    if last is None:
        raise CleantailError(f"{table}: no published round is in the kept history: nothing to undo")
    if last.parent_id is None or last.parent_id not in by_id:
        raise TableError(
            f"{table}: the snapshot before round {last.summary.get(ROUND)} has expired "
            "(cleantail.snapshot.retention.ms): it cannot be undone"
        )
    return by_id[last.parent_id]


def _refusal(commit: Commit) -> str:
    """Return why no rollback can undo this commit; empty if it can."""
    if commit.summary.get(BEFORE) if commit.is_round else commit.operation in ("append", "replace"):
        return ""
    if commit.is_round:
        return (
            f"round {commit.summary.get(ROUND)} (snapshot {commit.snapshot_id}) lacks summary entry {BEFORE}, the "
            "states before it, and cannot be undone"
        )
    if commit.summary.get(OPERATION) == MEND:
        return (
            f"snapshot {commit.snapshot_id} of {instant(commit.at_ms)} UTC repaired deletion vectors; without that, "
            "no engine can read the table. Nothing was done. Name a later snapshot with --to"
        )
    if commit.summary.get(OPERATION) == CONVERT:
        return (
            f"snapshot {commit.snapshot_id} of {instant(commit.at_ms)} UTC converted equality deletes, with which no "
            "round can read the table. Nothing was done. Name a later snapshot with --to"
        )
    return (
        f"snapshot {commit.snapshot_id} of {instant(commit.at_ms)} UTC ({commit.operation}) is not Cleantail's: "
        "a rollback would undo its changes. Nothing was done. Name a later snapshot with --to"
    )


def _is_record(commit: Commit) -> bool:
    """Return whether the commit is the record of an earlier rollback, which has no files of its own."""
    return commit.summary.get(OPERATION) == ROLLBACK


def _undone(commit: Commit) -> UndoneRound:
    name, kind = commit.summary.get(ROUND, "?"), commit.summary[OPERATION]
    return UndoneRound(name, kind, commit.snapshot_id, commit.at_ms, commit.parent_id)


def answer_to(history: Sequence[Commit], request: str) -> Commit | None:
    """Return the rollback that this request has already caused, if any."""
    return next((c for c in history if _is_record(c) and request and c.summary.get(REQUEST) == request), None)


def restored(before: PartitionState | None, now: PartitionState) -> PartitionState:
    """Return the state of a log after the rollback. The log end and a quarantine stay as they are."""
    ends = [s.log_end_offset for s in (before, now) if s is not None and s.log_end_offset is not None]
    return replace(before or PartitionState(), log_end_offset=max(ends, default=None), quarantine=now.quarantine)
