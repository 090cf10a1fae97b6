"""Which topics of a group share a Spark application, and which wait for the next run. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cleantail.config.topic_group import GroupLimits
from cleantail.human import be, counted, size

LABEL_TOPICS, LABEL_CHARS = 3, 200
"""Limits of a pack's label: number of topics named, number of characters."""


@dataclass(frozen=True, slots=True)
class DueTopic:
    """The due work of one topic: the maximum number of bytes to read, the delay of the most overdue log, and the ratio
    of the dirtiest due log. `left_since_ms`: since when (Unix ms) runs have left the topic unprocessed, or None."""

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


def _urgency(due: DueTopic) -> tuple[float, int, float, str]:
    """Return a sort key (rule 1), lowest for the most urgent topic."""
    left_since_ms = math.inf if due.left_since_ms is None else due.left_since_ms
    return left_since_ms, -due.overdue_ms, -due.dirty_ratio, due.topic


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
