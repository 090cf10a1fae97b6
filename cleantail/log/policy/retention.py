"""The `delete` half of a policy: whole virtual segments past retention.ms or retention.bytes (semantics.md 1.1).

1. Only whole segments go, from the oldest on, and never the active one (semantics.md 1.2).
2. First by size: the oldest segments go while the log stays at or above retention.bytes without them.
3. Then by age, of what that leaves: segments go as long as the youngest record of each is older than retention.ms. The
   comparison is strict, as in Kafka. A segment without timestamps is as old as its append, also as in Kafka.
4. The log start moves to the base of the first segment that stays, or to the log end where none does. It never moves
   back.
5. -1 switches a limit off.
"""

from __future__ import annotations

from dataclasses import dataclass

from cleantail.config.settings.config_model import LONG_MAX
from cleantail.config.settings.kafka_configs import KafkaConfigs
from cleantail.human import be, counted, setting, size, until
from cleantail.log.log_state import LogState
from cleantail.log.segments import NO_TIMESTAMP_MS, Segment

NO_DELETE = "cleanup.policy has no delete"
"""The reason where retention is no part of the policy."""
DECIDED = "the first round of this run has moved the log start"
"""The reason in the later rounds of a run (semantics.md 3.8)."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Says where the log start moves to, and why. `log_start_offset` is the present one where nothing is `due`."""

    log_start_offset: int
    due: bool
    reason: str


def resolve_retention(log: LogState, configs: KafkaConfigs, now_ms: int) -> Retention:
    """Returns UnifiedLog.deleteOldSegments' new log start for one log at `now_ms`, by the rules of the module
    docstring."""
    if not configs.deletes:
        return Retention(log.log_start_offset, False, NO_DELETE)
    # 1. what may go at all: never the active segment
    deletable = [s for s in log.segments if log.active_base_offset is None or s.base_offset < log.active_base_offset]
    # 2. and 3. what goes by size, and of the rest by age
    past_size = _count_past_size(log.segments, deletable, configs.retention_bytes)
    past_age = _count_past_age(deletable[past_size:], configs.retention_ms, now_ms)
    count = past_size + past_age
    # 4. the log start, which never moves back
    start = _start_without(log, count)
    if start <= log.log_start_offset:
        return Retention(log.log_start_offset, False, f"no segment is past {_limits(deletable, configs)}")
    limits = " and ".join(name for name, n in (("retention.bytes", past_size), ("retention.ms", past_age)) if n)
    return Retention(start, True, f"{counted(count, 'segment')} below offset {start} {be(count)} past {limits}")


def _limits(deletable: list[Segment], configs: KafkaConfigs) -> str:
    """Returns both limits in words, and when the oldest segment passes the one of age, if it ever does."""
    text = f"{_by_age(configs)} or {_by_size(configs)}"
    unknown = not deletable or deletable[0].largest_timestamp_ms == NO_TIMESTAMP_MS
    if unknown or configs.retention_ms in (-1, LONG_MAX):
        return text
    return f"{text}, nor will one be by its age {until(deletable[0].largest_timestamp_ms + configs.retention_ms)}"


def _by_age(configs: KafkaConfigs) -> str:
    return "retention.ms -1" if configs.retention_ms < 0 else setting("retention.ms", configs.retention_ms)


def _by_size(configs: KafkaConfigs) -> str:
    return f"retention.bytes {-1 if configs.retention_bytes < 0 else size(configs.retention_bytes)}"


def _count_past_age(segments: list[Segment], retention_ms: int, now_ms: int) -> int:
    """Returns how many segments, from the oldest on, have a youngest record older than retention.ms (strict, as in
    Kafka)."""
    if retention_ms < 0:
        return 0
    count = 0
    for segment in segments:
        if segment.largest_timestamp_ms == NO_TIMESTAMP_MS or now_ms - segment.largest_timestamp_ms <= retention_ms:
            break
        count += 1
    return count


def _count_past_size(all_segments: tuple[Segment, ...], segments: list[Segment], retention_bytes: int) -> int:
    """Returns how many of the oldest segments can go while the log stays at or above retention.bytes."""
    if retention_bytes < 0:
        return 0
    excess, count = sum(s.bytes for s in all_segments) - retention_bytes, 0
    for segment in segments:
        if excess - segment.bytes < 0:
            break
        excess, count = excess - segment.bytes, count + 1
    return count


def _start_without(log: LogState, count: int) -> int:
    """Returns the log start once `count` of the oldest segments have gone."""
    if count == 0:
        return log.log_start_offset
    return log.segments[count].base_offset if count < len(log.segments) else log.log_end_offset
