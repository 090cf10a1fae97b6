"""Decide which logs are compacted, and in which order: Kafka's LogToClean and grabFilthiestCompactedLog. Pure.

A log is compacted by these reasons, evaluated in Kafka's order (semantics.md 1.3):

1. `compact` is in cleanup.policy.
2. The log is not in quarantine, or its pause is over. The pause is log.cleaner.backoff.ms, doubled with every failed
   check, or cleantail.approval.pause.ms after a rejection. `force` and `retry_quarantined` skip the pause.
3. It has a file that is registered more than once. Readers see each record of such a file several times until a round.
4. It has cleanable bytes: whole segments between first dirty and first uncleanable.
5. Its oldest dirty record has passed max.compaction.lag.ms, or its dirty ratio is above min.cleanable.dirty.ratio. The
   comparison is strict, so that 1.0 switches the ratio off. `force` skips the ratio, never the bounds.

Overdue logs come first, by deadline, then the dirtiest (semantics.md 3.6). Kafka takes only the highest ratio, so that
an overdue log with a low ratio may starve.

Every decision has its reason and its numbers, for task logs, the UI and `cleantail plan`. The reason names the setting
that makes a log wait, its value, and the end of the wait (UTC).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from cleantail.config.config_model import LONG_MAX
from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.human import duration, instant, interval, setting, until
from cleantail.log.log_state import LogState
from cleantail.log.quarantine import quarantine_pause

RATIO = "min.cleanable.dirty.ratio"


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a log is compacted now, with the reason and the numbers.

    `end_offset`: first uncleanable. The round ends there (exclusive), or earlier if the offset map is full.
    `overdue_ms`: time since the oldest dirty record passed max.compaction.lag.ms. `deadline_ms`: the time (Unix ms) at
    which it passes that limit, or None if never.
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
    """Decide for one log, by the rules of the module docstring."""
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
    """Return whether the log is compacted, and the text of the first rule that decides this."""
    ratio, limit = log.dirty_ratio, configs.min_cleanable_dirty_ratio
    paused = None if force or retry_quarantined else quarantine_pause(log, now_ms)
    # 1. the policy
    if not configs.compacts:
        return False, "cleanup.policy has no compact"
    # 2. the quarantine
    if paused:
        return False, paused
    # 3. records that are registered twice
    if log.registered_twice:
        return True, log.registered_twice
    # 4. something to clean
    if log.cleanable_bytes <= 0:
        return False, nothing_cleanable(log, configs)
    # 5. overdue or dirty enough
    if overdue_by_ms > 0:
        lag = interval(configs.max_compaction_lag_ms)
        return True, f"overdue by {duration(overdue_by_ms)}: max.compaction.lag.ms is {lag}"
    ratio_text = f"{ratio:.2f}" if f"{ratio:.2f}" != f"{limit:.2f}" else f"{ratio:.4f}"
    if ratio > limit:  # strict, as in Kafka: 1.0 switches the ratio off
        return True, f"dirty ratio {ratio_text} is above {RATIO} {limit}"
    if force:
        return True, f"forced; dirty ratio {ratio_text} is not above {RATIO} {limit}"
    return False, f"dirty ratio {ratio_text} is not above {RATIO} {limit}, and {_not_overdue(log, configs)}"


def nothing_cleanable(log: LogState, configs: KafkaConfigs) -> str:
    """Return why no whole segment of a log can be cleaned, and the time at which one can (semantics.md 1.2)."""
    if not log.segments:
        return "the log is empty"
    if log.first_dirty_offset >= log.log_end_offset:
        return f"the log is clean up to its end, offset {log.log_end_offset}"
    if log.active_base_offset is not None and log.first_uncleanable_offset >= log.active_base_offset:
        return _in_active_segment(log, configs)
    # the age of the first uncleanable segment decides the end of the wait
    young = [s for s in log.segments if s.end_offset_exclusive > log.first_uncleanable_offset]
    if not young or not configs.min_compaction_lag_ms:
        return f"nothing is cleanable below offset {log.first_uncleanable_offset}"
    cleanable_at_ms = young[0].largest_timestamp_ms + configs.min_compaction_lag_ms
    lag = setting("min.compaction.lag.ms", configs.min_compaction_lag_ms)
    return f"the records from offset {log.first_uncleanable_offset} on are too young {until(cleanable_at_ms)} ({lag})"


def _in_active_segment(log: LogState, configs: KafkaConfigs) -> str:
    """Return when the active segment ends by its age, even without new records (semantics.md 3.1)."""
    fact = f"the dirty records are in the active segment, from offset {log.active_base_offset}"
    first_ms = log.segments[-1].first_timestamp_ms
    name = "segment.ms" if configs.segment_ms <= configs.max_compaction_lag_ms else "max.compaction.lag.ms"
    ends_at_ms = min(first_ms + configs.effective_segment_ms, LONG_MAX)
    return f"{fact}, {until(ends_at_ms)} ({setting(name, configs.effective_segment_ms)})"


def _not_overdue(log: LogState, configs: KafkaConfigs) -> str:
    """Return when the age of the records will trigger a compaction, regardless of the ratio."""
    deadline_ms = _deadline_ms(log, configs)
    if deadline_ms is None:
        return "no record is overdue"
    lag = setting("max.compaction.lag.ms", configs.max_compaction_lag_ms)
    return f"no record is overdue before {instant(deadline_ms)} UTC ({lag})"


def _deadline_ms(log: LogState, configs: KafkaConfigs) -> int | None:
    """Return when (Unix ms) the oldest dirty record passes max.compaction.lag.ms; None if never."""
    if log.earliest_dirty_timestamp_ms is None:
        return None
    deadline_ms = log.earliest_dirty_timestamp_ms + configs.max_compaction_lag_ms
    return deadline_ms if deadline_ms <= LONG_MAX else None


def in_order_of_work(decisions: Iterable[Decision]) -> list[Decision]:
    """Return the logs to compact, the most urgent first (semantics.md 3.6)."""

    def urgency(d: Decision) -> tuple[float, float, int]:
        deadline_ms = d.deadline_ms if d.overdue_ms else None
        return math.inf if deadline_ms is None else deadline_ms, -d.dirty_ratio, d.partition

    return sorted((d for d in decisions if d.compact), key=urgency)


def overdue_ms(earliest_dirty_timestamp_ms: int | None, max_lag_ms: int, now_ms: int) -> int:
    """Return LogCleanerManager.maxCompactionDelay: ms since the oldest dirty record passed max.compaction.lag.ms
    (semantics.md 1.3b). 0 if it has not, or if no record has a timestamp."""
    if earliest_dirty_timestamp_ms is None:
        return 0
    return max((now_ms - max_lag_ms) - earliest_dirty_timestamp_ms, 0)
