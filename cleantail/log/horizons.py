"""When a tombstone may be removed: its horizon has passed, the log is clean up to it, and readers have read it. Pure.

The horizon of a tombstone is the clock of the first round that kept it, plus delete.retention.ms (semantics.md 1.5). It
is set once: no later change of the config moves it. The ledger of a log (cleantail.log.partition_state.Horizon) has its
tombstones in entries: each is a span of offsets with one horizon. An expiry removes a tombstone if all of these hold:

1. now >= its horizon (semantics.md 1.5).
2. It is below the first dirty offset. Late records move that offset back: the tombstone may have to beat one of these
   records (semantics.md 3.5).
3. The slowest registered reader has read it, or cleantail.readers.hold.cap.ms has passed since its horizon
   (semantics.md 3.9). Without a registered reader nothing waits.
4. Its horizon was set by an earlier run. A tombstone takes at least two cleanings, also with delete.retention.ms 0.

A reader's position is the next offset that it will read, as Kafka's committed offsets are. After the cap an expiry
removes tombstones that a reader has not read. The reader is then left behind, and an alert reports it. The ledger
counts tombstones by entry. If a reader is inside an entry, all of the entry's tombstones count, as an upper limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cleantail.config.config_model import LONG_MAX
from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.human import LAST_MOMENT_MS, instant
from cleantail.log.log_state import LogState
from cleantail.log.partition_state import Horizon, with_starts
from cleantail.log.work_units import PartitionWork

NAMED = 3
"""Number of readers that a message names. The page, `cleantail status` and `cleantail plan` list all."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader's position in one log: it has read everything below `offset`, and reported that at `at_ms` (Unix ms)."""

    topic: str
    name: str
    partition: int
    offset: int
    at_ms: int


def hold_offset(readers: Iterable[Reader], partition: int) -> int | None:
    """Return the position of the log's slowest reader; None if no reader is registered."""
    return min((r.offset for r in readers if r.partition == partition), default=None)


def left_behind(readers: Iterable[Reader], last_removed: Mapping[int, int]) -> list[Reader]:
    """Return the readers that had not read a tombstone when it was removed.

    `last_removed`: partition -> the highest offset of a removed tombstone.
    """
    return [r for r in readers if r.partition in last_removed and r.offset <= last_removed[r.partition]]


def new_horizon_ms(configs: KafkaConfigs, now_ms: int) -> int:
    """Return the horizon (Unix ms) of tombstones that a round is the first to keep (semantics.md 1.5).

    It is at most Kafka's largest time, because delete.retention.ms may mean "for ever".
    """
    return min(now_ms + configs.delete_retention_ms, LONG_MAX)


def due_spans(
    horizons: Sequence[Horizon],
    end_offset: int,
    now_ms: int,
    hold_offset: int | None = None,
    hold_cap_ms: int = 0,
    fresh_from: int | None = None,
) -> list[tuple[int, int]]:
    """Return the offset spans (end exclusive) whose tombstones may be removed, by the rules of the module docstring.

    `end_offset` is the first dirty offset. If late records moved it back into an entry, the entry is due in part.
    Tombstones from `hold_offset` on wait for the slowest reader, at most `hold_cap_ms` longer. `fresh_from` is where
    the compaction of this run began, None unless delete.retention.ms is 0. The horizons that the compaction set from
    that offset on are left for a later run.
    """
    spans = [
        (max(start, h.swept_to), min(_end(h, now_ms, hold_offset, hold_cap_ms), end_offset))
        for start, h in with_starts(horizons)
        if now_ms >= h.horizon_ms and not _is_fresh(h, now_ms, fresh_from)
    ]
    return [(start, end) for start, end in spans if start < end]


def _end(horizon: Horizon, now_ms: int, hold_offset: int | None, hold_cap_ms: int) -> int:
    """Return the offset (exclusive) up to which no reader blocks an entry's tombstones."""
    return horizon.end_offset if past_readers(horizon, now_ms, hold_offset, hold_cap_ms) else hold_offset or 0


def as_due(work: PartitionWork, horizons: Sequence[Horizon], now_ms: int) -> tuple[Horizon, ...]:
    """Return the ledger as this run applies it: entries that it set itself get a horizon that is not due yet.

    The check reads horizons only, and has no rule about the run that set them.
    """
    return tuple(replace(h, horizon_ms=now_ms + 1) if _is_fresh(h, now_ms, work.fresh_from) else h for h in horizons)


def _is_fresh(horizon: Horizon, now_ms: int, fresh_from: int | None) -> bool:
    """Return whether this run has set the horizon, and it is due at once (delete.retention.ms 0)."""
    return fresh_from is not None and horizon.end_offset > fresh_from and horizon.horizon_ms == now_ms


def past_readers(horizon: Horizon, now_ms: int, hold_offset: int | None, hold_cap_ms: int) -> bool:
    """Return whether no reader blocks the entry's tombstones: all have read it, or the cap has passed."""
    return hold_offset is None or horizon.end_offset <= hold_offset or now_ms >= horizon.horizon_ms + hold_cap_ms


def spans_of(work: PartitionWork, horizons: Sequence[Horizon], now_ms: int) -> list[tuple[int, int]]:
    """Return the due spans of one log in an expiry."""
    return due_spans(horizons, work.end_offset, now_ms, work.hold_offset, work.hold_cap_ms, work.fresh_from)


def swept(work: PartitionWork, horizons: Sequence[Horizon], now_ms: int) -> tuple[Horizon, ...]:
    """Return the ledger with each entry's `swept_to` after an expiry.

    The counts of tombstones do not change: the check counts them again.
    """
    ends = [end for _, end in spans_of(work, horizons, now_ms)]
    return tuple(
        replace(h, swept_to=max([h.swept_to, *(e for e in ends if start < e <= h.end_offset)]))
        for start, h in with_starts(horizons)
    )


def due_tombstones(
    log: LogState, now_ms: int, hold_offset: int | None = None, hold_cap_ms: int = 0, clean_to: int | None = None
) -> int:
    """Return how many live tombstones an expiry would remove.

    `clean_to` is the end of a compaction earlier in the same run, or None: it moves the first dirty offset. Guards do
    not count: the last sweep left them because they beat records that no round has cleaned yet. After such a compaction
    they count.
    """
    end_offset = log.first_dirty_offset if clean_to is None else max(clean_to, log.first_dirty_offset)
    spans = due_spans(log.horizons, end_offset, now_ms, hold_offset, hold_cap_ms)
    count = sum(
        h.tombstones for start, h in with_starts(log.horizons) if any(start < end <= h.end_offset for _, end in spans)
    )
    return max(count - (log.state.guards if clean_to is None else 0), 0)


def held_tombstones(log: LogState, now_ms: int, hold_offset: int | None, hold_cap_ms: int) -> int:
    """Return how many live tombstones past their horizon wait for a reader alone."""
    come = (h for h in log.horizons if now_ms >= h.horizon_ms)
    return sum(h.tombstones for h in come if not past_readers(h, now_ms, hold_offset, hold_cap_ms))


@dataclass(frozen=True, slots=True)
class ReaderHold:
    """A reader's position in one log, and the tombstones past their horizon that wait for it.

    `behind` counts the offsets from its position to the log end. `at_most`: some of the `tombstones` may be below its
    position. `until_ms` (Unix ms) is when the cap ends the wait of the last of them, or None if no tombstone waits.
    """

    name: str
    partition: int
    offset: int
    at_ms: int
    behind: int
    tombstones: int
    at_most: bool
    until_ms: int | None

    @property
    def until_text(self) -> str:
        """Return `2026-11-29 14:20:00 UTC`; empty if no tombstone waits, or if the cap is beyond the calendar."""
        if self.until_ms is None or self.until_ms > LAST_MOMENT_MS:
            return ""
        return f"{instant(self.until_ms)} UTC"


def resolve_holds(
    logs: Iterable[LogState], readers: Sequence[Reader], configs: KafkaConfigs, now_ms: int
) -> tuple[ReaderHold, ...]:
    """Return the position of every reader of these logs, in the order of the logs, then of the readers.

    Without `compact` in cleanup.policy no tombstone is ever removed, so none waits.
    """
    return tuple(_hold(log, r, configs, now_ms) for log in logs for r in readers if r.partition == log.partition)


def _hold(log: LogState, reader: Reader, configs: KafkaConfigs, now_ms: int) -> ReaderHold:
    cap_ms = configs.cleantail_readers_hold_cap_ms
    # the entries that the reader blocks, each with the offset from which its tombstones are still there
    entries = [
        (max(start, h.swept_to), h)
        for start, h in (with_starts(log.horizons) if configs.compacts else ())
        if h.tombstones and now_ms >= h.horizon_ms and not past_readers(h, now_ms, reader.offset, cap_ms)
    ]
    return ReaderHold(
        name=reader.name,
        partition=log.partition,
        offset=reader.offset,
        at_ms=reader.at_ms,
        behind=max(log.log_end_offset - reader.offset, 0),
        tombstones=held_tombstones(log, now_ms, reader.offset, cap_ms) if entries else 0,
        at_most=any(start < reader.offset for start, _ in entries),
        until_ms=max((h.horizon_ms + cap_ms for _, h in entries), default=None),
    )


def slowest(holds: Iterable[ReaderHold]) -> list[ReaderHold]:
    """Return, for each log in which tombstones wait, its slowest reader, the first of equal ones."""
    by_log: dict[int, ReaderHold] = {}
    for hold in holds:
        slowest_yet = by_log.get(hold.partition)
        if slowest_yet is None or hold.offset < slowest_yet.offset:
            by_log[hold.partition] = hold
    return [hold for hold in by_log.values() if hold.tombstones]


def waiting_text(holds: Sequence[ReaderHold], and_due: bool = False) -> str:
    """Return `1 tombstone past its horizon waits for reader a (at offset 3 of partition 0) until 2026-11-29 14:20:00
    UTC`.

    `holds`: the result of `slowest`. The text is empty without holds. `and_due`: the sentence before this text
    counts the tombstones that are due.
    """
    if not holds:
        return ""
    count, at_most = sum(hold.tombstones for hold in holds), any(hold.at_most for hold in holds)
    verb = "waits" if count == 1 else "wait"
    if and_due:
        subject = f"up to {count} of them {verb}" if at_most else f"{count} more {verb}"
    else:
        tombstones = "tombstone past its horizon" if count == 1 else "tombstones past their horizon"
        subject = f"{'up to ' if at_most else ''}{count} {tombstones} {verb}"
    return f"{subject} for {_readers(holds)}{_until(holds)}"


def _readers(holds: Sequence[ReaderHold]) -> str:
    texts = [f"{h.name} (at offset {h.offset} of partition {h.partition})" for h in holds[:NAMED]]
    unnamed = [f"{len(holds) - NAMED} more"] if len(holds) > NAMED else []
    *first, last = [*texts, *unnamed]
    joined = f"{', '.join(first)} and {last}" if first else last
    return f"{'reader' if len(holds) == 1 else 'readers'} {joined}"


def _until(holds: Sequence[ReaderHold]) -> str:
    """Return the latest time at which the holds end, or the name of the config if that time is beyond the calendar."""
    last = max(holds, key=lambda hold: hold.until_ms or 0).until_text
    if not last:
        return ", however long that takes (cleantail.readers.hold.cap.ms)"
    return f" until {last}{' at the latest' if len(holds) > 1 else ''}"


def hold_lines(holds: Iterable[ReaderHold]) -> list[str]:
    """Return a line for each reader and log: its position, its lag, how many tombstones it blocks, and until when."""
    return [
        f"reader {h.name}: next offset {h.offset} of partition {h.partition}, behind by {h.behind}; {_held_text(h)}"
        for h in holds
    ]


def _held_text(hold: ReaderHold) -> str:
    if not hold.tombstones:
        return "blocks nothing"
    count = f"{'up to ' if hold.at_most else ''}{hold.tombstones} tombstone{'' if hold.tombstones == 1 else 's'}"
    return f"blocks {count}{f' until {hold.until_text}' if hold.until_text else ''}"
