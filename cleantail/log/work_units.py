"""Says what a round does to each log (its work), and how works are shared out to Spark applications in units.

The reason is docs/architecture.md, decision 7.

1. A large partition is a unit of its own: it fills an application.
2. Small partitions are packed together in their order, since the start of a JVM costs more than their work.
3. A unit holds numbers and identifiers that Cleantail made, and nothing of a record: it travels through XCom.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from cleantail.codec import Codec
from cleantail.config.topic_group import GroupLimits
from cleantail.human import be, counted, size

LABEL_TOPICS, LABEL_CHARS = 3, 200
"""A label names so many topics, and is at most so long."""
UNIT_BYTES = 8 << 30
"""A partition of this many live bytes fills a Spark application of its own. Below it the start of a JVM costs more than
the work, since no value is read."""


@dataclass(frozen=True, slots=True)
class DueTopic:
    """Says what a run has to do with one topic. `read_bytes`: at most, by the files' metadata; `overdue_ms`: of its
    most overdue log, 0 where none is; `dirty_ratio`: of its dirtiest due log; `left_since_ms`: since when runs have
    left it over (Unix ms), None where none has."""

    topic: str
    read_bytes: int
    overdue_ms: int = 0
    dirty_ratio: float = 0.0
    left_since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Pack:
    """Holds topics whose work one Spark application does, the most urgent first. `largest_bytes`: what the largest of
    them has to read."""

    topics: tuple[str, ...]
    read_bytes: int
    largest_bytes: int

    @property
    def label(self) -> str:
        """Returns what the pack holds, for people: `orders, sales and 5 more topics, 1.2 MiB`."""
        named, more = self.topics[:LABEL_TOPICS], len(self.topics) - LABEL_TOPICS
        rest = f" and {counted(more, 'more topic')}" if more > 0 else ""
        tail = f"{rest}, {size(self.read_bytes)}"
        return f"{', '.join(named)[: LABEL_CHARS - len(tail)]}{tail}"


@dataclass(frozen=True, slots=True)
class PackedRun:
    """Holds the packs of a run, the most urgent first, and what is left to the next one, with the reason."""

    packs: tuple[Pack, ...]
    left_over: tuple[str, ...]
    reason: str


def pack_topics(due: Iterable[DueTopic], limits: GroupLimits) -> PackedRun:
    """Returns the packs of a run, by the rules of the module docstring."""
    packs = [_packed(topics) for topics in _shared_out(sorted(due, key=_urgency), limits)]
    run, rest = packs[: limits.run_max_packs], packs[limits.run_max_packs :]
    return PackedRun(tuple(run), tuple(t for pack in rest for t in pack.topics), _reason(run, rest, limits))


def _urgency(due: DueTopic) -> tuple[bool, int, int, float, str]:
    """Returns what is lowest of the most urgent topic, by rule 1: whether it was left over, since when, by how much it
    is overdue, how dirty it is, and its name."""
    waits, since_ms = due.left_since_ms is not None, due.left_since_ms or 0
    return not waits, since_ms, -due.overdue_ms, -due.dirty_ratio, due.topic


def _shared_out(in_order: Iterable[DueTopic], limits: GroupLimits) -> list[list[DueTopic]]:
    """Returns the topics of each pack, by the rules 2 and 3. Packs are in the order of their first topics."""
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
    """Returns how much is due, and what of it `run.max.packs` leaves to the next run (4)."""
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


@dataclass(frozen=True, slots=True)
class PartitionWork:
    """Says what a round does to one log. Starts are inclusive, ends exclusive; bytes are live bytes by the files'
    metadata.

    first_dirty_offset  the map is made from here on; equal to `end_offset` where only retention is due
    end_offset          the round looks at records below it
    log_start_offset    the round drops what is below it
    log_end_offset      one past the highest offset that was ever seen
    bytes               of the whole log: what a unit is packed by
    dirty_records       upper limit of the records in [first dirty, end)
    dirty_bytes         in [first dirty, end)
    read_bytes          in [log start, end)
    source_start        a reconciliation compares with what the brokers have from here on
    source_end          and up to here; None before it has read them
    records             in the log's files: by them it is shared out to tasks. A round counts deleted ones, too
    hold_offset         an expiry leaves tombstones from here on for a reader; None where no reader holds any
    hold_cap_ms         and it does so this long beyond their horizon at most
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
        """Returns whether nothing is compacted: the log start moves, and no record is newly published."""
        return self.first_dirty_offset == self.end_offset

    def ending_at(self, end_offset: int) -> PartitionWork:
        """Returns the same work up to an earlier end. Its dirty bytes are reckoned by the share of the offsets that are
        left."""
        offsets = max(self.end_offset - self.first_dirty_offset, 1)
        dirty_bytes = self.dirty_bytes * (end_offset - self.first_dirty_offset) // offsets
        read_bytes = self.read_bytes - (self.dirty_bytes - dirty_bytes)
        return replace(self, end_offset=end_offset, dirty_bytes=dirty_bytes, read_bytes=read_bytes)


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """Describes one Spark application's share of a round.

    `now_ms` is the clock of the run (Unix ms), `base_snapshot_id` the snapshot that the round reads, and `branch` the
    beginning of the name of the branch that it writes (branch_stem).
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
    """Returns the works, in their order, as units of at most `unit_bytes` live bytes. A larger work is a unit alone."""
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


def branch_stem(round_id: str, unit: int) -> str:
    """Returns the beginning of the name of a unit's branch; each try of its task adds a time to it."""
    return f"ct_{round_id}_u{unit}"


def round_name(now_ms: int, sequence_number: int) -> str:
    """Returns a name for branches and evidence: the time of the clock given, and the table's sequence number."""
    stamp = datetime.fromtimestamp(min(now_ms, 253_402_300_799_000) / 1000, UTC).strftime("%Y%m%dT%H%M%S")
    return f"{stamp}_{now_ms % 1000:03d}_{sequence_number}"
