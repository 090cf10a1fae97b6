"""Says how far a topic's table is behind its brokers, and what would stop a read of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cleantail.config.topic import Topic
from cleantail.errors import SourceError, SourceUnreachableError
from cleantail.kafka.read_plan import UNCOMMITTED, BrokerTopic, plan_read
from cleantail.log.source_position import SourcePosition


@dataclass(frozen=True, slots=True)
class LogLag:
    """Says of one partition how far it was read and what its brokers have: log start, last stable offset and log end
    (exclusive). `behind` is how many offsets a read would pass now, with and without a record."""

    partition: int
    next_offset: int
    log_start: int
    last_stable: int
    log_end: int
    behind: int


@dataclass(frozen=True, slots=True)
class SourceLag:
    """Describes a topic's source at one moment, by partition number. `problem` says why a read would stop, and is empty
    where it would not."""

    logs: tuple[LogLag, ...]
    problem: str = ""

    @property
    def behind(self) -> int:
        """Returns how many offsets a read would pass now, in all partitions."""
        return sum(log.behind for log in self.logs)


def source_lag(
    topic: Topic, position: SourcePosition | None, table_ends: Mapping[int, int], broker: BrokerTopic, now_ms: int
) -> SourceLag:
    """Returns how far the table is behind. `table_ends` are its log ends, which count as long as nothing was read from
    Kafka, as in plan_read."""
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
        end = log.end if topic.source.isolation == UNCOMMITTED else log.last_stable
        behind = max(end - max(next_offset, log.start), 0)
        logs.append(LogLag(partition, next_offset, log.start, log.last_stable, log.end, behind))
    return SourceLag(tuple(logs), problem)


def without_outcome(error: Exception) -> str:
    """Returns an error of a source for those who only look, to whom it is no news that nothing was appended."""
    return str(error).replace("; nothing was appended", "")
