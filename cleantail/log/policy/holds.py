"""Says what registered readers hold back: which tombstones wait, for whom, and until when (semantics.md 3.9). Pure.

1. A tombstone past its horizon waits until the slowest registered reader of its log has read it.
2. It waits at most cleantail.readers.hold.cap.ms beyond its horizon. A sentence says until when that is. Where it is
   further than a calendar goes, it names the config in place of a date.
3. Without `compact` in cleanup.policy no tombstone ever goes, so none waits.
4. The ledger counts tombstones by entry, not by offset. Where a reader stands inside an entry, all of the entry's
   tombstones count as an upper limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cleantail.config.settings.kafka_configs import KafkaConfigs
from cleantail.human import LAST_MOMENT_MS, instant
from cleantail.log.log_state import LogState
from cleantail.log.partition_state import Horizon
from cleantail.log.reader_positions import Reader
from cleantail.log.tombstones import held_tombstones, past_readers

NAMED = 3
"""The number of readers that a sentence names; the page, `cleantail status` and `cleantail plan` list all."""


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
    starts = [0, *(h.end_offset for h in log.horizons)]
    for start, h in zip(starts, log.horizons, strict=False):
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
