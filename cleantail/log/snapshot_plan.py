"""Plan which snapshots of a source table a read takes next, with every reason to refuse. Pure.

1. A first read takes the source's newest snapshot whole. Each later read follows the branch's ancestry, from the
   snapshot after the last one that was read.
2. One scan reads the added files of all `append` snapshots of a commit. A `replace` is skipped, because it only
   rewrites earlier records. For any other operation, a separate scan reads the files that it added.
3. A snapshot that removed files or added deletes has changed earlier records. This is an error, unless on_change is
   `continue`.
4. If the last snapshot, or a later one, is missing from the history, new records cannot be distinguished from old
   ones. This is an error too. With on_change `continue`, the read takes everything at or beyond the next offset of each
   partition.
5. A recreated table of the same name is an error. It has another uuid. After CREATE OR REPLACE TABLE it has the same
   uuid and a new history. A branch that was read and no longer has a snapshot is also an error.
6. One commit covers at least one snapshot. It covers more snapshots up to PORTION_BYTES to read and MOST_ONE_BY_ONE
   separate scans. Later commits cover the rest.
7. Skipped changes are a gap. The position stores the gap, and the topic's lowest log shows it as a warning.

The summary of a snapshot shows its changes (SourceSnapshot.of_summary).
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
"""Summary entries of Iceberg that count removals."""
_ADDITIONS = ("added-data-files", "added-records")
"""Summary entries of Iceberg that count additions."""
_KEEPS_COUNTS = "total-records"
"""Summary entry of a writer that counts changes. Such a writer leaves out counts of 0. Other writers may not count."""
CONTINUE = "continue"
PORTION_BYTES = 4 << 30
"""Approximate bytes of files that one commit covers. A crash costs at most this much work."""
MOST_ONE_BY_ONE = 50
"""Maximum number of snapshots in one commit that are not appends. Each needs a separate scan."""
_NOTHING = "nothing was appended"
_ANOTHER_LOG = (
    "Offsets of another log must not be mixed with these: give the topic another table in its YAML (table: …) to "
    f"read it from its start. The present table stays unchanged; {_NOTHING}"
)


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """A snapshot of the source.

    `removes` and `adds`: whether it has, or may have, removed records or added data files. `total_bytes`: bytes of all
    its files, 0 if its writer does not count them.
    """

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
        """Return the changes of a snapshot from its operation and its summary.

        If the writer counts at all, a missing count is 0. Otherwise the snapshot may have added files. Unless it is an
        append or a replace, it may also have removed files.
        """
        removed, added = (any(_count(summary, name) for name in names) for names in (_REMOVALS, _ADDITIONS))
        unknown = not (removed or added or _KEEPS_COUNTS in summary)
        removes = operation != REPLACE and (removed or (unknown and operation != APPEND))
        sizes = _count(summary, "added-files-size"), _count(summary, "total-files-size")
        return cls(snapshot_id, parent_id, at_ms, operation, removes, added or unknown, *sizes)

    @property
    def is_read_by_itself(self) -> bool:
        """Return whether the snapshot added files that a scan of appends does not read."""
        return self.adds and self.operation not in (APPEND, REPLACE)

    @property
    def text(self) -> str:
        return f"snapshot {self.snapshot_id} of {instant(self.at_ms)} UTC ({self.operation})"


def _count(summary: Mapping[str, str], name: str) -> int:
    """Return a count of the summary, or 0 if the entry is not a number."""
    return whole_number(summary.get(name, "0")) or 0


@dataclass(frozen=True, slots=True)
class SourceTable:
    """The source at one moment.

    `history`: the kept ancestry of its branch, newest first. `kept`: id of each snapshot -> id of its parent.
    """

    catalog: str
    table: str
    uuid: str
    branch: str
    history: tuple[SourceSnapshot, ...]
    kept: Mapping[int, int | None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.catalog}.{self.table}"


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """The snapshots that one commit of a read covers: after the snapshot `start_id`, up to `end`.

    If `start_id` is None, `end` is read whole, without records below `from_offsets`. `appends`: whether one of the
    snapshots is an append. `one_by_one`: other snapshots with added files to read. `is_last`: whether the next commit
    has no work. `bytes`: size of the files to read, as their writer counts it.
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
        """Return whether the commit has files to read. Rewrites have none."""
        return self.start_id is None or self.appends or bool(self.one_by_one)


@dataclass(frozen=True, slots=True)
class SnapshotLag:
    """The unread snapshots of a source table.

    `unread_since_ms`: time of the oldest unread snapshot (Unix ms), None if all are read. `problem`: why a read would
    stop.
    """

    behind: int
    unread_since_ms: int | None = None
    problem: str = ""

    @property
    def text(self) -> str:
        return counted(self.behind, "snapshot")


def snapshot_lag(position: SnapshotPosition | None, source: SourceTable, on_change: str, now_ms: int) -> SnapshotLag:
    """Return the lag of a topic's table behind its source table. Snapshots without files to read do not count."""
    try:
        plan_snapshots(position, source, on_change, now_ms)
        problem = ""
    except SourceError as e:
        problem = str(e).replace(f"; {_NOTHING}", "")
    since = source.history if position is None else _since(position.snapshot_id, source.history) or ()
    times = [s.at_ms for s in since if s.adds and s.operation != REPLACE]
    return SnapshotLag(len(times), min(times, default=None), problem)


def plan_snapshots(
    position: SnapshotPosition | None,
    source: SourceTable,
    on_change: str,
    now_ms: int,
    most_bytes: int = PORTION_BYTES,
) -> SnapshotPlan | None:
    """Plan the next commit of a read, by the rules of the module docstring. Returns None without new snapshots.

    Raises SourceError with the reason. If a config would let the read continue, the error names it.
    """
    # 5. the table has the same uuid as before
    if position is not None and position.table_uuid != source.uuid:
        which = (
            "was recreated"
            if position.name == source.name
            else f"is not the table that the topic was read from, {position.name}"
        )
        raise SourceError(
            f"table {source.name} {which}: its uuid is {source.uuid}, and the topic was read from "
            f"{position.table_uuid}. {_ANOTHER_LOG}"
        )
    # 5. its branch has snapshots, or never had one
    if not source.history:
        if position is None:
            return None
        raise SourceError(
            f"{source.name}: branch {source.branch} has no snapshot, but was read up to {position.snapshot_id}; "
            f"{_NOTHING}"
        )
    # 1. a first read takes the newest snapshot whole, a later read the snapshots after the last
    if position is None:
        return SnapshotPlan(None, source.history[0], bytes=source.history[0].total_bytes)
    since = _since(position.snapshot_id, source.history)
    if since is None:  # 4. the history does not lead back to the last snapshot
        return _beyond(position, source, on_change, now_ms)
    if not since:
        return None
    # 3. earlier records have not changed, or on_change is continue
    if (changes := [s for s in since if s.removes]) and on_change != CONTINUE:
        more = f" (and {counted(len(changes) - 1, 'more snapshot')})" if len(changes) > 1 else ""
        raise SourceError(
            f"{source.name}: {changes[0].text}{more} removed or changed records that may have been read. "
            "source.table.on_change: continue reads the added files, skips the removals, and reports them; "
            f"{_NOTHING}"
        )
    return _portion(position.snapshot_id, source, since, now_ms, most_bytes)


def _since(snapshot_id: int, history: Sequence[SourceSnapshot]) -> list[SourceSnapshot] | None:
    """Return the snapshots after this one, oldest first. None if the history does not lead back to it.

    The snapshot itself may have expired if the next one names it as its parent.
    """
    newer: list[SourceSnapshot] = []
    for snapshot in history:
        if snapshot.snapshot_id == snapshot_id:
            return newer[::-1]
        newer.append(snapshot)
        if snapshot.parent_id == snapshot_id:
            return newer[::-1]
    return None


def lost_of(plan: SnapshotPlan, source: SourceTable, later: SourceTable) -> int | None:
    """Return a snapshot that a plan on `source` reads and that `later` no longer has. None if no snapshot is missing.

    The last snapshot that was read may be missing, because it is not read again.
    """
    read = {plan.end.snapshot_id}
    if plan.start_id is not None:
        since = [s.snapshot_id for s in _since(plan.start_id, source.history) or ()]
        read |= {plan.start_id, *since[: since.index(plan.end.snapshot_id)]}
    return min((each for each in read if each in source.kept and each not in later.kept), default=None)


def _portion(
    start_id: int, source: SourceTable, since: Sequence[SourceSnapshot], now_ms: int, most_bytes: int
) -> SnapshotPlan:
    """Return a plan of the first snapshots that fit into one commit (rule 6).

    The plan has a gap for each snapshot that changed earlier records (rule 7).
    """
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
    """Plan a read of everything beyond the position, if the history does not lead back to it (rule 4).

    It takes the newest snapshot whole, without records below the next offset of each partition, which were read before.
    The gap covers all changes in between. Raises SourceError unless on_change is `continue`.
    """
    last = f"snapshot {position.snapshot_id} of {instant(position.snapshot_ms)} UTC, the last one that was read,"
    if _is_another_log(position, source):
        raise SourceError(
            f"table {source.name} was recreated, as CREATE OR REPLACE TABLE does: branch {source.branch} begins with "
            f"{source.history[-1].text}, and {last} belongs to the table before. {_ANOTHER_LOG}"
        )
    if on_change != CONTINUE:
        why = (
            f"is not in the history of branch {source.branch} any more (it was rolled back, or another branch took its "
            "place)"
            if position.snapshot_id in source.kept
            else "or one after it has expired (snapshots were expired before they were read)"
        )
        raise SourceError(
            f"{source.name}: {last} {why}, so new records cannot be identified. source.table.on_change: "
            "continue reads records at or beyond the next offset of each partition, and reports that others may be "
            f"missing; {_NOTHING}"
        )
    gap = SnapshotGap("history", source.name, position.snapshot_id, "", position.snapshot_ms, now_ms)
    newest = source.history[0]
    return SnapshotPlan(None, newest, from_offsets=position.next_offsets, gaps=(gap,), bytes=newest.total_bytes)


def _is_another_log(position: SnapshotPosition, source: SourceTable) -> bool:
    """Return whether the branch's history belongs to another log (rule 5).

    The history of another log begins with a snapshot without a parent that is not the beginning of the position's
    history. If the position's history has expired, a beginning younger than the position is another log.
    """
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
