"""Says what a source table is at one moment: the snapshots of its branch, and what each has done. Pure.

1. A snapshot's summary counts what its writer has added and removed. A count that is left out is 0, as long as the
   writer counts at all.
2. Of a writer that counts nothing anything is possible: its snapshot may have added files, and unless it is an append
   it may have removed some.
3. A `replace` writes records anew that were there before. It neither brings nor removes any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cleantail.errors import SourceError
from cleantail.human import counted, instant, whole_number
from cleantail.log.source_position import SnapshotGap, SnapshotPosition

APPEND, REPLACE = "append", "replace"
_REMOVALS = (
    "deleted-data-files",
    "deleted-records",
    "added-delete-files",
    "added-position-delete-files",
    "added-equality-delete-files",
    "added-position-deletes",
    "added-equality-deletes",
    "added-dvs",
    "removed-delete-files",
    "removed-dvs",
)
"""Iceberg's entries of a snapshot's summary that count what it has taken away."""
_ADDITIONS = ("added-data-files", "added-records")
"""Those that count what it has brought."""
_KEEPS_COUNTS = "total-records"
"""The entry by which it is known that a writer counts at all: what it did not do is left out of a summary."""
CONTINUE = "continue"
PORTION_BYTES = 4 << 30
"""How much the files take, about, that one commit brings: so much of the work a crash can cost."""
MOST_ONE_BY_ONE = 50
"""How many snapshots that are no appends one commit brings at most: each is a scan of its own."""
_NOTHING = "nothing was appended"
_ANOTHER_LOG = (
    "Offsets of another log must not be mixed with these: give the topic another table in its YAML (table: …) to read "
    f"it from its start; the table of before stays as it is; {_NOTHING}"
)


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """Describes a snapshot of the source. `removes`: whether it has taken records away, or may have; `adds`: whether it
    has added data files, or may have, and how many bytes; `total_bytes`: of all files that it has, 0 where its writer
    does not say."""

    snapshot_id: int
    parent_id: int | None
    at_ms: int
    operation: str
    removes: bool
    adds: bool = True
    added_bytes: int = 0
    total_bytes: int = 0

    @classmethod
    def of_summary(
        cls, snapshot_id: int, parent_id: int | None, at_ms: int, operation: str, summary: Mapping[str, str]
    ) -> SourceSnapshot:
        """Returns what a snapshot has done, by its operation and its summary, as the rules of the module docstring read
        these."""
        removed, added = (any(_count(summary, name) for name in names) for names in (_REMOVALS, _ADDITIONS))
        unknown = not (removed or added or _KEEPS_COUNTS in summary)
        removes = operation != REPLACE and (removed or (unknown and operation != APPEND))
        sizes = _count(summary, "added-files-size"), _count(summary, "total-files-size")
        return cls(snapshot_id, parent_id, at_ms, operation, removes, added or unknown, *sizes)

    @property
    def is_read_by_itself(self) -> bool:
        """Returns whether it has added files which no scan of appends brings."""
        return self.adds and self.operation not in (APPEND, REPLACE)

    @property
    def text(self) -> str:
        """Names it in a sentence."""
        return f"snapshot {self.snapshot_id} of {instant(self.at_ms)} UTC ({self.operation})"


def _count(summary: Mapping[str, str], name: str) -> int:
    """Returns a count of the summary; 0 also for a text that is no number, which another writer may have put there."""
    return whole_number(summary.get(name, "0")) or 0


@dataclass(frozen=True, slots=True)
class SourceTable:
    """Describes the source at one moment. `history`: the ancestry of its branch, newest first, as far as it is kept;
    `kept`: the ids of all its snapshots, each with that of its parent."""

    catalog: str
    table: str
    uuid: str
    branch: str
    history: tuple[SourceSnapshot, ...]
    kept: Mapping[int, int | None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Returns the table with its catalog."""
        return f"{self.catalog}.{self.table}"


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """Says what one commit of a read brings: what came after the snapshot `start_id` up to `end`.

    `start_id` is None where `end` is read whole, without what lies below `from_offsets`. `appends`: whether an append
    is among them; `one_by_one`: the other snapshots whose added files are read. `is_last`: whether nothing was left.
    `bytes`: what the files take that are read, by the counts of their writer.
    """

    start_id: int | None
    end: SourceSnapshot
    appends: bool = False
    one_by_one: tuple[int, ...] = ()
    from_offsets: Mapping[int, int] | None = None
    gaps: tuple[SnapshotGap, ...] = ()
    is_last: bool = True
    bytes: int = 0

    @property
    def brings_records(self) -> bool:
        """Returns whether there is anything to read: rewrites bring nothing."""
        return self.start_id is None or self.appends or bool(self.one_by_one)


def plan_snapshots(
    position: SnapshotPosition | None,
    source: SourceTable,
    on_change: str,
    now_ms: int,
    most_bytes: int = PORTION_BYTES,
) -> SnapshotPlan | None:
    """Plans the next commit of a read, by the rules of the module docstring; None where nothing is new. Raises
    SourceError with what is wrong, and which config goes on behind it where one does."""
    # 5. the table is the one that was read
    if position is not None and position.table_uuid != source.uuid:
        raise SourceError(_another_table(position, source))
    # 5. its branch has snapshots, or never had one
    if not source.history:
        if position is None:
            return None
        raise SourceError(
            f"{source.name}: branch {source.branch} has no snapshot, and was read up to {position.snapshot_id}; "
            f"{_NOTHING}"
        )
    # 1. a first read takes the newest snapshot whole, a later one what came after the last
    if position is None:
        return SnapshotPlan(None, source.history[0], bytes=source.history[0].total_bytes)
    since = _since(position.snapshot_id, source.history)
    if since is None:  # 4. the history does not tell what came
        return _beyond(position, source, on_change, now_ms)
    if not since:
        return None
    # 3. what was read before has not changed, or somebody said to go on
    if (changes := [s for s in since if s.removes]) and on_change != CONTINUE:
        raise SourceError(_change_text(changes, source))
    return _portion(position.snapshot_id, source, since, now_ms, most_bytes)


def _since(snapshot_id: int, history: Sequence[SourceSnapshot]) -> list[SourceSnapshot] | None:
    """Returns the snapshots after this one, oldest first; None where the history does not lead back to it. The last
    snapshot itself need not be kept, as long as the one after it names it as its parent."""
    newer: list[SourceSnapshot] = []
    for snapshot in history:
        if snapshot.snapshot_id == snapshot_id:
            return newer[::-1]
        newer.append(snapshot)
        if snapshot.parent_id == snapshot_id:
            return newer[::-1]
    return None


def lost_of(plan: SnapshotPlan, source: SourceTable, later: SourceTable) -> int | None:
    """Returns a snapshot that a plan on `source` reads, and that is not kept `later`; None where all are. The one that
    was read last may have gone before the plan was made: nothing of it is read."""
    read = {plan.end.snapshot_id}
    if plan.start_id is not None:
        since = [s.snapshot_id for s in _since(plan.start_id, source.history) or ()]
        read |= {plan.start_id, *since[: since.index(plan.end.snapshot_id)]}
    return min((each for each in read if each in source.kept and each not in later.kept), default=None)


def _portion(
    start_id: int, source: SourceTable, since: Sequence[SourceSnapshot], now_ms: int, most_bytes: int
) -> SnapshotPlan:
    """Returns the first snapshots, at least one, as many as fit into one commit (6), with a gap for each of them that
    has changed what was read before (7)."""
    chosen, size, scans = list(since[:1]), since[0].added_bytes, int(since[0].is_read_by_itself)
    for snapshot in since[1:]:
        size, scans = size + snapshot.added_bytes, scans + snapshot.is_read_by_itself
        if size > most_bytes or scans > MOST_ONE_BY_ONE:
            break
        chosen.append(snapshot)
    gaps = tuple(
        SnapshotGap("change", source.name, s.snapshot_id, s.operation, s.at_ms, now_ms) for s in chosen if s.removes
    )
    return SnapshotPlan(
        start_id=start_id,
        end=chosen[-1],
        appends=any(s.operation == APPEND for s in chosen),
        one_by_one=tuple(s.snapshot_id for s in chosen if s.is_read_by_itself),
        gaps=gaps,
        is_last=len(chosen) == len(since),
        bytes=sum(s.added_bytes for s in chosen),
    )


def _beyond(position: SnapshotPosition, source: SourceTable, on_change: str, now_ms: int) -> SnapshotPlan:
    """Returns a read of what lies beyond the position, where the history does not lead back to it (4). Raises
    SourceError unless it may go on.

    It takes the newest snapshot whole, as a first read does, without what lies below the next offset of each partition:
    so a record that was read before is not read again. What came and went meanwhile is the gap.
    """
    if _begins_anew(position, source):
        raise SourceError(_replaced_text(position, source))
    if on_change != CONTINUE:
        raise SourceError(_lost_text(position, source))
    gap = SnapshotGap("history", source.name, position.snapshot_id, "", position.snapshot_ms, now_ms)
    newest = source.history[0]
    return SnapshotPlan(None, newest, from_offsets=position.next_offsets, gaps=(gap,), bytes=newest.total_bytes)


def _begins_anew(position: SnapshotPosition, source: SourceTable) -> bool:
    """Returns whether the branch's history, which does not lead back to the position, is that of another log: it begins
    with a snapshot without a parent, and that is not where the position's own history began. As far as that one is
    kept it is compared; else a beginning that is younger than the position is none of its ancestors."""
    first = source.history[-1]
    if first.parent_id is not None:
        return False
    before = position.snapshot_id
    while before in source.kept:
        if before == first.snapshot_id:
            return False
        if (parent := source.kept[before]) is None:
            return True
        before = parent
    return first.at_ms > position.snapshot_ms


def _another_table(position: SnapshotPosition, source: SourceTable) -> str:
    """Says that the table has another uuid than the one that was read (5)."""
    what = (
        f"table {source.name} was made anew"
        if position.name == source.name
        else f"table {source.name} is not the table that the topic was read from, {position.name}"
    )
    return f"{what}: its uuid is {source.uuid}, and the topic was read from {position.table_uuid}. {_ANOTHER_LOG}"


def _replaced_text(position: SnapshotPosition, source: SourceTable) -> str:
    """Says that the table's history is another one, though its uuid is the same (5)."""
    return (
        f"table {source.name} was made anew, as CREATE OR REPLACE TABLE does: branch {source.branch} begins with "
        f"{source.history[-1].text}, and snapshot {position.snapshot_id} of {instant(position.snapshot_ms)} UTC, the "
        f"last one that was read, is of what was there before. {_ANOTHER_LOG}"
    )


def _change_text(changes: Sequence[SourceSnapshot], source: SourceTable) -> str:
    """Says which snapshot has changed what was read before, and how to go on behind it (3)."""
    more = f" (and {counted(len(changes) - 1, 'more snapshot')})" if len(changes) > 1 else ""
    return (
        f"{source.name}: {changes[0].text}{more} removed or changed records that may have been read. "
        "source.table.on_change: continue reads what it has added, passes over what it has removed, and notes it; "
        f"{_NOTHING}"
    )


def _lost_text(position: SnapshotPosition, source: SourceTable) -> str:
    """Says why the history does not lead back to the snapshot that was read last, and how to go on (4)."""
    last = f"snapshot {position.snapshot_id} of {instant(position.snapshot_ms)} UTC"
    why = (
        f"is not in the history of branch {source.branch} any more (it was rolled back, or another branch took its "
        "place)"
        if position.snapshot_id in source.kept
        else "is not kept any more, or one after it (snapshots were expired before they were read)"
    )
    return (
        f"{source.name}: {last}, the last one that was read, {why}: nothing tells what is new. source.table.on_change: "
        "continue reads what lies at or beyond the next offset of each partition, and notes what may be missing; "
        f"{_NOTHING}"
    )
