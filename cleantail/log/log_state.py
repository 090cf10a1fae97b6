"""The state of one log as numbers: sections, bounds, bytes, ratio, lags, tombstones.

Everything that decides (triggers, retention, the plan of a round) and everything that shows (`cleantail status`) starts
from a LogState. It is computed from metadata only, and `now_ms` is an argument. `resolve_log_state` has these steps, of
which the first three need no clock (cleantail.log.log_state):

1. Files with live records are rolled into segments (semantics.md 3.1). Records that arrived below the checkpoint since
   the last round are late.
2. The log start is the lowest live offset, but never below what retention has set. The log end is one past the highest
   offset that was ever seen, since it never moves back.
3. First dirty is the checkpoint (semantics.md 1.2). Outside the log it is reset to the log start, with a warning. Late
   records move it back to the lowest of them (semantics.md 3.5).
4. The newest segment is active while it is younger than the effective segment.ms; no round touches it. First
   uncleanable is the lowest of the log end, the last stable offset where records beyond it were read (semantics.md
   3.10), the base of the active segment, and the base of the first dirty segment with a record younger than
   min.compaction.lag.ms; it is never below first dirty (semantics.md 1.2).
5. Records without a key are counted in the two dirty sections, since cleantail.keyless.policy may hold the log back.
6. Clean bytes are those of the inactive segments that begin below first dirty, cleanable bytes those of whole segments
   between the two bounds, and uncleanable bytes the rest, with the active segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.log.partition_state import Horizon, LeftOut, PartitionState
from cleantail.log.segments import DataFile, Segment, is_active, registered_twice_note, roll_segments
from cleantail.log.source_position import GAPS_SHOWN, Forgotten, Gap, ReadPosition, SnapshotGap

KEYLESS_RULE = "invalid_left"
"""The rule of cleantail.log.rules that such a log breaks."""
POLICY = "cleantail.keyless.policy"

_WILL = {"fail": "hold this partition back", "quarantine": "move them to the side table", "drop": "drop them"}
ANEW = "a replay or a backfill, or was the topic made anew?"


@dataclass(frozen=True, slots=True)
class KeylessRecords:
    """Says how many records without a key there are: files tell how many were written, not which of them are
    deleted."""

    at_least: int = 0
    at_most: int = 0

    def __str__(self) -> str:
        count = str(self.at_most) if self.at_least == self.at_most else f"up to {self.at_most}"
        return f"{count} {'record' if self.at_most == 1 else 'records'} without a key"


def keyless_between(files: Iterable[DataFile], start_offset: int, end_offset: int) -> KeylessRecords:
    """Returns how many records without a key there are with offsets in [start, end).

    All or none of the keyless records of a file that reaches beyond the interval may lie inside: they count for the
    upper limit only.
    """
    at_least = at_most = 0
    for file in files:
        if file.lower_offset < end_offset and file.upper_offset >= start_offset:
            inside = file.lower_offset >= start_offset and file.upper_offset < end_offset
            at_least += max(file.null_keys - file.deleted_records, 0) if inside else 0
            at_most += min(file.null_keys, file.live_records)
    return KeylessRecords(at_least, at_most)


def keyless_note(below: KeylessRecords, above: KeylessRecords, configs: KafkaConfigs) -> str:
    """Returns what will become of the records without a key, and by which knob.

    `below` are those in the part of the log that can be cleaned now, `above` those in the rest of its dirty part. The
    note is empty where there are none, and where nothing is compacted.
    """
    policy = configs.cleantail_keyless_policy
    records, round_text = (below, "the next round") if below.at_most else (above, "the round that reaches them")
    if not (records.at_most and configs.compacts):
        return ""
    return f"{round_text} {'will' if records.at_least else 'may'} {_WILL[policy]}: {records} ({POLICY}: {policy})"


def held_reason(count: int, first_offset: int) -> str:
    """Returns why a log is held back, for its quarantine: `1 record without a key, the first at offset 7; …`."""
    return f"{KeylessRecords(count, count)}, the first at offset {first_offset}; {POLICY} is fail"


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


def late_warnings(
    lowest: Mapping[int, int], states: Mapping[int, PartitionState], configs: KafkaConfigs
) -> tuple[str, ...]:
    """Returns a warning for each log that gets such records. `lowest` maps a partition to the lowest offset that an
    ingestion brings."""
    arrivals = ((p, low, states[p]) for p, low in sorted(lowest.items()) if p in states)
    return tuple(text for p, low, state in arrivals if (text := _warning(p, low, state, configs)))


def _warning(partition: int, low: int, state: PartitionState, configs: KafkaConfigs) -> str:
    """Returns the warning of one log, empty where nothing arrives below what was cleaned or dropped."""
    start = kept_log_start(state, configs)
    beginning = f"partition {partition}: records from offset {low} on are below the"
    if low < start:
        return f"{beginning} log start {start}, which retention has moved there: the next round drops them ({ANEW})"
    if state.checkpoint is not None and low < state.checkpoint:
        return f"{beginning} clean point {state.checkpoint}, to where rounds have removed what was superseded ({ANEW})"
    return ""


@dataclass(frozen=True, slots=True)
class LogState:
    """Describes one log at one moment.

    The clean section is `[log_start, first_dirty)`, the cleanable one `[first_dirty, first_uncleanable)` and the
    uncleanable one `[first_uncleanable, log_end)` (semantics.md 1.2): an end is always exclusive.

    checkpoint                   what the table remembers; None before the first round
    active_base_offset           base of the active segment; None where no segment is active
    ..._bytes                    data-file bytes x live fraction
    records                      live records
    earliest_dirty_timestamp_ms  lowest positive first timestamp of a dirty inactive segment, in Unix ms
    horizons                     the ledger: entries of tombstones with the time from which they may go
    tombstones_without_horizon   tombstones that no round has kept yet, so their clock has not started
    known_sequence_number        data files with a higher one arrived after the last round
    late_offset                  lowest offset that arrived below the checkpoint since then; None where none did
    state                        what the table remembers of the log, from which this was computed
    ..._keyless                  records without a key in the two dirty sections
    registered_twice             which files a sink has registered more than once, in words; empty without any
    gaps                         what was never read of the source, oldest first: offsets that had gone from Kafka,
                                 changes of a source table, records that the table cannot hold
    forgotten                    where deletions may have gone from Kafka before they were read; None where none may
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
    cleanable_keyless: KeylessRecords = KeylessRecords()
    uncleanable_keyless: KeylessRecords = KeylessRecords()
    registered_twice: str = ""
    gaps: tuple[Gap | SnapshotGap | LeftOut, ...] = ()
    forgotten: Forgotten | None = None

    @property
    def dirty_ratio(self) -> float:
        """Returns cleanable / (clean + cleanable) bytes; 0 for an empty log, never NaN (semantics.md 1.2)."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def repaired(self) -> bool:
        """Returns whether the checkpoint lay outside the log and was reset (semantics.md 1.2)."""
        return self.checkpoint is not None and not self.log_start_offset <= self.checkpoint <= self.log_end_offset

    @property
    def total_bytes(self) -> int:
        return sum(s.bytes for s in self.segments)

    @property
    def active_bytes(self) -> int:
        """Returns the live bytes of the newest segment while it is active, which no round touches."""
        return self.segments[-1].bytes if self.segments and self.active_base_offset is not None else 0

    @property
    def young_bytes(self) -> int:
        """Returns the live bytes of the uncleanable segments that are not active: min.compaction.lag.ms holds them."""
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
    """Returns the numbers of LogCleanerManager.grabFilthiestCompactedLog for one log, by the steps of the module
    docstring. The arguments are those of log_figures and log_state_at."""
    return log_state_at(log_figures(partition, files, state, arrived, configs), configs, now_ms, source)


def log_state_at(
    figures: LogFigures, configs: KafkaConfigs, now_ms: int, source: ReadPosition | None = None
) -> LogState:
    """Returns the state at `now_ms` of a log of which the figures are known, by the steps 4 to 6. `source` is how far
    the topic was read in Kafka, or in a source table, where it is read from there."""
    partition, state, segments = figures.partition, figures.state, figures.segments
    first_dirty, log_end = figures.first_dirty_offset, figures.log_end_offset
    # 4. the segments that a round may touch, and up to where
    active = segments[-1] if segments and is_active(segments[-1], now_ms, configs.effective_segment_ms) else None
    inactive = segments[:-1] if active else segments
    dirty = [s for s in inactive if s.end_offset_exclusive > first_dirty]
    stable_end = min(log_end, source.open_from.get(partition, log_end)) if source else log_end
    bound = _first_uncleanable(dirty, active, first_dirty, stable_end, configs.min_compaction_lag_ms, now_ms)
    # 5. the records without a key, for which `fail` would hold the log back
    files, warnings = figures.keyless, figures.warnings
    keyless = (keyless_between(files, first_dirty, bound), keyless_between(files, max(first_dirty, bound), log_end))
    if configs.cleantail_keyless_policy == "fail" and (note := keyless_note(*keyless, configs)):
        warnings = (*warnings, note)
    of_source: tuple[Gap | SnapshotGap, ...] = source.gaps_of(partition) if source else ()
    gaps = tuple(sorted((*of_source, *state.left_out), key=lambda gap: gap.at_ms))
    forgotten = source.forgotten_of(partition, state, now_ms) if source else None
    warnings = (*warnings, *(gap.text for gap in gaps[-GAPS_SHOWN:]), *((forgotten.text,) if forgotten else ()))
    if state.rewritten and state.rewritten.counts_at(now_ms):
        warnings = (state.rewritten.text, *warnings)
    if twice := figures.registered_twice:
        warnings = (*warnings, f"{twice}: readers see their records as often, and a round keeps each once")
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
    """Returns first uncleanable: max(first dirty, min of stable end, active base, first dirty segment within the lag).

    `stable_end` is the last stable offset. In an archive that is the log end, since what was ingested had been
    committed, unless it was read with read_uncommitted (semantics.md 1.2, 3.10).
    """
    bounds = [stable_end]
    if active is not None:
        bounds.append(active.base_offset)
    if min_lag_ms > 0:
        young = (s.base_offset for s in dirty if s.largest_timestamp_ms > now_ms - min_lag_ms)
        bounds.append(next(young, stable_end))
    return max(first_dirty, min(bounds))
