"""When a log is compacted, and which first: LogToClean and grabFilthiestCompactedLog as pure functions.

A log is compacted by Kafka's reasons, asked in Kafka's order (semantics.md 1.3):

1. `compact` is in cleanup.policy.
2. The log is not in quarantine, or its pause is over. `force` and `retry_quarantined` pass over the pause.
3. It has a file that is registered more than once: every reader sees its records as often until a round has run.
4. It has cleanable bytes: whole segments between first dirty and first uncleanable.
5. Its oldest dirty record has passed max.compaction.lag.ms, or its dirty ratio is above min.cleanable.dirty.ratio. The
   comparison is strict, so that 1.0 switches the ratio off. `force` passes over the ratio, never over the bounds.

Overdue logs come first, by deadline; then the dirtiest (semantics.md 3.6). Kafka takes the highest ratio alone, and an
overdue log with a low ratio may starve.

Every decision comes back with its reason and its numbers, for the log of a task, the UI and `cleantail plan`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cleantail.config.settings.config_model import LONG_MAX
from cleantail.config.settings.kafka_configs import KafkaConfigs
from cleantail.human import duration, instant, interval, setting
from cleantail.log.log_state import LogState
from cleantail.log.policy.waiting_reasons import nothing_cleanable, pause
from cleantail.log.segments import NO_TIMESTAMP_MS

RATIO = "min.cleanable.dirty.ratio"
"""The name of the config, for reasons."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Says whether a log is compacted now, why, and with which numbers.

    `end_offset` is first uncleanable: the round ends there (exclusive), or earlier where the offset map is full.
    `overdue_ms` is by how much the oldest dirty record has passed max.compaction.lag.ms, and `deadline_ms` when it
    passes it (Unix ms); None where that is never.
    """

    partition: int
    compact: bool
    reason: str
    dirty_ratio: float
    min_dirty_ratio: float
    cleanable_bytes: int
    overdue_ms: int
    deadline_ms: int | None
    first_dirty_offset: int
    end_offset: int


def decide(
    log: LogState, configs: KafkaConfigs, now_ms: int, *, force: bool = False, retry_quarantined: bool = False
) -> Decision:
    """Returns Kafka's decision for one log (semantics.md 1.3), by the rules of the module docstring."""
    overdue_by_ms = overdue_ms(log.earliest_dirty_timestamp_ms, configs.max_compaction_lag_ms, now_ms)
    compact, reason = _compact_or_not(log, configs, now_ms, overdue_by_ms, force, retry_quarantined)
    return Decision(
        partition=log.partition,
        compact=compact,
        reason=reason,
        dirty_ratio=log.dirty_ratio,
        min_dirty_ratio=configs.min_cleanable_dirty_ratio,
        cleanable_bytes=log.cleanable_bytes,
        overdue_ms=overdue_by_ms,
        deadline_ms=_deadline_ms(log, configs),
        first_dirty_offset=log.first_dirty_offset,
        end_offset=log.first_uncleanable_offset,
    )


def _compact_or_not(
    log: LogState, configs: KafkaConfigs, now_ms: int, overdue_by_ms: int, force: bool, retry_quarantined: bool
) -> tuple[bool, str]:
    """Returns whether the log is compacted, and in words the first rule of the module docstring that decides it."""
    ratio, limit = log.dirty_ratio, configs.min_cleanable_dirty_ratio
    paused = None if force or retry_quarantined else quarantine_pause(log, now_ms)
    # 1. the policy
    if not configs.compacts:
        return False, "cleanup.policy has no compact"
    # 2. the quarantine
    if paused:
        return False, paused
    # 3. records that are there twice
    if log.registered_twice:
        return True, log.registered_twice
    # 4. something to clean
    if log.cleanable_bytes <= 0:
        return False, nothing_cleanable(log, configs)
    # 5. overdue or dirty enough
    if overdue_by_ms > 0:
        lag = interval(configs.max_compaction_lag_ms)
        return True, f"overdue by {duration(overdue_by_ms)}: max.compaction.lag.ms is {lag}"
    if ratio > limit:  # strict, as in Kafka: 1.0 switches the ratio off
        return True, f"dirty ratio {ratio:.4f} is above {RATIO} {limit}"
    if force:
        return True, f"forced; dirty ratio {ratio:.4f} is not above {RATIO} {limit}"
    return False, f"dirty ratio {ratio:.4f} is not above {RATIO} {limit}, and {_not_overdue(log, configs)}"


def quarantine_pause(log: LogState, now_ms: int) -> str | None:
    """Returns why a quarantined log is neither compacted nor swept before its next try, or None.

    Kafka leaves an uncleanable partition (LogCleanerManager.isUncleanablePartition) out of retention too, and its disk
    fills; here retention goes on.
    """
    quarantine = log.state.quarantine
    if quarantine is None or now_ms >= quarantine.retry_at_ms:
        return None
    return pause(quarantine)


def _not_overdue(log: LogState, configs: KafkaConfigs) -> str:
    """Returns when the age of the records will have them compacted, whatever the ratio."""
    deadline_ms = _deadline_ms(log, configs)
    if deadline_ms is None:
        return "no record is overdue"
    lag = setting("max.compaction.lag.ms", configs.max_compaction_lag_ms)
    return f"no record is overdue before {instant(deadline_ms)} UTC ({lag})"


def _deadline_ms(log: LogState, configs: KafkaConfigs) -> int | None:
    """Returns when (Unix ms) the oldest dirty record passes max.compaction.lag.ms; None where that is never."""
    if log.earliest_dirty_timestamp_ms is None:
        return None
    deadline_ms = log.earliest_dirty_timestamp_ms + configs.max_compaction_lag_ms
    return deadline_ms if deadline_ms <= LONG_MAX else None


def in_order_of_work(decisions: Iterable[Decision]) -> list[Decision]:
    """Returns the logs to compact: overdue ones first, the earliest deadline first of all; then the dirtiest
    (semantics.md 3.6)."""

    def urgency(d: Decision) -> tuple[bool, float, float, int]:
        overdue = d.overdue_ms > 0 and d.deadline_ms is not None
        return (not overdue, float(d.deadline_ms or 0) if overdue else 0.0, -d.dirty_ratio, d.partition)

    return sorted((d for d in decisions if d.compact), key=urgency)


def overdue_ms(earliest_dirty_timestamp_ms: int | None, max_lag_ms: int, now_ms: int) -> int:
    """Returns LogCleanerManager.maxCompactionDelay: by how many ms the oldest dirty record has passed
    max.compaction.lag.ms (semantics.md 1.3b); 0 where it has not, and where no record has a timestamp."""
    if earliest_dirty_timestamp_ms is None or earliest_dirty_timestamp_ms == NO_TIMESTAMP_MS:
        return 0
    return max((now_ms - max_lag_ms) - earliest_dirty_timestamp_ms, 0)
