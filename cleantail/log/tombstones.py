"""When a tombstone may go: its horizon has come, the log is clean up to it, and readers have read it. Pure.

The horizon of a tombstone is the clock of the first round that kept it, plus delete.retention.ms (`new_horizon_ms`,
semantics.md 1.5). It is set once: no change of the config moves it.

The ledger of a log has its tombstones in entries, each a span of offsets with one horizon
(cleantail.log.partition_state.Horizon). A tombstone goes in an expiry once all of these hold:

1. now >= its horizon (semantics.md 1.5).
2. It is below the clean point, which late records move back: it may still have to beat one of them (semantics.md 3.5).
3. The slowest reader has read it, or the cap of the hold has passed (semantics.md 3.9).
4. Its horizon was not set by this very run. A tombstone takes two cleanings at least, also with delete.retention.ms 0.

An expiry sweeps the spans that are due (`due_spans`, of its share of the work `spans_of`). Whether there is one to make
is asked before, by counts: what is due (`due_tombstones`), and what waits for a reader alone (`held_tombstones`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cleantail.config.settings.config_model import LONG_MAX
from cleantail.config.settings.kafka_configs import KafkaConfigs
from cleantail.log.log_state import LogState
from cleantail.log.partition_state import Horizon
from cleantail.log.work_units import PartitionWork


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
    starts = [0, *(h.end_offset for h in horizons)]
    spans = [
        (max(start, h.swept_to), min(_end(h, now_ms, hold_offset, hold_cap_ms), end_offset))
        for start, h in zip(starts, horizons, strict=False)
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
    starts = [0, *(h.end_offset for h in horizons)]
    return tuple(
        replace(h, swept_to=max([h.swept_to, *(e for e in ends if start < e <= h.end_offset)]))
        for start, h in zip(starts, horizons, strict=False)
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
    starts = [0, *(h.end_offset for h in log.horizons)]
    count = sum(
        h.tombstones
        for start, h in zip(starts, log.horizons, strict=False)
        if any(start < end <= h.end_offset for _, end in spans)
    )
    return max(count - (log.state.guards if clean_to is None else 0), 0)


def held_tombstones(log: LogState, now_ms: int, hold_offset: int | None, hold_cap_ms: int) -> int:
    """Returns how many live tombstones past their horizon wait for a reader alone.

    Of an entry that is held in part, all count.
    """
    come = (h for h in log.horizons if now_ms >= h.horizon_ms)
    return sum(h.tombstones for h in come if not past_readers(h, now_ms, hold_offset, hold_cap_ms))
