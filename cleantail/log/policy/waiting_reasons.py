"""Says why a log waits, in words: which setting holds it, with its value, and until when (UTC). Pure.

1. A log in quarantine waits for its next try: after a failed check by log.cleaner.backoff.ms, doubled with every try,
   and after a person's no by cleantail.approval.pause.ms.
2. A log without cleanable bytes is empty, or clean up to its end, or its dirty records are in the active segment, or
   they are younger than min.compaction.lag.ms (semantics.md 1.2). The first of these that holds is the reason.
3. An active segment ends by its age, also where no record comes any more (semantics.md 3.1).
"""

from __future__ import annotations

from cleantail.config.settings.config_model import LONG_MAX
from cleantail.config.settings.kafka_configs import KafkaConfigs
from cleantail.human import setting, until
from cleantail.log.log_state import LogState
from cleantail.log.partition_state import Quarantine


def pause(quarantine: Quarantine) -> str:
    """Returns until when, and why, a log in quarantine, or one whose round a person rejected, is left alone."""
    until_text = until(quarantine.retry_at_ms)
    if not quarantine.check_failed:
        return f"paused {until_text} (cleantail.approval.pause.ms): {quarantine.reason}"
    return f"quarantined {until_text} (log.cleaner.backoff.ms, doubled with every try): {quarantine.reason}"


def nothing_cleanable(log: LogState, configs: KafkaConfigs) -> str:
    """Returns why no whole segment of a log can be cleaned (semantics.md 1.2), and when one can."""
    if not log.segments:
        return "the log is empty"
    if log.first_dirty_offset >= log.log_end_offset:
        return f"the log is clean up to its end, offset {log.log_end_offset}"
    if log.active_base_offset is not None and log.first_uncleanable_offset >= log.active_base_offset:
        return _in_active_segment(log, configs)
    # what is left is held by its age: the first segment that is not cleanable decides until when
    young = [s for s in log.segments if s.end_offset_exclusive > log.first_uncleanable_offset]
    if not young or not configs.min_compaction_lag_ms:
        return f"nothing is cleanable below offset {log.first_uncleanable_offset}"
    cleanable_at_ms = young[0].largest_timestamp_ms + configs.min_compaction_lag_ms
    lag = setting("min.compaction.lag.ms", configs.min_compaction_lag_ms)
    return f"the records from offset {log.first_uncleanable_offset} on are too young {until(cleanable_at_ms)} ({lag})"


def _in_active_segment(log: LogState, configs: KafkaConfigs) -> str:
    """Returns when the active segment ends (3), by its age: min(segment.ms, max.compaction.lag.ms)."""
    fact = f"the dirty records are in the active segment, from offset {log.active_base_offset}"
    first_ms = log.segments[-1].first_timestamp_ms
    name = "segment.ms" if configs.segment_ms <= configs.max_compaction_lag_ms else "max.compaction.lag.ms"
    ends_at_ms = min(first_ms + configs.effective_segment_ms, LONG_MAX)
    return f"{fact}, {until(ends_at_ms)} ({setting(name, configs.effective_segment_ms)})"
