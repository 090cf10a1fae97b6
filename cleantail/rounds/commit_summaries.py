"""Says what the snapshots of `main` have in their summaries: which commits are ours, and what each notes of itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cleantail.codec import Codec
from cleantail.human import whole_number
from cleantail.log.partition_state import PartitionState, parse_partition_state
from cleantail.log.round_state import COMPACT, EXPIRE, RECONCILE
from cleantail.log.segments import DataFile

ROUNDED_BYTES = 1024
"""Two estimates of bytes that differ by less agree."""
OPERATION = "cleantail.operation"
"""Summary entry of our commits: what made them."""
ROUNDS = (COMPACT, EXPIRE, RECONCILE)
"""The operations of published rounds."""
MEND = "mend"
"""The operation of a commit that replaces deletion vectors for which no engine reads the table."""
CONVERT = "convert deletes"
"""The operation of a commit that puts deletes of one data file each in the place of equality deletes."""
REGISTERED_ONCE = "registered once"
"""The operation of a commit right before a round's own, in the same transaction: files that were registered more than
once are registered once after it."""
ROUND = "cleantail.round"
HEADS = "cleantail.heads"
"""Of a round's snapshot: those that were checked. A round made anew may have the same name."""
BEFORE = "cleantail.before"
"""Summary entry of a published round: the states of its logs before it, so that they can be put back."""
APPROVED_BY = "cleantail.approved-by"
ROLLBACK = "rollback"
UNDONE = "cleantail.undone"
"""Summary entry of a rollback: the names of the rounds that it has undone, or which ingestion."""
BY = "cleantail.by"
REQUEST = "cleantail.request"
"""Summary entry of a rollback: what asked for it, so that a task that is tried again does not go a round further."""
COMPUTED = (
    "added-", "removed-", "deleted-", "total-", "changed-partition-count", "partition", "manifests-", "entries-",
    "engine-", "iceberg-version", "app-", "spark.app.id", "replace-partitions", "source-snapshot-id",
)  # fmt: skip
"""Beginnings of the summary entries that Iceberg makes itself, for every commit anew."""
_STATES_JSON: Codec[dict[int, str | None]] = Codec(dict[int, str | None])


@dataclass(frozen=True, slots=True)
class SizePoint:
    """Describes a table as one snapshot left it. `live_bytes` are file bytes x share of records that are not
    deleted."""

    at_ms: int
    operation: str
    file_bytes: int
    live_bytes: int
    reclaimed_bytes: int


@dataclass(frozen=True, slots=True)
class Saved:
    """Says what compaction has saved. `hidden_bytes`: in files now, of records that delete files hide; falls when a
    rewrite frees them. `reclaimed_bytes`: freed by rewrites, as far as known. `so_far_bytes`: what all published rounds
    have hidden from readers, by their evidence; falls only when rounds are undone, and None while nobody has counted
    it. A record's bytes are its share of its file's: an estimate."""

    hidden_bytes: int
    reclaimed_bytes: int
    so_far_bytes: int | None = None

    @property
    def unrecorded(self) -> bool:
        """Returns whether more is hidden now than the evidence has counted, as by rounds of a version that did not
        record it. Both are rounded, file by file and round by round: so little is no difference."""
        missing = self.hidden_bytes - (self.so_far_bytes or 0)
        return self.so_far_bytes is not None and missing > max(self.hidden_bytes // 100, ROUNDED_BYTES)


def size_point(at_ms: int, operation: str, summary: Mapping[str, str]) -> SizePoint:
    """Returns the point of one snapshot; counts that its writer left out are 0."""
    file_bytes = _number(summary, "total-files-size")
    records, deleted = _number(summary, "total-records"), _number(summary, "total-position-deletes")
    live = file_bytes * max(records - deleted, 0) // records if records else 0
    freed = _number(summary, "removed-files-size") - _number(summary, "added-files-size")
    # files that are registered once from then on free no byte
    reclaimed = max(freed, 0) if operation == "replace" and summary.get(OPERATION) != REGISTERED_ONCE else 0
    return SizePoint(at_ms, summary.get(OPERATION) or operation, file_bytes, live, reclaimed)


def last_round_at_ms(points: Iterable[SizePoint]) -> int | None:
    """Returns when a round was last published, by the wall clock; None where no kept snapshot is of one."""
    return max((p.at_ms for p in points if p.operation in ROUNDS), default=None)


def _number(summary: Mapping[str, str], name: str) -> int:
    return whole_number(summary.get(name) or "0") or 0


def saved(
    files: Iterable[DataFile], points: Iterable[SizePoint], recorded_bytes: int = 0, so_far_bytes: int | None = None
) -> Saved:
    """Returns what compaction has saved in one table. `recorded_bytes`: reclaimed as the evidence has it, which knows
    it for good, but not of reclaims by earlier versions; the snapshots may know of those."""
    kept = sum(p.reclaimed_bytes for p in points)
    return Saved(sum(f.size_bytes - f.live_bytes for f in files), max(kept, recorded_bytes), so_far_bytes)


@dataclass(frozen=True, slots=True)
class Commit:
    """Describes a snapshot in `main`'s history; `operation` is Iceberg's: append, replace, overwrite or delete."""

    snapshot_id: int
    parent_id: int | None
    at_ms: int
    operation: str
    summary: Mapping[str, str]

    @property
    def is_round(self) -> bool:
        """Returns whether a round of ours made the commit."""
        return self.summary.get(OPERATION) in ROUNDS


def whole_rounds(history: Sequence[Commit]) -> list[Commit]:
    """Returns the history, newest first, with each round as one commit: its parts are undone with it."""
    whole: list[Commit] = []
    for commit in history:
        if commit.summary.get(OPERATION) == REGISTERED_ONCE and whole:
            whole[-1] = replace(whole[-1], parent_id=commit.parent_id)
        else:
            whole.append(commit)
    return whole


def writer_entries(summary: Mapping[str, str]) -> dict[str, str]:
    """Returns what a writer put into a summary: sinks keep there how far they have come, and read it from the
    ancestry."""
    return {name: value for name, value in summary.items() if not name.startswith(COMPUTED)}


def packed(states: Mapping[int, PartitionState | None]) -> str:
    """Returns the states as one short text: a summary stays in the table's metadata for as long as its snapshot."""
    return _STATES_JSON.packed({p: state.as_json() if state else None for p, state in states.items()})


def unpacked(text: str, where: str) -> dict[int, PartitionState | None]:
    """Returns the states of `packed`. Raises TableError, naming `where`, when the text is none of it."""
    texts = _STATES_JSON.unpacked(text, where)
    return {p: parse_partition_state(t, f"{where}, partition {p}") if t else None for p, t in texts.items()}
