"""The state of one log as numbers: sections, bounds, bytes, ratio, lags, tombstones. Pure.

All decisions (triggers, retention, the plan of a round) and reports start from a LogState, which is computed from
metadata alone. `log_figures` takes the steps that need no clock, and their result can be cached. `log_state_at` takes
the other steps.

1. Files with live records are rolled into segments (semantics.md 3.1). A file whose records are all deleted belongs to
   no segment, as Kafka drops a segment that was cleaned empty.
2. The log start is the lowest live offset. A backfill may lower it, but not below what retention has set, and not with
   `delete` in the policy. The log end is one past the highest offset ever seen, and never moves back.
3. First dirty is the checkpoint, or the log start before the first round. A checkpoint outside the log is reset to the
   log start, with a warning (semantics.md 1.2). Late records move first dirty back to the lowest of them
   (semantics.md 3.5).
4. The newest segment is active while it is younger than the effective segment.ms. No round touches it. First
   uncleanable is the lowest of log end, last stable offset, base of the active segment, and base of the first dirty
   segment with a record younger than min.compaction.lag.ms, but never below first dirty (semantics.md 1.2, 3.10).
5. Records without a key are counted in both dirty sections, because cleantail.keyless.policy may block the log.
6. Clean bytes are those of inactive segments that begin below first dirty. Cleanable bytes are those of whole segments
   between the two bounds. All other bytes are uncleanable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.unholdable import ERASED
from cleantail.log.partition_state import Horizon, LeftOut, PartitionState
from cleantail.log.segments import DataFile, Segment, is_active, registered_twice_note, roll_segments
from cleantail.log.source_position import GAPS_SHOWN, Forgotten, Gap, ReadPosition, SnapshotGap

KEYLESS_RULE = "invalid_left"
"""The rule of cleantail.log.rules that a log with such records breaks."""
POLICY = "cleantail.keyless.policy"

_WILL = {"fail": "block this partition", "quarantine": "move them to the side table", "drop": "drop them"}
ANEW = "a replay, a backfill, or was the topic recreated?"


@dataclass(frozen=True, slots=True)
class KeylessRecords:
    """A count of records without a key, as a lower and an upper limit.

    Metadata counts the null keys that were written, not those that were deleted since.
    """

    at_least: int
    at_most: int

    def __str__(self) -> str:
        count = str(self.at_most) if self.at_least == self.at_most else f"up to {self.at_most}"
        return f"{count} {'record' if self.at_most == 1 else 'records'} without a key"


def keyless_between(files: Iterable[DataFile], start_offset: int, end_offset: int) -> KeylessRecords:
    """Count the records without a key in [start, end).

    A file that reaches beyond the interval adds to the upper limit only.
    """
    at_least = at_most = 0
    for file in files:
        if file.lower_offset < end_offset and file.upper_offset >= start_offset:
            inside = file.lower_offset >= start_offset and file.upper_offset < end_offset
            at_least += max(file.null_keys - file.deleted_records, 0) if inside else 0
            at_most += min(file.null_keys, file.live_records)
    return KeylessRecords(at_least, at_most)


def keyless_note(below: KeylessRecords, above: KeylessRecords, configs: KafkaConfigs) -> str:
    """Return a text about the records without a key, and the config that decides over them (semantics.md 3.7).

    `below` are in the part that can be cleaned now, `above` in the rest of the dirty part. Empty if there are none, or
    if nothing is compacted.
    """
    policy = configs.cleantail_keyless_policy
    records, round_text = (below, "the next round") if below.at_most else (above, "the round that reaches them")
    if not (records.at_most and configs.compacts):
        return ""
    return f"{round_text} {'will' if records.at_least else 'may'} {_WILL[policy]}: {records} ({POLICY}: {policy})"


def held_reason(count: int, first_offset: int) -> str:
    """Return the reason of a quarantine: `1 record without a key, the first at offset 7; …`."""
    return f"{KeylessRecords(count, count)}, the first at offset {first_offset}; {POLICY} is fail"


@dataclass(frozen=True, slots=True)
class LogFigures:
    """The numbers of one log, from its files and from its state in the table. The names mean the same as in LogState.

    keyless          files with records without a key that reach into the dirty part
    new_tombstones   tombstones that arrived since the last round
    warnings         why first dirty is not the checkpoint
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


def log_figures(
    partition: int,
    files: Sequence[DataFile],
    state: PartitionState,
    arrived: Sequence[DataFile],
    configs: KafkaConfigs,
) -> LogFigures:
    """Return the figures of one log (steps 1 to 3). `arrived` are the files that the last round had not read."""
    # 1. the virtual segments of live files, and the lowest late offset
    late_offset = _late_offset(arrived, state)
    live = [f for f in files if f.live_records]
    segments = roll_segments(live, configs.segment_bytes, configs.effective_segment_ms)
    # 2. the bounds of the log
    log_start = _log_start(live, state, configs)
    log_end = max([state.log_end_offset or 0, *(f.upper_offset + 1 for f in files)])
    # 3. the first dirty offset
    first_dirty, warnings = _first_dirty(state, late_offset, log_start, log_end)
    if all(f.upper_offset < first_dirty for f in live):
        first_dirty = log_end  # nothing is left to clean: retention, an erasure or another engine removed it
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
    lowest = min((f.lower_offset for f in live), default=0)
    if state.log_start_offset is None:
        return lowest
    remembered = state.log_start_offset if not live else min(state.log_start_offset, lowest)
    return max(remembered, kept_log_start(state, configs))


def kept_log_start(state: PartitionState, configs: KafkaConfigs) -> int:
    """Return the offset below which no record belongs to the log: the log start never moves back (semantics.md 1.2).

    With `delete` in the policy, this is the remembered log start. Otherwise it is the last log start set by retention.
    """
    starts = (state.retained_from, state.log_start_offset if configs.deletes else None)
    return max(filter(None, starts), default=0)


def _first_dirty(
    state: PartitionState, late_offset: int | None, log_start: int, log_end: int
) -> tuple[int, tuple[str, ...]]:
    """Return LogCleanerManager.cleanableOffsets' first dirty offset, and a warning if it is not the checkpoint."""
    checkpoint = state.checkpoint
    if checkpoint is None:
        return log_start, ()
    if checkpoint < log_start:
        return log_start, (
            f"first dirty offset {checkpoint} is below the log start {log_start}: reset to the log start",
        )
    if checkpoint > log_end:
        above = f"first dirty offset {checkpoint} is above the log end {log_end}: reset to the log start {log_start}"
        return log_start, (above,)
    if late_offset is not None:
        late = max(late_offset, log_start)
        return late, (f"records arrived below the first dirty offset {checkpoint}: it moves back to {late}",)
    return checkpoint, ()


def _late_offset(arrived: Sequence[DataFile], state: PartitionState) -> int | None:
    """Return the lowest offset that arrived below the checkpoint since the last round (semantics.md 3.5), or None."""
    lowest = min((f.lower_offset for f in arrived), default=None)
    if lowest is None or state.checkpoint is None or lowest >= state.checkpoint:
        return None
    return lowest


@dataclass(frozen=True, slots=True)
class LogState:
    """One log at one moment. Its sections (semantics.md 1.2), with exclusive ends: clean `[log_start, first_dirty)`,
    cleanable `[first_dirty, first_uncleanable)`, uncleanable `[first_uncleanable, log_end)`.

    checkpoint                   None before the first round
    active_base_offset           base of the active segment; None if no segment is active
    ..._bytes                    data-file bytes x live fraction
    records                      live records
    earliest_dirty_timestamp_ms  lowest positive first timestamp of a dirty inactive segment, in Unix ms
    horizons                     the ledger: entries of tombstones with the time from which they may be removed
    tombstones_without_horizon   tombstones that no round has kept yet, so their clock has not started
    known_sequence_number        data files with a higher one arrived after the last round
    late_offset                  lowest offset that arrived below the checkpoint since then, or None
    state                        the state of the log in the table, from which this was computed
    ..._keyless                  records without a key in the two dirty sections
    registered_twice             text about files that a sink registered more than once; empty if none
    gaps                         ranges that were never read, oldest first: offsets that Kafka no longer had,
                                 changes of a source table, records that the table cannot hold
    forgotten                    offsets in which Kafka may have dropped deletions before they were read, or None
    """

    partition: int
    log_start_offset: int
    log_end_offset: int
    checkpoint: int | None
    first_dirty_offset: int
    first_uncleanable_offset: int
    active_base_offset: int | None
    segments: tuple[Segment, ...]
    clean_bytes: int
    cleanable_bytes: int
    uncleanable_bytes: int
    records: int
    earliest_dirty_timestamp_ms: int | None
    horizons: tuple[Horizon, ...]
    tombstones_without_horizon: int
    known_sequence_number: int
    late_offset: int | None
    warnings: tuple[str, ...]
    state: PartitionState
    cleanable_keyless: KeylessRecords
    uncleanable_keyless: KeylessRecords
    registered_twice: str = ""
    gaps: tuple[Gap | SnapshotGap | LeftOut, ...] = ()
    forgotten: Forgotten | None = None

    @property
    def dirty_ratio(self) -> float:
        """Return cleanable / (clean + cleanable) bytes; 0 for an empty log, never NaN (semantics.md 1.2)."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def repaired(self) -> bool:
        """Return whether the checkpoint was outside the log and was reset (semantics.md 1.2)."""
        return self.checkpoint is not None and not self.log_start_offset <= self.checkpoint <= self.log_end_offset

    @property
    def total_bytes(self) -> int:
        return sum(s.bytes for s in self.segments)

    @property
    def active_bytes(self) -> int:
        return self.segments[-1].bytes if self.segments and self.active_base_offset is not None else 0

    @property
    def young_bytes(self) -> int:
        """Return the live bytes of inactive uncleanable segments, which are younger than min.compaction.lag.ms."""
        rolled = self.segments[:-1] if self.active_base_offset is not None else self.segments
        return sum(s.bytes for s in rolled if s.end_offset_exclusive > self.first_uncleanable_offset)

    @property
    def pending_tombstones(self) -> int:
        return self.tombstones_without_horizon + sum(h.tombstones for h in self.horizons)

    @property
    def next_horizon_ms(self) -> int | None:
        return min((h.horizon_ms for h in self.horizons if h.tombstones), default=None)


def resolve_log_state(
    partition: int,
    files: Sequence[DataFile],
    state: PartitionState,
    arrived: Sequence[DataFile],
    configs: KafkaConfigs,
    now_ms: int,
    source: ReadPosition | None = None,
) -> LogState:
    """Return the state of one log (steps 1 to 6), as LogCleanerManager.grabFilthiestCompactedLog computes it."""
    return log_state_at(log_figures(partition, files, state, arrived, configs), configs, now_ms, source)


def log_state_at(
    figures: LogFigures, configs: KafkaConfigs, now_ms: int, source: ReadPosition | None = None
) -> LogState:
    """Return the state at `now_ms` (steps 4 to 6).

    `source`: the position at which the topic was last read, from Kafka or from a source table. None for files.
    """
    partition, state, segments = figures.partition, figures.state, figures.segments
    first_dirty, log_end = figures.first_dirty_offset, figures.log_end_offset
    # 4. the segments that a round may touch, and up to where
    active = segments[-1] if segments and is_active(segments[-1], now_ms, configs.effective_segment_ms) else None
    inactive = segments[:-1] if active else segments
    dirty = [s for s in inactive if s.end_offset_exclusive > first_dirty]
    stable_end = min(log_end, source.open_from.get(partition, log_end)) if source else log_end
    bound = _first_uncleanable(dirty, active, first_dirty, stable_end, configs.min_compaction_lag_ms, now_ms)
    # 5. the records without a key, for which `fail` would block the log, and other warnings
    files, warnings = figures.keyless, figures.warnings
    keyless = (keyless_between(files, first_dirty, bound), keyless_between(files, max(first_dirty, bound), log_end))
    if configs.cleantail_keyless_policy == "fail" and (note := keyless_note(*keyless, configs)):
        warnings = (*warnings, note)
    of_source: tuple[Gap | SnapshotGap, ...] = source.gaps_of(partition) if source else ()
    left_out = (entry for entry in state.left_out if entry.reason != ERASED)  # a user requested these
    gaps = tuple(sorted((*of_source, *left_out), key=lambda gap: gap.at_ms))
    forgotten = source.forgotten_of(partition, state, now_ms) if source else None
    warnings = (*warnings, *(gap.text for gap in gaps[-GAPS_SHOWN:]), *((forgotten.text,) if forgotten else ()))
    if state.rewritten and state.rewritten.counts_at(now_ms):
        warnings = (state.rewritten.text, *warnings)
    if twice := figures.registered_twice:
        warnings = (*warnings, f"{twice}: readers see each record that often, and the next round keeps each once")
    # 6. the numbers
    dirty_timestamps = [s.first_timestamp_ms for s in dirty if s.first_timestamp_ms > 0]
    return LogState(
        partition=partition,
        log_start_offset=figures.log_start_offset,
        log_end_offset=log_end,
        checkpoint=state.checkpoint,
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=bound,
        active_base_offset=active.base_offset if active else None,
        segments=segments,
        clean_bytes=sum(s.bytes for s in inactive if s.base_offset < first_dirty),
        cleanable_bytes=sum(s.bytes for s in dirty if s.end_offset_exclusive <= bound),
        uncleanable_bytes=sum(s.bytes for s in segments if s.end_offset_exclusive > bound),
        records=figures.records,
        earliest_dirty_timestamp_ms=min(dirty_timestamps, default=None),
        horizons=state.horizons,
        tombstones_without_horizon=state.head_tombstones + figures.new_tombstones,
        known_sequence_number=state.known_sequence_number,
        late_offset=figures.late_offset,
        warnings=warnings,
        state=state,
        cleanable_keyless=keyless[0],
        uncleanable_keyless=keyless[1],
        registered_twice=twice,
        gaps=gaps,
        forgotten=forgotten,
    )


def _first_uncleanable(
    dirty: Sequence[Segment], active: Segment | None, first_dirty: int, stable_end: int, min_lag_ms: int, now_ms: int
) -> int:
    """Return max(first dirty, min of stable end, active base, first dirty segment within the lag).

    `stable_end` is the last stable offset. It is the log end unless the topic was read with read_uncommitted
    (semantics.md 1.2, 3.10).
    """
    bounds = [stable_end]
    if active is not None:
        bounds.append(active.base_offset)
    if min_lag_ms > 0:
        young = (s.base_offset for s in dirty if s.largest_timestamp_ms > now_ms - min_lag_ms)
        bounds.append(next(young, stable_end))
    return max(first_dirty, min(bounds))


def late_warnings(
    lowest: Mapping[int, int], states: Mapping[int, PartitionState], configs: KafkaConfigs
) -> tuple[str, ...]:
    """Return an ingestion's warning for each log that gets records below its first dirty offset.

    Such records may be a replay or a backfill (semantics.md 3.5). They may also belong to a recreated topic whose old
    files are gone, so that ingestion has nothing to compare them with (cleantail.log.rules.Contradiction). `lowest`
    maps a partition to the lowest offset that the ingestion brings.
    """
    arrivals = ((p, low, states[p]) for p, low in sorted(lowest.items()) if p in states)
    return tuple(text for p, low, state in arrivals if (text := _warning(p, low, state, configs)))


def _warning(partition: int, low: int, state: PartitionState, configs: KafkaConfigs) -> str:
    start = kept_log_start(state, configs)
    beginning = f"partition {partition}: records from offset {low} on are below the"
    if low < start:
        return f"{beginning} log start {start}, which retention has set: the next round drops them ({ANEW})"
    if state.checkpoint is not None and low < state.checkpoint:
        cleaned = f"first dirty offset {state.checkpoint}, up to which rounds removed superseded records"
        return f"{beginning} {cleaned} ({ANEW})"
    return ""
