"""Holds what a log's files say of it, whatever the time: the part of a LogState that no clock changes. Pure.

A table's files may be many, and what follows from them here is short: so it is kept where many topics are shown, and
the state at each moment comes from it. These are the steps 1 to 3 of cleantail.log.log_state, in full:

1. Files with live records are rolled into segments (semantics.md 3.1). A file whose records are all deleted is part of
   none, as Kafka drops a segment that is cleaned empty. Where the lowest offset that arrived since the last round is
   below the checkpoint, it is late (semantics.md 3.5).
2. The log start is the lowest live offset. Where the table remembers a log start, a backfill may lower it, but never
   below what retention has set, and not at all with `delete` in the policy. The log end is one past the highest offset
   of any file, or the remembered one where that is higher: it never moves back, whatever was deleted.
3. First dirty is the checkpoint, and the log start where there is none. A checkpoint below the log start or above the
   log end is reset to the log start with a warning (semantics.md 1.2). Late records move it back to the lowest of them,
   never below the log start (semantics.md 3.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cleantail.config.settings.kafka_configs import KafkaConfigs
from cleantail.log.partition_state import PartitionState
from cleantail.log.segments import DataFile, Segment, registered_twice_note, roll_segments


@dataclass(frozen=True, slots=True)
class LogFigures:
    """Describes one log by its files and what the table remembers of it; the numbers are those of LogState.

    keyless          files with records without a key that reach into the dirty part
    new_tombstones   those that arrived since the last round
    warnings         why the clean point is not the checkpoint, where it is not
    """

    partition: int
    state: PartitionState
    segments: tuple[Segment, ...]
    log_start_offset: int
    log_end_offset: int
    first_dirty_offset: int
    late_offset: int | None
    records: int
    new_tombstones: int
    keyless: tuple[DataFile, ...]
    registered_twice: str
    warnings: tuple[str, ...]

    def with_state(self, state: PartitionState) -> LogFigures:
        """Returns the figures of a log whose quarantine a person has lifted: nothing else of its state is another."""
        return self if state is self.state else replace(self, state=state)


def log_figures(
    partition: int,
    files: Sequence[DataFile],
    state: PartitionState,
    arrived: Sequence[DataFile],
    configs: KafkaConfigs,
) -> LogFigures:
    """Returns the figures of one log, by the steps of the module docstring.

    `files` are the log's data files, `arrived` those with records that the last round had not seen.
    """
    # 1. the virtual segments of what is live, and what arrived late
    late_offset = _late_offset(arrived, state)
    live = [f for f in files if f.live_records]
    segments = roll_segments(live, configs.segment_bytes, configs.effective_segment_ms)
    # 2. the bounds of the log
    log_start = _log_start(live, state, configs)
    log_end = max([state.log_end_offset or 0, *(f.upper_offset + 1 for f in files)])
    # 3. the clean point
    first_dirty, warnings = _first_dirty(state, late_offset, log_start, log_end)
    return LogFigures(
        partition=partition,
        state=state,
        segments=segments,
        log_start_offset=log_start,
        log_end_offset=log_end,
        first_dirty_offset=first_dirty,
        late_offset=late_offset,
        records=sum(f.live_records for f in files),
        new_tombstones=sum(f.null_values for f in arrived),
        keyless=tuple(f for f in live if f.null_keys and f.upper_offset >= first_dirty),
        registered_twice=registered_twice_note(files),
        warnings=warnings,
    )


def _log_start(live: Sequence[DataFile], state: PartitionState, configs: KafkaConfigs) -> int:
    """Returns the first offset that a reader may see. Retention moves it for good; else a backfill may lower it."""
    lowest = min((f.lower_offset for f in live), default=0)
    if state.log_start_offset is None:
        return lowest
    remembered = state.log_start_offset if not live else min(state.log_start_offset, lowest)
    return max(remembered, kept_log_start(state, configs))


def kept_log_start(state: PartitionState, configs: KafkaConfigs) -> int:
    """Returns the offset below which no record is part of the log, whenever it arrived: the log start never moves back
    (semantics.md 1.2).

    A policy with `delete` keeps the log start that the state remembers; another keeps what retention had set before.
    """
    return max(state.retained_from or 0, (state.log_start_offset or 0) if configs.deletes else 0)


def _first_dirty(
    state: PartitionState, late_offset: int | None, log_start: int, log_end: int
) -> tuple[int, tuple[str, ...]]:
    """Returns LogCleanerManager.cleanableOffsets' first dirty offset, and warnings where it had to move (1.2, 3.5)."""
    checkpoint = state.checkpoint
    if checkpoint is None:
        return log_start, ()
    if checkpoint < log_start:
        return log_start, (f"checkpoint {checkpoint} is below the log start {log_start}: reset to the log start",)
    if checkpoint > log_end:
        above = f"checkpoint {checkpoint} is above the log end {log_end}: reset to the log start {log_start}"
        return log_start, (above,)
    if late_offset is not None and late_offset < checkpoint:
        late = max(late_offset, log_start)
        return late, (f"records arrived below the checkpoint {checkpoint}: it moves back to {late}",)
    return checkpoint, ()


def _late_offset(arrived: Sequence[DataFile], state: PartitionState) -> int | None:
    """Returns the lowest offset that arrived below the checkpoint since the last round (semantics.md 3.5), or None."""
    lowest = min((f.lower_offset for f in arrived), default=None)
    if lowest is None or state.checkpoint is None or lowest >= state.checkpoint:
        return None
    return lowest
