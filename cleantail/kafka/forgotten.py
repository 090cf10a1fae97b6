"""Says what the brokers may have forgotten before it was read: deletions, which leave their keys alive for ever. Pure.

Kafka's cleaner keeps a tombstone for delete.retention.ms from the beginning of the first cleaning that meets it, and
no cleaning goes beyond the last stable offset (semantics.md 1.2, 1.5). So a read can have missed one only where all of
these hold:

1. The source topic's cleanup.policy has `compact`.
2. The read ended more than delete.retention.ms after the table last had all of the log. What the table has not read
   was beyond the last stable offset then: no cleaning can have met it before. Both times are this side's, both horizons
   the broker's, so the two clocks need not agree. Of delete.retention.ms the lower value counts, of those at this read
   and at the one before.
3. Offsets that it passed have no record. Where every offset has one, nothing was removed. Markers of transactions,
   aborted records and superseded ones leave such holes as well, so a hole alone says nothing.

Copies of a broker's segments tell the time of their making to nobody: what is read after them, or came before them
without its time, counts as read too late wherever it has holes.

A log of which nothing was read yet counts from when its first read began: a deletion matters only to a key that is
there. A cleaning may have been under way then, for which CLEANING_MS are allowed, half of delete.retention.ms at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cleantail.config.topic import Topic
from cleantail.log.partition_state import PartitionState
from cleantail.log.source_position import Forgotten, SourcePosition

CLEANING_MS = 3_600_000
UNKNOWN_MS = 0
"""Stands for the time of a log that came by files: when these were read nobody knows."""
OFFSET = "offset"


@dataclass(frozen=True, slots=True)
class CleanerConfigs:
    """Says how the brokers clean a topic: its cleanup.policy as a set, and delete.retention.ms."""

    policy: frozenset[str]
    delete_retention_ms: int


@dataclass(frozen=True, slots=True)
class LogRead:
    """Says of one log what a portion has passed, [start, end) of offsets, and how many records came of it. `as_of_ms`:
    when (Unix ms) the log last had nothing that was not read."""

    partition: int
    start: int
    end: int
    records: int
    as_of_ms: int

    @property
    def holes(self) -> int:
        """Returns how many of its offsets have no record."""
        return self.end - self.start - self.records


def hindrance_of(topic: Topic, configs: CleanerConfigs | None) -> str:
    """Returns why the table cannot be compared with its source; empty where it can. `configs` is None where the brokers
    do not say."""
    kafka_topic = topic.kafka_topic
    if configs is None:
        return f"the brokers do not show the configs of topic {kafka_topic} (Kafka's ACL: DescribeConfigs)"
    if "delete" in configs.policy:
        return (
            f"topic {kafka_topic} has delete in its cleanup.policy ({','.join(sorted(configs.policy))}), so a key that "
            "is gone there may just be old"
        )
    if topic.config.compaction_strategy != OFFSET:
        return (
            f"compaction.strategy is {topic.config.compaction_strategy}, and the brokers go by offset: what is gone "
            "there may be what wins here"
        )
    return ""


def as_of(
    partition: int, position: SourcePosition | None, table_end: int, look_ms: int, began_ms: int, retention_ms: int
) -> int:
    """Returns when (Unix ms) the table last had all of a log, or nothing of it.

    `table_end` is the table's log end where nothing was read from Kafka yet, 0 without records. `look_ms` is when the
    brokers were last asked and had nothing new, 0 where they were not. `began_ms` is when this read began.
    """
    known = max(position.as_of_ms.get(partition, UNKNOWN_MS), look_ms) if position else UNKNOWN_MS
    if known:
        return known
    if table_end or (position and position.next_offsets.get(partition)):
        return UNKNOWN_MS
    return began_ms - min(CLEANING_MS, retention_ms // 2)


def lowest_retention_ms(configs: CleanerConfigs, position: SourcePosition | None) -> int:
    """Returns the delete.retention.ms that counts for a read."""
    before_ms = position.delete_retention_ms if position else None
    return configs.delete_retention_ms if before_ms is None else min(before_ms, configs.delete_retention_ms)


def forgotten_by(
    reads: Iterable[LogRead], configs: CleanerConfigs, retention_ms: int, read_ms: int, hindrance: str
) -> tuple[Forgotten, ...]:
    """Returns in which logs deletions may have gone before they were read. `read_ms`: when the read had ended."""
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
    """Returns one entry a log: what is new joins what no reconciliation has seen to, and takes the place of what one
    has. An entry stays beyond its reconciliation, which may be undone."""
    entries = {entry.partition: entry for entry in before}
    for entry in new:
        earlier = entries.get(entry.partition)
        state = states.get(entry.partition, PartitionState())
        lasts = earlier is not None and not state.is_reconciled(earlier.to_offset, earlier.at_ms)
        entries[entry.partition] = entry.with_earlier(earlier) if earlier is not None and lasts else entry
    return tuple(entry for _, entry in sorted(entries.items()))
