"""Summaries of the snapshots of `main`: Cleantail's commits, what each records, and how large the table was. Pure.

Summaries are part of the table's metadata, so no file is opened. Expired snapshots are unknown: the history is as long
as cleantail.snapshot.retention.ms.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from cleantail.codec import Codec
from cleantail.errors import TableError
from cleantail.human import whole_number
from cleantail.log.partition_state import PartitionState, parse_partition_state
from cleantail.log.round_state import COMPACT, ERASE, EXPIRE, RECONCILE
from cleantail.log.segments import DataFile

OPERATION = "cleantail.operation"
"""Summary entry of Cleantail's commits: the operation that made them."""
ROUNDS = (COMPACT, EXPIRE, RECONCILE, ERASE)
"""The operations of published rounds."""
RECLAIM = "reclaim"
"""The operation of a rewrite of files, and the kind of its row of evidence, which belongs to no log."""
MEND = "mend"
"""The operation of a commit that replaces deletion vectors that made the table unreadable."""
CONVERT = "convert deletes"
"""The operation of a commit that replaces equality deletes by deletes of one data file each."""
REGISTERED_ONCE = "registered once"
"""The operation of a commit right before a round's own, in the same transaction: files that were registered more than
once are registered once."""
ROUND = "cleantail.round"
HEADS = "cleantail.heads"
"""Summary entry of a round: the snapshots that were checked. A round that is made again may have the same name."""
BEFORE = "cleantail.before"
"""Summary entry of a published round: the states of its logs before it, for a rollback. Entries of a long ledger that
the round kept are left out. A topic with tombstones in each run has hundreds of them, and the table's metadata keep the
summaries of hundreds of rounds."""
SHARED = 8
"""Minimum number of entries of a ledger that are left out."""
APPROVED_BY = "cleantail.approved-by"
ROLLBACK = "rollback"
UNDONE = "cleantail.undone"
"""Summary entry of a rollback: the names of the rounds that it undid, or an ingestion."""
BY = "cleantail.by"
REQUEST = "cleantail.request"
"""Summary entry of a rollback: what requested it, so that a second try of the task undoes no further round."""
COMPUTED = (
    "added-", "removed-", "deleted-", "total-", "changed-partition-count", "partition", "manifests-", "entries-",
    "engine-", "iceberg-version", "app-", "spark.app.id", "replace-partitions", "source-snapshot-id",
)  # fmt: skip
"""Beginnings of the summary entries that Iceberg computes for every commit."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A snapshot in `main`'s history. `operation` is Iceberg's: append, replace, overwrite or delete."""

    snapshot_id: int
    parent_id: int | None
    at_ms: int
    operation: str
    summary: Mapping[str, str]

    @property
    def is_round(self) -> bool:
        return self.summary.get(OPERATION) in ROUNDS

    @property
    def approved_by(self) -> str | None:
        """Return who approved the round; None if it did not have to wait."""
        return self.summary.get(APPROVED_BY)


def whole_rounds(history: Sequence[Commit]) -> list[Commit]:
    """Return the history, newest first, with each round as one commit: its parts are undone together."""
    whole: list[Commit] = []
    for commit in history:
        if commit.summary.get(OPERATION) == REGISTERED_ONCE and whole:
            whole[-1] = replace(whole[-1], parent_id=commit.parent_id)
        else:
            whole.append(commit)
    return whole


def writer_entries(summary: Mapping[str, str]) -> dict[str, str]:
    """Return the entries that a writer put into a summary.

    Sinks store their progress in these entries, and read it from the ancestry.
    """
    return {name: value for name, value in summary.items() if not name.startswith(COMPUTED)}


@dataclass(frozen=True, slots=True)
class _LessLedger:
    """A log's state before a round, as PartitionState.as_json, without the entries of its ledger that the round kept.

    `added`: ends of the entries that the round added. `digest`: crc32 of the whole state as JSON.
    """

    state: str
    added: tuple[int, ...]
    digest: int

    @classmethod
    def of(cls, before: PartitionState, after: PartitionState) -> _LessLedger:
        kept, ends = frozenset(after.horizons), {entry.end_offset for entry in before.horizons}
        rest = replace(before, horizons=tuple(entry for entry in before.horizons if entry not in kept))
        added = tuple(entry.end_offset for entry in after.horizons if entry.end_offset not in ends)
        return cls(rest.as_json(), added, _digest(before))

    def whole(self, after: PartitionState, where: str) -> PartitionState:
        """Return the state. `after`: the log's state after the round. Raises TableError if its ledger is another."""
        rest = parse_partition_state(self.state, where)
        added = frozenset(self.added)
        entries = {entry.end_offset: entry for entry in after.horizons if entry.end_offset not in added}
        entries |= {entry.end_offset: entry for entry in rest.horizons}
        before = replace(rest, horizons=tuple(entries[end] for end in sorted(entries)))
        if _digest(before) != self.digest:
            raise TableError(
                f"{where}: after this round another program changed the horizons of tombstones. The round cannot be "
                "undone; nothing was done. Name a later snapshot with --to"
            )
        return before


def _digest(state: PartitionState) -> int:
    return zlib.crc32(state.as_json().encode())


_STATES_JSON: Codec[dict[int, str | _LessLedger | None]] = Codec(dict[int, str | _LessLedger | None])


def packed(states: Mapping[int, PartitionState | None], after: Mapping[int, PartitionState]) -> str:
    """Return the states as one short text: a summary stays in the table's metadata as long as its snapshot.

    `after`: the states of these logs after the round.
    """
    return _STATES_JSON.packed({p: _before(state, after.get(p)) for p, state in states.items()})


def _before(state: PartitionState | None, after: PartitionState | None) -> str | _LessLedger | None:
    if state is None:
        return None
    kept = frozenset(state.horizons).intersection(after.horizons if after else ())
    return _LessLedger.of(state, after) if after and len(kept) >= SHARED else state.as_json()


def unpacked(text: str, after: Mapping[int, PartitionState | None], where: str) -> dict[int, PartitionState | None]:
    """Parse what `packed` returned. `after`: the states of the logs after the round. Raises TableError, naming
    `where`."""
    states: dict[int, PartitionState | None] = {}
    for p, before in _STATES_JSON.unpacked(text, where).items():
        of_log = f"{where}, partition {p}"
        if isinstance(before, _LessLedger):
            states[p] = before.whole(after.get(p) or PartitionState(), of_log)
        else:
            states[p] = parse_partition_state(before, of_log) if before else None
    return states


def logs_of(text: str, where: str) -> Set[int]:
    """Return the logs that have a state in a text of `packed`. Raises TableError, naming `where`."""
    return _STATES_JSON.unpacked(text, where).keys()


@dataclass(frozen=True, slots=True)
class SizePoint:
    """A table as one snapshot left it. `live_bytes` are file bytes x share of records that are not deleted."""

    at_ms: int
    operation: str
    file_bytes: int
    live_bytes: int
    reclaimed_bytes: int


@dataclass(frozen=True, slots=True)
class Saved:
    """What compaction has saved, estimated from each record's share of its file.

    `hidden_bytes` are in present files, of records that delete files hide: a rewrite frees them. `reclaimed_bytes` were
    freed by rewrites, as far as known. `so_far_bytes` are those that published rounds have hidden from readers, by
    their evidence. These bytes fall only if rounds are undone, and are None until they are counted.
    """

    hidden_bytes: int
    reclaimed_bytes: int
    so_far_bytes: int | None = None


def size_point(at_ms: int, operation: str, summary: Mapping[str, str]) -> SizePoint:
    """Return the point of one snapshot. Counts that its writer left out are 0."""
    file_bytes = summary_number(summary, "total-files-size")
    records, deleted = summary_number(summary, "total-records"), summary_number(summary, "total-position-deletes")
    live = file_bytes * max(records - deleted, 0) // records if records else 0
    freed = summary_number(summary, "removed-files-size") - summary_number(summary, "added-files-size")
    # registering files once frees no byte
    reclaimed = max(freed, 0) if operation == "replace" and summary.get(OPERATION) != REGISTERED_ONCE else 0
    return SizePoint(at_ms, summary.get(OPERATION) or operation, file_bytes, live, reclaimed)


def freed_by_reclaims(commits: Iterable[Commit]) -> int:
    """Return the bytes that the reclaims among these commits freed. Undoing them takes as many bytes again."""
    ours = (c for c in commits if c.summary.get(OPERATION) == RECLAIM)
    return sum(size_point(c.at_ms, c.operation, c.summary).reclaimed_bytes for c in ours)


def last_round_at_ms(points: Iterable[SizePoint]) -> int | None:
    """Return when a round was last published, by the wall clock; None if no kept snapshot is a round's."""
    return max((p.at_ms for p in points if p.operation in ROUNDS), default=None)


def summary_number(summary: Mapping[str, str], name: str) -> int:
    """Return a count of a commit's summary. 0 if the writer left it out, or wrote no whole number."""
    return whole_number(summary.get(name) or "0") or 0


def saved(files: Iterable[DataFile], points: Iterable[SizePoint]) -> Saved:
    """Return what compaction has saved in one table, by its kept snapshots."""
    return Saved(sum(f.size_bytes - f.live_bytes for f in files), sum(p.reclaimed_bytes for p in points))
