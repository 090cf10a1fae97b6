"""Holds the positions of registered readers, for which the removal of tombstones waits (semantics.md 3.9). Pure.

1. A position is the next offset that the reader will read, as Kafka's committed offsets are. So a reader at offset 7
   has read the tombstone at 6 and not the one at 7.
2. Of a log's readers the slowest decides. Where nobody is registered, nothing waits.
3. The hold has a cap (cleantail.log.horizons). Where that lets a tombstone go that a reader has not read, the reader
   is left behind, and an alert says so.

Module cleantail.lake.runs.reader_properties keeps the positions in the namespace of the topic's table.
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
"""The number of readers that a sentence names; the page, `cleantail status` and `cleantail plan` list all."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Describes a reader's position in one log: it has read everything below `offset`, and said so at `at_ms` (Unix
    ms)."""

    topic: str
    name: str
    partition: int
    offset: int
    at_ms: int


def hold_offset(readers: Iterable[Reader], partition: int) -> int | None:
    """Returns the position of the log's slowest reader; None where nobody is registered (2)."""
    return min((r.offset for r in readers if r.partition == partition), default=None)


def left_behind(readers: Iterable[Reader], last_removed: Mapping[int, int]) -> list[Reader]:
    """Returns the readers that had not read a tombstone when it was removed (3). `last_removed` maps a partition to the
    highest offset of a removed tombstone."""
    return [r for r in readers if r.partition in last_removed and r.offset <= last_removed[r.partition]]


def new_horizon_ms(configs: KafkaConfigs, now_ms: int) -> int:
    """Returns the horizon (Unix ms) of the tombstones that a round of this clock is the first to keep (semantics.md
    1.5). It is Kafka's longest time at most, which never comes: so delete.retention.ms may say "for ever"."""
    return min(now_ms + configs.delete_retention_ms, LONG_MAX)


def due_spans(
    horizons: Sequence[Horizon],
    end_offset: int,
    now_ms: int,
    hold_offset: int | None = None,
    hold_cap_ms: int = 0,
    fresh_from: int | None = None,
) -> list[tuple[int, int]]:
    """Returns the offset spans (end exclusive) whose tombstones may go, by the rules of the module docstring.

    1. An entry is due when now has reached its horizon.
    2. `end_offset` is the clean point. Late records may have moved it back into an entry, which then is due in part.
    3. From `hold_offset` on the slowest reader has not read: these tombstones wait for `hold_cap_ms` more at most.
    4. `fresh_from` is where the compaction of this same run began, and None but with delete.retention.ms 0: the
       horizons that it has set beyond would be due at once, and are left for a later run.
    """
    spans = [
        (max(start, h.swept_to), min(_end(h, now_ms, hold_offset, hold_cap_ms), end_offset))
        for start, h in with_starts(horizons)
        if now_ms >= h.horizon_ms and not _is_fresh(h, now_ms, fresh_from)
    ]
    return [(start, end) for start, end in spans if start < end]


def _end(horizon: Horizon, now_ms: int, hold_offset: int | None, hold_cap_ms: int) -> int:
    """Returns the offset (exclusive) up to which readers let an entry's tombstones go."""
    return horizon.end_offset if past_readers(horizon, now_ms, hold_offset, hold_cap_ms) else hold_offset or 0


def as_due(work: PartitionWork, horizons: Sequence[Horizon], now_ms: int) -> tuple[Horizon, ...]:
    """Returns the ledger as this run is to take it: entries that it has set itself get a horizon that is not due yet.

    The check goes by it, which knows horizons and no rule about the run that set them.
    """
    return tuple(replace(h, horizon_ms=now_ms + 1) if _is_fresh(h, now_ms, work.fresh_from) else h for h in horizons)


def _is_fresh(horizon: Horizon, now_ms: int, fresh_from: int | None) -> bool:
    """Returns whether this very run has set the horizon, and it is due at once (delete.retention.ms 0)."""
    return fresh_from is not None and horizon.end_offset > fresh_from and horizon.horizon_ms == now_ms


def past_readers(horizon: Horizon, now_ms: int, hold_offset: int | None, hold_cap_ms: int) -> bool:
    """Returns whether no reader holds back a tombstone of the entry: all have read it, or the cap has passed."""
    return hold_offset is None or horizon.end_offset <= hold_offset or now_ms >= horizon.horizon_ms + hold_cap_ms


def spans_of(work: PartitionWork, horizons: Sequence[Horizon], now_ms: int) -> list[tuple[int, int]]:
    """Returns the due spans of one log's share of an expiry."""
    return due_spans(horizons, work.end_offset, now_ms, work.hold_offset, work.hold_cap_ms, work.fresh_from)


def swept(work: PartitionWork, horizons: Sequence[Horizon], now_ms: int) -> tuple[Horizon, ...]:
    """Returns the ledger with a note in each entry of how far it is swept. The counts of tombstones are still those of
    before: the check counts anew."""
    ends = [end for _, end in spans_of(work, horizons, now_ms)]
    return tuple(
        replace(h, swept_to=max([h.swept_to, *(e for e in ends if start < e <= h.end_offset)]))
        for start, h in with_starts(horizons)
    )


def due_tombstones(
    log: LogState, now_ms: int, hold_offset: int | None = None, hold_cap_ms: int = 0, clean_to: int | None = None
) -> int:
    """Returns how many live tombstones an expiry would remove.

    1. Only those below the clean point count. `clean_to` is the end of a compaction of the same run that comes before
       the expiry, None where there is none: it moves the clean point.
    2. Of an entry that a reader holds in part, all count: how many are below the reader's offset is not known.
    3. Guards do not count: the last sweep left them, since they beat records that no round has cleaned yet. After a
       compaction of the same run they do.
    """
    end_offset = log.first_dirty_offset if clean_to is None else max(clean_to, log.first_dirty_offset)
    spans = due_spans(log.horizons, end_offset, now_ms, hold_offset, hold_cap_ms)
    count = sum(
        h.tombstones for start, h in with_starts(log.horizons) if any(start < end <= h.end_offset for _, end in spans)
    )
    return max(count - (log.state.guards if clean_to is None else 0), 0)


def held_tombstones(log: LogState, now_ms: int, hold_offset: int | None, hold_cap_ms: int) -> int:
    """Returns how many live tombstones past their horizon wait for a reader alone.

    Of an entry that is held in part, all count.
    """
    come = (h for h in log.horizons if now_ms >= h.horizon_ms)
    return sum(h.tombstones for h in come if not past_readers(h, now_ms, hold_offset, hold_cap_ms))


@dataclass(frozen=True, slots=True)
class Hold:
    """Describes a reader's position in one log, and the tombstones past their horizon that wait for it.

    `behind` counts the offsets from its position to the log end. `tombstones` says how many wait; where `at_most` is
    set, some of them may lie below its position. `until_ms` (Unix ms) says when cleantail.readers.hold.cap.ms lets the
    last of them go; None where none waits.
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
        """Returns `2026-11-29 14:20:00 UTC`; empty where none waits, or where the cap is further than a calendar
        goes."""
        in_calendar = self.until_ms is not None and self.until_ms <= LAST_MOMENT_MS
        return f"{instant(self.until_ms)} UTC" if self.until_ms is not None and in_calendar else ""


def resolve_holds(
    logs: Iterable[LogState], readers: Sequence[Reader], configs: KafkaConfigs, now_ms: int
) -> tuple[Hold, ...]:
    """Returns the position of every reader of these logs, also of one that holds nothing back, in the order of the logs
    and then of the readers."""
    return tuple(_hold(log, r, configs, now_ms) for log in logs for r in readers if r.partition == log.partition)


def _hold(log: LogState, reader: Reader, configs: KafkaConfigs, now_ms: int) -> Hold:
    cap_ms = configs.cleantail_readers_hold_cap_ms
    entries = list(_held_entries(log, reader.offset, now_ms, cap_ms)) if configs.compacts else []
    return Hold(
        name=reader.name,
        partition=log.partition,
        offset=reader.offset,
        at_ms=reader.at_ms,
        behind=max(log.log_end_offset - reader.offset, 0),
        tombstones=held_tombstones(log, now_ms, reader.offset, cap_ms) if entries else 0,
        at_most=any(start < reader.offset for start, _ in entries),
        until_ms=max((h.horizon_ms + cap_ms for _, h in entries), default=None),
    )


def _held_entries(log: LogState, offset: int, now_ms: int, cap_ms: int) -> Iterable[tuple[int, Horizon]]:
    """Yields each entry of the ledger that a reader at `offset` holds back (1, 2), with the offset from which its
    tombstones are still there: a sweep may have taken those below."""
    for start, h in with_starts(log.horizons):
        if h.tombstones and now_ms >= h.horizon_ms and not past_readers(h, now_ms, offset, cap_ms):
            yield max(start, h.swept_to), h


def slowest(holds: Iterable[Hold]) -> list[Hold]:
    """Returns, of each log in which tombstones wait, the reader that decides: the slowest, and of equal ones the
    first."""
    by_log: dict[int, Hold] = {}
    for hold in holds:
        slowest_yet = by_log.get(hold.partition)
        if slowest_yet is None or hold.offset < slowest_yet.offset:
            by_log[hold.partition] = hold
    return [hold for hold in by_log.values() if hold.tombstones]


def waiting_text(holds: Sequence[Hold], beside_due: bool = False) -> str:
    """Returns `1 tombstone past its horizon waits for reader a (at offset 3 of partition 0) until 2026-11-29 14:20:00
    UTC`.

    `holds` are those of `slowest`; the text is empty where there are none. With `beside_due` the sentence before it has
    said how many tombstones go.
    """
    if not holds:
        return ""
    count, at_most = sum(hold.tombstones for hold in holds), any(hold.at_most for hold in holds)
    verb = "waits" if count == 1 else "wait"
    if beside_due:
        subject = f"up to {count} of them {verb}" if at_most else f"{count} more {verb}"
    else:
        tombstones = "tombstone past its horizon" if count == 1 else "tombstones past their horizon"
        subject = f"{'up to ' if at_most else ''}{count} {tombstones} {verb}"
    return f"{subject} for {_readers(holds)}{_until(holds)}"


def _readers(holds: Sequence[Hold]) -> str:
    texts = [f"{h.name} (at offset {h.offset} of partition {h.partition})" for h in holds[:NAMED]]
    unnamed = [f"{len(holds) - NAMED} more"] if len(holds) > NAMED else []
    *first, last = [*texts, *unnamed]
    joined = f"{', '.join(first)} and {last}" if first else last
    return f"{'reader' if len(holds) == 1 else 'readers'} {joined}"


def _until(holds: Sequence[Hold]) -> str:
    """Returns when the last of them goes whoever has read it: where several wait, others may go before."""
    last = max(holds, key=lambda hold: hold.until_ms or 0).until_text
    if not last:
        return ", however long that takes (cleantail.readers.hold.cap.ms)"
    return f" until {last}{' at the latest' if len(holds) > 1 else ''}"


def hold_lines(holds: Iterable[Hold]) -> list[str]:
    """Returns a line for each reader and log: where it is, how far behind, and what it holds back until when."""
    return [
        f"reader {h.name}: next offset {h.offset} of partition {h.partition}, behind by {h.behind}; {_held_text(h)}"
        for h in holds
    ]


def _held_text(hold: Hold) -> str:
    if not hold.tombstones:
        return "holds nothing back"
    count = f"{'up to ' if hold.at_most else ''}{hold.tombstones} tombstone{'' if hold.tombstones == 1 else 's'}"
    return f"holds back {count}{f' until {hold.until_text}' if hold.until_text else ''}"
