"""Says what a read does next: from where to where, in which partition; and every reason not to read at all. Pure.

1. A read never guesses. A topic whose id has changed, a partition that is gone, a log that is shorter than what was
   read of it: each would put records of one log at the offsets of another, and is an error before anything is read.
2. It begins where the table's position is, and ends at the last stable offset, or at the high watermark where the YAML
   says read_uncommitted. A partition that was added is read from its beginning.
3. Where records have gone before they were read, `on_gap` decides: an error, or the read goes on behind them.
4. It is cut into portions, each of which is one commit, and these into ranges of offsets, each read by one task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cleantail.errors import SourceError, SourceUnreachableError
from cleantail.human import counted
from cleantail.log.source_position import Gap, SourcePosition

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
RANGE_OFFSETS_MIN = 100_000
"""The size of the smallest range of a log that is cut. A range costs a connection and a file, and a smaller one is not
worth a task of its own."""
TASKS_PER_CORE = 2
PORTION_OFFSETS, PORTION_OFFSETS_MIN, PORTION_OFFSETS_MAX = 4_000_000, 10_000, 50_000_000
"""How many offsets the first portion passes at most, and the bounds of those after it."""
PORTION_BYTES = 4 << 30
"""What the data files of one portion take, about: so much of the work a crash can cost."""


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """Says what the brokers say of one partition. Below `last_stable` no transaction is open, and `end` is the high
    watermark; both are exclusive ends."""

    start: int
    last_stable: int
    end: int


@dataclass(frozen=True, slots=True)
class BrokerTopic:
    """Describes a topic as its brokers do at one moment."""

    cluster_id: str
    topic: str
    topic_id: str
    logs: Mapping[int, LogOffsets]


@dataclass(frozen=True, slots=True)
class Range:
    """Names offsets [start, end) of a partition, which one task reads in their order."""

    partition: int
    start: int
    end: int

    @property
    def offsets(self) -> int:
        """Returns how many offsets it has, with and without a record."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Says where a read begins and where it ends (exclusive) in every partition, and which gaps lie before."""

    starts: Mapping[int, int]
    ends: Mapping[int, int]
    gaps: tuple[Gap, ...] = ()

    @property
    def offsets(self) -> int:
        """Returns how many offsets it passes, with and without a record."""
        return sum(end - self.starts[p] for p, end in self.ends.items())

    def next_offsets(self, ranges: Iterable[Range]) -> dict[int, int]:
        """Returns the position after these ranges, each of which begins where the one before it in its log ends."""
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
    """Plans a read from what the table has to the end of what may be read. `table_ends` are the log ends of the table,
    which count as long as nothing was read from Kafka: files of the same topic may have come before.

    Raises SourceError, or SourceUnreachableError where the brokers may know better at another time.
    """
    if position is not None:
        _require_same_topic(position, broker)
    known = position.next_offsets if position is not None else table_ends
    if missing := sorted(set(known) - set(broker.logs)):
        raise SourceError(
            f"topic {broker.topic} has no partition {missing[0]} any more, of which the table has offsets up to "
            f"{known[missing[0]]}; it has {len(broker.logs)}. {_ANOTHER_TABLE}; nothing was appended"
        )
    for partition, offset in sorted(known.items()):
        _require_reachable(partition, offset, broker)
    gaps = tuple(
        Gap(p, known.get(p, 0), log.start, now_ms)
        for p, log in sorted(broker.logs.items())
        if log.start > known.get(p, 0) and (p in known or position is not None)
    )
    if gaps and on_gap != "continue":
        raise SourceError(_gap_text(gaps, broker))
    starts = {p: max(known.get(p, 0), log.start) for p, log in broker.logs.items()}
    ends = {p: log.end if isolation == UNCOMMITTED else log.last_stable for p, log in broker.logs.items()}
    return ReadPlan(starts, {p: max(end, starts[p]) for p, end in ends.items()}, gaps)


_ANOTHER_TABLE = (
    "Offsets of another log must not be mixed with these: give the topic another table in its YAML (table: …) to read "
    "the log as it is now from its start; the table of before stays as it is"
)


def _require_same_topic(position: SourcePosition, broker: BrokerTopic) -> None:
    """Raises SourceError for another topic than the one that was read, also where it has the same name, and for the
    same topic in a copy of its cluster. Segments may not have said which topic and cluster they are of."""
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
        f"its id is {broker.topic_id}, and the table was read from {position.topic_id}"
        if is_another
        else "a copy of a cluster gives offsets of its own"
    )
    raise SourceError(f"{what}: {why}. {_ANOTHER_TABLE}; nothing was appended")


def changed_while_read(before: BrokerTopic, now: BrokerTopic) -> str:
    """Return how two answers for one read are not of one topic; empty if they are."""
    if now.topic_id != before.topic_id:
        return (
            f"topic {before.topic} was recreated while it was read: its id was {before.topic_id} and is {now.topic_id}"
        )
    if now.cluster_id != before.cluster_id:
        return (
            f"topic {before.topic} was read from two clusters, {before.cluster_id} and {now.cluster_id}: give "
            "source.kafka addresses of one"
        )
    return ""


def _require_reachable(partition: int, offset: int, broker: BrokerTopic) -> None:
    """Raises SourceUnreachableError where a log ends before what was read of it. Its end moves
    back where an unclean leader was elected, or a broker was restored from a backup."""
    end = broker.logs[partition].end
    if offset > end:
        raise SourceUnreachableError(
            f"topic {broker.topic}: partition {partition} ends at offset {end}, and the table has offsets up to "
            f"{offset}: a leader that lags, or lost records (an unclean election, a restored broker); nothing was "
            "appended"
        )


def _gap_text(gaps: Sequence[Gap], broker: BrokerTopic) -> str:
    first, more = gaps[0], f" (and in {counted(len(gaps) - 1, 'more partition')})" if len(gaps) > 1 else ""
    return (
        f"topic {broker.topic}: {first.text}{more}: the log starts at {first.to_offset} by now (retention, or deleted "
        "records). source.kafka.on_gap: continue goes on behind the gap, and notes it; nothing was appended"
    )


def portion_ranges(plan: ReadPlan, budget_offsets: int, cores: int) -> tuple[Range, ...]:
    """Returns the first offsets of the plan, at most about `budget_offsets`, fairly from all partitions; a large one is
    cut into several ranges. They ascend by partition and offset."""
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
    """Returns what each gets, at most `budget` in all: small ones whole, the rest alike."""
    shares: dict[int, int] = {}
    left = budget
    for number, (key, size) in enumerate(sorted(sizes.items(), key=lambda item: item[1])):
        shares[key] = min(size, max(1, left // (len(sizes) - number)))
        left -= shares[key]
    return shares


def task_ranges(ranges: Sequence[Range], cores: int) -> tuple[tuple[Range, ...], ...]:
    """Returns the ranges of each task, in their order: many small partitions share a task."""
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
    """Returns how many offsets the next portion may pass, by what this one has written for its own."""
    if written_bytes <= 0:
        return min(budget * 2, PORTION_OFFSETS_MAX)
    return min(max(offsets * PORTION_BYTES // written_bytes, PORTION_OFFSETS_MIN), PORTION_OFFSETS_MAX)
