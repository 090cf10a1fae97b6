"""Says what the brokers may have forgotten of a portion before it was read, written into the position that goes with
it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.kafka.forgotten import (
    CleanerConfigs,
    LogRead,
    as_of,
    forgotten_by,
    hindrance_of,
    lowest_retention_ms,
    with_forgotten,
)
from cleantail.kafka.read_plan import Range, ReadPlan
from cleantail.kafka.source_looks import last_look_ms
from cleantail.kafka.table_position import TablePosition
from cleantail.log.partition_state import PartitionState
from cleantail.log.source_position import SourcePosition
from spark_jobs.iceberg.iceberg_reads import partition_of
from spark_jobs.round.kafka.log_source import LogSource
from spark_jobs.round.kafka.portions import offset_spans


@dataclass(frozen=True, slots=True)
class CleanerWatch:
    """Knows of one portion what is needed to tell whether deletions may have gone before it was read.

    `configs` are the brokers', or, where nobody shows them, `compact` with the delete.retention.ms of the topic's YAML;
    `hindrance` is why no reconciliation could mend it. `as_of_ms` says of each log when (Unix ms) the table last had
    all of it. `is_current`: whether a log that is read to its end is all that the brokers had as the read began.
    """

    configs: CleanerConfigs
    retention_ms: int
    hindrance: str
    as_of_ms: Mapping[int, int]
    began_ms: int
    is_current: bool
    at_once: frozenset[int] = frozenset()

    @classmethod
    def of(
        cls, topic: Topic, platform: Platform, source: LogSource, at: TablePosition, plan: ReadPlan, began_ms: int
    ) -> CleanerWatch:
        """Asks the source how the brokers clean, and the catalog when the topic was last looked at."""
        configs = source.cleaner_configs() or CleanerConfigs(frozenset({"compact"}), topic.config.delete_retention_ms)
        retention_ms, look_ms = lowest_retention_ms(configs, at.position), last_look_ms(topic, platform, at.position)
        times = {p: as_of(p, at.position, at.ends.get(p, 0), look_ms, began_ms, retention_ms) for p in plan.starts}
        known = {p for p in plan.starts if at.next_offsets.get(p)}
        at_once = frozenset() if source.is_current else frozenset(plan.starts) - known
        return cls(configs, retention_ms, hindrance_of(topic, configs), times, began_ms, source.is_current, at_once)

    def noted(
        self,
        position: SourcePosition,
        before: SourcePosition | None,
        plan: ReadPlan,
        ranges: Sequence[Range],
        files: Sequence[Any],
        states: Mapping[int, PartitionState],
    ) -> SourcePosition:
        """Returns the position with what this portion tells, once its ranges were read into `files`."""
        records = Counter[int]()
        for file in files:
            records[partition_of(file)] += int(file.recordCount())
        reads = [
            LogRead(p, low, end, records[p], self.as_of_ms[p])
            for p, (low, end) in offset_spans(ranges).items()
            if p not in self.at_once
        ]
        read_ms = max(int(time.time() * 1000), self.began_ms)
        new = forgotten_by(reads, self.configs, self.retention_ms, read_ms, self.hindrance)
        ended = {p for p, end in plan.ends.items() if position.next_offsets[p] >= end}
        # when copies of segments were made nobody knows, so they say nothing of the time
        known = before.as_of_ms if before else {}
        current = {p: self.began_ms if p in ended else ms for p, ms in self.as_of_ms.items()}
        return replace(
            position,
            as_of_ms=current if self.is_current else known,
            delete_retention_ms=self.configs.delete_retention_ms,
            forgotten=with_forgotten(before.forgotten if before else (), new, states),
        )
