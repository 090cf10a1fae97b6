"""Plan the next read of a topic, decide whether to read at all, and find deletions that it may have missed. Pure.

1. A read stops with an error, before it reads a record, in three cases: the topic's id has changed, a partition is
   gone, or a log ends before the table's position. Otherwise records of one log would get the offsets of another.
2. A read begins at the table's position. It ends at the last stable offset, or at the high watermark if the YAML has
   read_uncommitted. A partition that was added is read from its beginning.
3. If records were deleted before they were read, `on_gap` decides: an error, or the read continues after the gap.
4. A read is split into portions. Each portion is one commit, and is split into ranges of offsets. One task reads a
   range.

If the brokers remove a tombstone before it was read, its key stays alive in the table for ever. Kafka's cleaner keeps a
tombstone for delete.retention.ms from the beginning of the first cleaning that reaches it. No cleaning goes beyond the
last stable offset (semantics.md 1.2, 1.5). So a read can have missed a tombstone only if all of these hold:

1. The source topic's cleanup.policy has `compact`.
2. The read ended more than delete.retention.ms after the table last had all of the log. Unread records were beyond the
   last stable offset at that time, so no earlier cleaning can have reached them. Both times are by Cleantail's clock,
   and the horizon is by the broker's clock. The two clocks need not agree. The lower delete.retention.ms of this read
   and the previous read counts.
3. Some offsets that the read passed have no record. If every offset has a record, nothing was removed. Transaction
   markers, aborted records and superseded records leave such holes too, so a hole alone proves nothing.

Copies of a broker's segments do not have the time at which they were made. So a read after them counts as too late
wherever it has holes. The same holds for earlier records without a time.

The time of a log that was never read counts from the beginning of its first read: a deletion matters only to a key that
is in the table. A cleaning may have been in progress at that time. CLEANING_MS are allowed for it, at most half of
delete.retention.ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cleantail.config.topic import Topic
from cleantail.errors import SourceError, SourceUnreachableError
from cleantail.human import counted
from cleantail.log.partition_state import PartitionState
from cleantail.log.source_position import Forgotten, Gap, SourcePosition


@dataclass(frozen=True, slots=True)
class LogLag:
    """The position in one partition, and its log start, last stable offset and log end (exclusive) at the brokers.

    `behind`: the number of offsets that a read would pass now, with or without a record. `as_of_ms`: the time (Unix ms)
    at which the table last had all of the log. Unread records came later. None if unknown.
    """

    partition: int
    next_offset: int
    log_start: int
    last_stable: int
    log_end: int
    behind: int
    as_of_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SourceLag:
    """A topic's source at one moment, by partition. `problem`: why a read would stop, empty without a problem."""

    logs: tuple[LogLag, ...]
    problem: str = ""

    @property
    def behind(self) -> int:
        """Return the number of offsets that a read would pass now, in all partitions."""
        return sum(log.behind for log in self.logs)

    @property
    def text(self) -> str:
        return counted(self.behind, "offset")

    @property
    def unread_since_ms(self) -> int | None:
        """Return the earliest time (Unix ms) at which the oldest unread record can have arrived. None without unread
        records, or if the time is unknown."""
        times = [log.as_of_ms for log in self.logs if log.behind]
        return None if None in times else min((ms for ms in times if ms is not None), default=None)


def source_lag(
    topic: Topic,
    position: SourcePosition | None,
    table_ends: Mapping[int, int],
    broker: BrokerTopic,
    now_ms: int,
    caught_up_ms: int = 0,
) -> SourceLag:
    """Return the lag of the table.

    `table_ends`: its log ends, which count until the first read from Kafka, as in plan_read.
    `caught_up_ms`: as in as_of.
    """
    read = position.next_offsets if position is not None else table_ends
    try:
        on_gap = topic.source.kafka.on_gap if topic.source.kafka else "fail"
        plan_read(position, table_ends, broker, topic.source.isolation, on_gap, now_ms)
        problem = ""
    except (SourceError, SourceUnreachableError) as e:
        problem = without_outcome(e)
    logs = []
    for partition, log in sorted(broker.logs.items()):
        next_offset = read.get(partition, log.start)
        behind = max(log.end_for(topic.source.isolation) - max(next_offset, log.start), 0)
        as_of_ms = (
            max(position.as_of_ms.get(partition, UNKNOWN_MS), caught_up_ms) or None if position is not None else None
        )
        logs.append(LogLag(partition, next_offset, log.start, log.last_stable, log.end, behind, as_of_ms))
    return SourceLag(tuple(logs), problem)


def without_outcome(error: Exception) -> str:
    """Return the text of a source's error without "nothing was appended", for pages and commands that only read."""
    return str(error).replace("; nothing was appended", "")


CLEANING_MS = 3_600_000
UNKNOWN_MS = 0
"""Sentinel: the time of a log that came from files, because the time of their copy is unknown."""
OFFSET = "offset"


@dataclass(frozen=True, slots=True)
class BrokerPolicy:
    """The brokers' configs for cleaning a topic: cleanup.policy as a set, and delete.retention.ms."""

    policy: frozenset[str]
    delete_retention_ms: int


@dataclass(frozen=True, slots=True)
class LogRead:
    """The offsets [start, end) of one log that a portion has passed, and the number of records in them.

    `as_of_ms`: the time (Unix ms) at which the table last had all of the log.
    """

    partition: int
    start: int
    end: int
    records: int
    as_of_ms: int

    @property
    def holes(self) -> int:
        """Return the number of offsets without a record."""
        return self.end - self.start - self.records


def hindrance_of(topic: Topic, configs: BrokerPolicy | None) -> str:
    """Return why the table cannot be compared with its source; empty if it can.

    `configs` is None if the brokers do not show them.
    """
    kafka_topic = topic.kafka_topic
    if configs is None:
        return f"the brokers do not return the configs of topic {kafka_topic} (Kafka's ACL: DescribeConfigs)"
    if "delete" in configs.policy:
        return (
            f"topic {kafka_topic} has delete in its cleanup.policy ({','.join(sorted(configs.policy))}), so a key that "
            "is missing there may only have expired"
        )
    if topic.config.compaction_strategy != OFFSET:
        return (
            f"compaction.strategy is {topic.config.compaction_strategy}, but the brokers compact by offset: a record "
            "that they removed may be the winner here"
        )
    return ""


def as_of(
    partition: int, position: SourcePosition | None, table_end: int, caught_up_ms: int, began_ms: int, retention_ms: int
) -> int:
    """Return the time (Unix ms) at which the table last had all of a log, or nothing of it.

    `table_end`: the table's log end before the first read from Kafka, 0 without records.
    `caught_up_ms`: the last query of the brokers without new records, 0 without a query.
    `began_ms`: the beginning of this read.
    """
    known = max(position.as_of_ms.get(partition, UNKNOWN_MS), caught_up_ms) if position else UNKNOWN_MS
    if known:
        return known
    if table_end or (position and position.next_offsets.get(partition)):
        return UNKNOWN_MS
    return began_ms - min(CLEANING_MS, retention_ms // 2)


def lowest_retention_ms(configs: BrokerPolicy, position: SourcePosition | None) -> int:
    """Return the delete.retention.ms that counts for a read: the lower of the current and the previous value."""
    before_ms = position.delete_retention_ms if position else None
    return configs.delete_retention_ms if before_ms is None else min(before_ms, configs.delete_retention_ms)


def forgotten_by(
    reads: Iterable[LogRead], configs: BrokerPolicy, retention_ms: int, read_ms: int, hindrance: str
) -> tuple[Forgotten, ...]:
    """Return the logs with deletions that the brokers may have removed before the read. `read_ms`: the end of the
    read."""
    if "compact" not in configs.policy:
        return ()
    return tuple(
        Forgotten(each.partition, each.start, each.end, each.holes, retention_ms, read_ms, hindrance)
        for each in sorted(reads, key=lambda r: r.partition)
        if each.holes > 0 and read_ms - each.as_of_ms > retention_ms
    )


def with_forgotten(
    before: Iterable[Forgotten], new: Iterable[Forgotten], states: Mapping[int, PartitionState]
) -> tuple[Forgotten, ...]:
    """Return one entry for each log.

    A new entry extends an earlier entry that no reconciliation has covered, and replaces a covered entry. An entry
    stays after its reconciliation, because a reconciliation may be undone.
    """
    entries = {entry.partition: entry for entry in before}
    for entry in new:
        earlier = entries.get(entry.partition)
        state = states.get(entry.partition, PartitionState())
        lasts = earlier is not None and not state.is_reconciled(earlier.to_offset, earlier.at_ms)
        entries[entry.partition] = entry.with_earlier(earlier) if earlier is not None and lasts else entry
    return tuple(entry for _, entry in sorted(entries.items()))


COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
RANGE_OFFSETS_MIN = 100_000
"""Minimum size of a range that is split off a log. A range costs a connection and a file, so a smaller range is not
worth a separate task."""
TASKS_PER_CORE = 2
PORTION_OFFSETS, PORTION_OFFSETS_MIN, PORTION_OFFSETS_MAX = 4_000_000, 10_000, 50_000_000
"""Maximum number of offsets in the first portion, and the bounds of this maximum for later portions."""
PORTION_BYTES = 4 << 30
"""Approximate size of the data files of one portion. A crash loses at most this much work."""


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """The brokers' answer about one partition.

    All transactions below `last_stable` have ended. `end` is the high watermark. Both are exclusive.
    """

    start: int
    last_stable: int
    end: int

    def end_for(self, isolation: str) -> int:
        """Return the offset at which a read ends: the last stable offset, unless it reads uncommitted records."""
        return self.end if isolation == UNCOMMITTED else self.last_stable


@dataclass(frozen=True, slots=True)
class BrokerTopic:
    """A topic as its brokers describe it at one moment."""

    cluster_id: str
    topic: str
    topic_id: str
    logs: Mapping[int, LogOffsets]


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, end) of a partition, which one task reads in order."""

    partition: int
    start: int
    end: int

    @property
    def offsets(self) -> int:
        """Return the number of offsets, with and without a record."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The start and end (exclusive) of a read in every partition, and the gaps before it."""

    starts: Mapping[int, int]
    ends: Mapping[int, int]
    gaps: tuple[Gap, ...] = ()

    @property
    def offsets(self) -> int:
        """Return the number of offsets that the read passes, with and without a record."""
        return sum(end - self.starts[p] for p, end in self.ends.items())

    def next_offsets(self, ranges: Iterable[Range]) -> dict[int, int]:
        """Return the position after these ranges. Each must begin at the end of the previous range of its log."""
        after = dict(self.starts)
        for each in sorted(ranges, key=lambda r: (r.partition, r.start)):
            after[each.partition] = each.end
        return after


def plan_read(
    position: SourcePosition | None,
    table_ends: Mapping[int, int],
    broker: BrokerTopic,
    isolation: str,
    on_gap: str,
    now_ms: int,
) -> ReadPlan:
    """Plan a read from the table's position to the last offset that may be read.

    `table_ends`: the log ends of the table. The first read from Kafka begins there, because files of the same topic may
    have been ingested before. Raises SourceError, or SourceUnreachableError if a later try may succeed.
    """
    if position is not None:
        _require_same_topic(position, broker)
    known = position.next_offsets if position is not None else table_ends
    if missing := sorted(set(known) - set(broker.logs)):
        raise SourceError(
            f"topic {broker.topic} no longer has partition {missing[0]}. The table has its offsets up to "
            f"{known[missing[0]]}; the topic has {counted(len(broker.logs), 'partition')}. {_ANOTHER_TABLE}; nothing "
            "was appended"
        )
    # a log's end moves back after an unclean leader election, or if a broker was restored from a backup
    for partition, offset in sorted(known.items()):
        if offset > (end := broker.logs[partition].end):
            raise SourceUnreachableError(
                f"topic {broker.topic}: partition {partition} ends at offset {end}, and the table has offsets up to "
                f"{offset}: a leader that lags, or lost records (an unclean election, a restored broker); nothing was "
                "appended"
            )
    gaps = tuple(
        Gap(p, known.get(p, 0), log.start, now_ms)
        for p, log in sorted(broker.logs.items())
        if log.start > known.get(p, 0) and (p in known or position is not None)
    )
    if gaps and on_gap != "continue":
        more = f" (and in {counted(len(gaps) - 1, 'more partition')})" if len(gaps) > 1 else ""
        raise SourceError(
            f"topic {broker.topic}: {gaps[0].text}{more}: the log now starts at {gaps[0].to_offset} (retention, or "
            "deleted records). With source.kafka.on_gap: continue, the read continues after the gap and reports it; "
            "nothing was appended"
        )
    starts = {p: max(known.get(p, 0), log.start) for p, log in broker.logs.items()}
    ends = {p: max(log.end_for(isolation), starts[p]) for p, log in broker.logs.items()}
    return ReadPlan(starts, ends, gaps)


_ANOTHER_TABLE = (
    "Offsets of another log must not be mixed with these: give the topic another table in its YAML (table: …) to "
    "read the present log from its start; the present table stays unchanged"
)


def _require_same_topic(position: SourcePosition, broker: BrokerTopic) -> None:
    """Raise SourceError if this is not the topic that was read.

    A recreated topic of the same name is another topic, and so is the same topic in a copy of its cluster. A position
    that came from segments may have no topic id or cluster id.
    """
    is_moved = "" not in (position.cluster_id, broker.cluster_id) and position.cluster_id != broker.cluster_id
    is_another = position.topic_id not in ("", broker.topic_id)
    if not is_moved and not is_another:
        return
    what = (
        f"topic {broker.topic} was recreated"
        if position.topic == broker.topic and not is_moved
        else f"topic {broker.topic} of cluster {broker.cluster_id} is not the topic that the table was read from, "
        f"{position.topic} of cluster {position.cluster_id}"
    )
    why = (
        f"its id is {broker.topic_id}, but the table was read from {position.topic_id}"
        if is_another
        else "a copy of a cluster assigns different offsets"
    )
    raise SourceError(f"{what}: {why}. {_ANOTHER_TABLE}; nothing was appended")


def changed_while_read(before: BrokerTopic, now: BrokerTopic) -> str:
    """Return the change of the topic between two answers during one read; empty without a change."""
    if now.topic_id != before.topic_id:
        return (
            f"topic {before.topic} was recreated while it was read: its id was {before.topic_id} and is {now.topic_id}"
        )
    if now.cluster_id != before.cluster_id:
        return (
            f"topic {before.topic} was read from two clusters, {before.cluster_id} and {now.cluster_id}: name "
            "addresses of only one in source.kafka"
        )
    return ""


def portion_ranges(plan: ReadPlan, budget_offsets: int, cores: int) -> tuple[Range, ...]:
    """Return the first offsets of the plan, about `budget_offsets` at most, with a fair share for each partition.

    Large partitions are split into several ranges. Ranges ascend by partition and offset.
    """
    open_logs = {p: end - plan.starts[p] for p, end in plan.ends.items() if end > plan.starts[p]}
    shares = _fair_shares(open_logs, max(budget_offsets, len(open_logs)))
    size = max(RANGE_OFFSETS_MIN, -(-sum(shares.values()) // (cores * TASKS_PER_CORE)))
    ranges: list[Range] = []
    for partition, share in sorted(shares.items()):
        start = plan.starts[partition]
        pieces = max(1, round(share / size))
        cuts = [start + share * n // pieces for n in range(pieces + 1)]
        ranges += [Range(partition, low, high) for low, high in zip(cuts, cuts[1:], strict=False) if low < high]
    return tuple(ranges)


def _fair_shares(sizes: Mapping[int, int], budget: int) -> dict[int, int]:
    """Return the share of each partition, at most `budget` in total. Small partitions get their whole size, the others
    equal shares."""
    shares: dict[int, int] = {}
    left = budget
    for number, (key, size) in enumerate(sorted(sizes.items(), key=lambda item: item[1])):
        shares[key] = min(size, max(1, left // (len(sizes) - number)))
        left -= shares[key]
    return shares


def task_ranges(ranges: Sequence[Range], cores: int) -> tuple[tuple[Range, ...], ...]:
    """Return the ranges of each task, in order. Many small partitions share a task."""
    total = sum(r.offsets for r in ranges)
    size = max(RANGE_OFFSETS_MIN, -(-total // (cores * TASKS_PER_CORE)))
    tasks: list[list[Range]] = []
    filled = size
    for each in ranges:
        if filled + each.offsets > size:
            tasks.append([])
            filled = 0
        tasks[-1].append(each)
        filled += each.offsets
    return tuple(map(tuple, tasks))


def next_budget(offsets: int, written_bytes: int, budget: int) -> int:
    """Return the maximum number of offsets of the next portion, from the bytes that this portion has written."""
    if written_bytes <= 0:
        return min(budget * 2, PORTION_OFFSETS_MAX)
    return min(max(offsets * PORTION_BYTES // written_bytes, PORTION_OFFSETS_MIN), PORTION_OFFSETS_MAX)
