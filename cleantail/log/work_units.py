"""What a round does to each log, and how work is divided among Spark applications. Pure.

A round is made of work units, one Spark application each (docs/architecture.md, decision 7):

1. A large partition is a separate unit: it fills an application.
2. Small partitions are packed together in their order, because a JVM takes longer to start than their work takes.
3. A unit holds numbers and identifiers that Cleantail made, and nothing of a record, because it is in an XCom.

In a group's DAG one application takes a pack of topics (`pack_topics`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from cleantail.codec import Codec
from cleantail.config.topic_group import GroupLimits
from cleantail.human import be, counted, size

LABEL_TOPICS, LABEL_CHARS = 3, 200
"""Limits of a pack's label: number of topics named, number of characters."""
UNIT_BYTES = 8 << 30
"""Live bytes of a partition that fills a Spark application of its own."""


@dataclass(frozen=True, slots=True)
class PartitionWork:
    """What a round does to one log. Starts are inclusive, ends exclusive. Bytes are live bytes by the files' metadata.

    first_dirty_offset  the offset map is made from here on; equal to `end_offset` if only retention is due
    end_offset          the round reads records below it
    log_start_offset    the round drops records below it
    log_end_offset      one past the highest offset ever seen
    bytes               of the whole log: what a unit is packed by
    dirty_records       upper limit of the records in [first dirty, end)
    dirty_bytes         in [first dirty, end)
    read_bytes          in [log start, end)
    source_start        a reconciliation compares with the brokers' records from here on
    source_end          and up to here; None before it has read them
    records             in the log's files, deleted ones included: what tasks are sized by
    hold_offset         an expiry leaves tombstones from here on for a reader; None if no reader blocks any
    hold_cap_ms an expiry waits for that reader at most this long beyond their horizon
    fresh_from          an expiry leaves horizons beyond it, which this very run has set, for a later run
    """

    partition: int
    first_dirty_offset: int
    end_offset: int
    log_start_offset: int
    log_end_offset: int
    bytes: int = 0
    dirty_records: int = 0
    hold_offset: int | None = None
    hold_cap_ms: int = 0
    fresh_from: int | None = None
    dirty_bytes: int = 0
    read_bytes: int = 0
    records: int = 0
    source_start: int | None = None
    source_end: int | None = None

    @property
    def only_retention(self) -> bool:
        """Return whether nothing is compacted: only the log start moves."""
        return self.first_dirty_offset == self.end_offset

    def ending_at(self, end_offset: int) -> PartitionWork:
        """Return the same work up to an earlier end. Its dirty bytes are estimated from the share of its offsets."""
        offsets = max(self.end_offset - self.first_dirty_offset, 1)
        dirty_bytes = self.dirty_bytes * (end_offset - self.first_dirty_offset) // offsets
        read_bytes = self.read_bytes - (self.dirty_bytes - dirty_bytes)
        return replace(self, end_offset=end_offset, dirty_bytes=dirty_bytes, read_bytes=read_bytes)


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """One Spark application's share of a round.

    `now_ms` is the clock of the run (Unix ms), `base_snapshot_id` the snapshot that the round reads. The name of the
    branch that it writes begins with `branch` (branch_stem).
    """

    round: str
    unit: int
    now_ms: int
    base_snapshot_id: int
    branch: str
    partitions: tuple[PartitionWork, ...]


WORK_UNIT_JSON: Codec[WorkUnit] = Codec(WorkUnit)


def pack(
    round_id: str, now_ms: int, base_snapshot_id: int, works: Iterable[PartitionWork], unit_bytes: int = UNIT_BYTES
) -> tuple[WorkUnit, ...]:
    """Pack the works, in their order, into units of at most `unit_bytes` live bytes. A larger work is a unit alone."""
    groups: list[list[PartitionWork]] = []
    for work in works:
        if groups and sum(w.bytes for w in groups[-1]) + work.bytes <= unit_bytes:
            groups[-1].append(work)
        else:
            groups.append([work])
    return tuple(
        WorkUnit(round_id, n, now_ms, base_snapshot_id, branch_stem(round_id, n), tuple(group))
        for n, group in enumerate(groups)
    )


ROUND_BRANCH = "ct_"
"""Prefix of the branches of rounds."""


def branch_stem(round_id: str, unit: int) -> str:
    """Return the beginning of the name of a unit's branch. Each try of its task appends a time."""
    return f"{ROUND_BRANCH}{round_id}_u{unit}"


def round_name(now_ms: int, sequence_number: int) -> str:
    """Return a name for branches and evidence: the clock's time in UTC, and the table's sequence number."""
    stamp = datetime.fromtimestamp(min(now_ms, 253_402_300_799_000) / 1000, UTC).strftime("%Y%m%dT%H%M%S")
    return f"{stamp}_{now_ms % 1000:03d}_{sequence_number}"


@dataclass(frozen=True, slots=True)
class DueTopic:
    """What a run has to do with one topic.

    It has an upper limit of bytes to read, the delay of the most overdue log, and the ratio of the dirtiest due log.
    `left_since_ms`: since when runs have left it unprocessed (Unix ms), or None.
    """

    topic: str
    read_bytes: int
    overdue_ms: int = 0
    dirty_ratio: float = 0.0
    left_since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Pack:
    """Topics whose work one Spark application does, the most urgent first. `largest_bytes` is what the largest has to
    read."""

    topics: tuple[str, ...]
    read_bytes: int
    largest_bytes: int

    @property
    def label(self) -> str:
        """Return `orders, sales and 5 more topics, 1.2 MiB`."""
        named, more = self.topics[:LABEL_TOPICS], len(self.topics) - LABEL_TOPICS
        rest = f" and {counted(more, 'more topic')}" if more > 0 else ""
        tail = f"{rest}, {size(self.read_bytes)}"
        return f"{', '.join(named)[: LABEL_CHARS - len(tail)]}{tail}"


@dataclass(frozen=True, slots=True)
class PackedRun:
    """The packs of a run, the most urgent first, and the topics left to the next run, with the reason."""

    packs: tuple[Pack, ...]
    left_over: tuple[str, ...]
    reason: str


def pack_topics(due: Iterable[DueTopic], limits: GroupLimits) -> PackedRun:
    """Return the packs of a run.

    1. Topics that earlier runs left over come first, the longest wait first. Then the overdue ones, then the dirtiest
       (semantics.md 3.6). The name decides between equals, so that the same work makes the same packs.
    2. Small topics share a pack in that order, up to `pack.max.bytes` to read and `pack.max.topics`.
    3. A topic with more to read than `pack.max.bytes` gets a separate pack. Small topics after it may still join the
       pack before it.
    4. A pack is as urgent as its first topic. A run has `run.max.packs`. The rest is left over, and the reason reports
       it.
    """
    packs = [_packed(topics) for topics in _shared_out(sorted(due, key=_urgency), limits)]
    run, rest = packs[: limits.run_max_packs], packs[limits.run_max_packs :]
    return PackedRun(tuple(run), tuple(t for pack in rest for t in pack.topics), _reason(run, rest, limits))


def _urgency(due: DueTopic) -> tuple[bool, int, int, float, str]:
    """Return a sort key (rule 1), lowest for the most urgent topic."""
    waits, since_ms = due.left_since_ms is not None, due.left_since_ms or 0
    return not waits, since_ms, -due.overdue_ms, -due.dirty_ratio, due.topic


def _shared_out(in_order: Iterable[DueTopic], limits: GroupLimits) -> list[list[DueTopic]]:
    """Return the topics of each pack (rules 2 and 3). Packs are in the order of their first topics."""
    packs: list[list[DueTopic]] = []
    shared: list[DueTopic] = []
    for due in in_order:
        if due.read_bytes > limits.pack_max_bytes:
            packs.append([due])
        elif shared and _fits(shared, due, limits):
            shared.append(due)
        else:
            shared = [due]
            packs.append(shared)
    return packs


def _fits(shared: Sequence[DueTopic], due: DueTopic, limits: GroupLimits) -> bool:
    read_bytes = sum(other.read_bytes for other in shared) + due.read_bytes
    return len(shared) < limits.pack_max_topics and read_bytes <= limits.pack_max_bytes


def _packed(topics: Sequence[DueTopic]) -> Pack:
    sizes = [due.read_bytes for due in topics]
    return Pack(tuple(due.topic for due in topics), sum(sizes), max(sizes))


def _reason(run: Sequence[Pack], rest: Sequence[Pack], limits: GroupLimits) -> str:
    """Return how much is due, and what `run.max.packs` leaves to the next run (rule 4)."""
    if not run:
        return "nothing is due"
    topics = sum(len(pack.topics) for pack in run)
    text = f"{counted(topics, 'topic')} {be(topics)} due, in {counted(len(run), 'pack')}"
    if not rest:
        return text
    left = sum(len(pack.topics) for pack in rest)
    return (
        f"{text}; {counted(left, 'more topic')} {be(left)} left to the next run (run.max.packs {limits.run_max_packs})"
    )
