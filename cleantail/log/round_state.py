"""What a round leaves in the state of a log: published, expired, or held back. Pure.

1. A published round moves the checkpoint to its end, in the commit that changes the data (semantics.md 1.4, 3.2).
2. A tombstone may go when now >= its horizon (semantics.md 1.5), below the clean point, and once the slowest reader has
   read it or the cap has passed (semantics.md 3.9). It takes two cleanings at least.
3. An expiry removes due tombstones. It changes the ledger, and not the checkpoint.
4. A failed check puts the log into quarantine. The pause before the next try doubles with each failure, up to an hour.
5. A compaction lifts the quarantine of its log once its checks are green. An expiry, and a round that only moved the
   log start, lift one of their own kind: they say nothing of the records that another check held back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cleantail.log.log_measure import LogMeasure
from cleantail.log.partition_state import CHECK_FAILED, Horizon, PartitionState, Quarantine, without_swept
from cleantail.log.work_units import PartitionWork

MAX_BACKOFF_MS = 3_600_000
"""The longest pause before a log in quarantine is tried again."""
COMPACT = "compact"
EXPIRE = "expire"
"""The second kind of round: COMPACT and EXPIRE are the two."""
RETAIN = "retain"
"""The kind of a quarantine that was left by a round which only moved the log start."""


def after_round(
    state: PartitionState, work: PartitionWork, measure: LogMeasure, sequence_number: int, now_ms: int
) -> PartitionState:
    """Returns the state that a published round leaves: the checkpoint follows the data (semantics.md 1.4, 3.2).

    Where the round removed records for `retention`, the log start was moved for good. `sequence_number` is that of the
    snapshot which the round read.
    """
    return PartitionState(
        checkpoint=work.end_offset,
        log_start_offset=work.log_start_offset,
        log_end_offset=max(state.log_end_offset or 0, work.log_end_offset),
        horizons=without_swept(measure.horizons),
        known_sequence_number=sequence_number,
        earlier_rounds=tuple(r for r in _rounds_before(state) if r[0] > work.end_offset),
        head_tombstones=measure.head_tombstones,
        last_round_ms=now_ms,
        proven_ms=measure.proven_ms,
        retained_from=work.log_start_offset if measure.deleted.get("retention") else state.retained_from,
        quarantine=_outlasting(state.quarantine) if work.only_retention else None,
    )


def _outlasting(quarantine: Quarantine | None) -> Quarantine | None:
    """Returns the quarantine that a round which only moves the log start leaves in force."""
    return None if quarantine is None or quarantine.kind == RETAIN else quarantine


def proof_due(proven_ms: int | None, now_ms: int, interval_ms: int) -> bool:
    """Returns whether all keys of a log are to be proven unique from nothing, and not only the keys that the round
    touches."""
    return proven_ms is None or now_ms - proven_ms >= interval_ms


def late_spans(work: PartitionWork, state: PartitionState) -> list[tuple[int, int, int]]:
    """Returns spans (from, to, sequence number) in which a round looks for tombstones that came late (semantics.md
    3.5).

    A tombstone in such a span has no horizon yet where its file is above the sequence number, though the ledger reaches
    beyond its offset: the round that the number is of passed over the span last, and did not see that file.
    """
    low, spans = work.first_dirty_offset, []
    for round_end, sequence_number in _rounds_before(state):
        high = min(round_end, work.end_offset)
        if low < high:
            spans.append((low, high, sequence_number))
            low = high
    return spans


def _rounds_before(state: PartitionState) -> list[tuple[int, int]]:
    """Returns (end offset, sequence number) of the rounds that were the last to pass over some offset below the
    ledger's end; ends ascend.

    Where the checkpoint was lost, the last known sequence number holds up to the ledger's end: the ledger still says
    what was cleaned.
    """
    last = [] if state.checkpoint is None else [(state.checkpoint, state.known_sequence_number)]
    low, rounds = 0, []
    for end, sequence_number in [*last, *state.earlier_rounds, (state.ledger_end_offset, state.known_sequence_number)]:
        if (end := min(end, state.ledger_end_offset)) > low:
            rounds.append((end, sequence_number))
            low = end
    return rounds


def due_spans(
    horizons: Sequence[Horizon],
    end_offset: int,
    now_ms: int,
    hold_offset: int | None = None,
    hold_cap_ms: int = 0,
    fresh_from: int | None = None,
) -> list[tuple[int, int]]:
    """Returns the offset spans (end exclusive) whose tombstones may go: `now >= horizon` (semantics.md 1.5).

    1. They end at `end_offset`, the clean point. Late records move it back into an entry (semantics.md 3.5), and a
       tombstone above one of them may still have to beat it.
    2. What the slowest reader has not read, from `hold_offset` on, waits until the cap has passed as well (semantics.md
       3.9).
    3. A tombstone takes two cleanings at least. With delete.retention.ms 0 a horizon is due when it is set, so horizons
       that this very run has set, those from `fresh_from` on, are left for a later run.
    """
    starts = [0, *(h.end_offset for h in horizons)]
    spans = [
        (max(start, h.swept_to), min(_end(h, now_ms, hold_offset, hold_cap_ms), end_offset))
        for start, h in zip(starts, horizons, strict=False)
        if now_ms >= h.horizon_ms and not _is_fresh(h, now_ms, fresh_from)
    ]
    return [(start, end) for start, end in spans if start < end]


def _end(horizon: Horizon, now_ms: int, hold_offset: int | None, hold_cap_ms: int) -> int:
    """Returns the offset up to which readers let an entry's tombstones go."""
    return horizon.end_offset if passed(horizon, now_ms, hold_offset, hold_cap_ms) else hold_offset or 0


def as_due(work: PartitionWork, horizons: Sequence[Horizon], now_ms: int) -> tuple[Horizon, ...]:
    """Returns the ledger with the times from which tombstones may go: an entry that this run has set is not due in
    it."""
    return tuple(replace(h, horizon_ms=now_ms + 1) if _is_fresh(h, now_ms, work.fresh_from) else h for h in horizons)


def _is_fresh(horizon: Horizon, now_ms: int, fresh_from: int | None) -> bool:
    return fresh_from is not None and horizon.end_offset > fresh_from and horizon.horizon_ms == now_ms


def passed(horizon: Horizon, now_ms: int, hold_offset: int | None, hold_cap_ms: int) -> bool:
    """Returns whether readers hold back no tombstone of an entry whose horizon has come."""
    return hold_offset is None or horizon.end_offset <= hold_offset or now_ms >= horizon.horizon_ms + hold_cap_ms


def spans_of(work: PartitionWork, horizons: Sequence[Horizon], now_ms: int) -> list[tuple[int, int]]:
    """Returns the due spans of one log's share of an expiry."""
    return due_spans(horizons, work.end_offset, now_ms, work.hold_offset, work.hold_cap_ms, work.fresh_from)


def swept(work: PartitionWork, horizons: Sequence[Horizon], now_ms: int) -> tuple[Horizon, ...]:
    """Returns the ledger once the due spans are swept; its counts of tombstones are still those of before."""
    ends = [end for _, end in spans_of(work, horizons, now_ms)]
    starts = [0, *(h.end_offset for h in horizons)]
    return tuple(
        replace(h, swept_to=max([h.swept_to, *(e for e in ends if start < e <= h.end_offset)]))
        for start, h in zip(starts, horizons, strict=False)
    )


def after_expiry(state: PartitionState, work: PartitionWork, measure: LogMeasure, now_ms: int) -> PartitionState:
    """Returns the state after an expiry: the ledger and the number of guards change, the checkpoint stays the last
    round's. An expiry lifts the quarantine of a failed expiry, and no other."""
    lifted = state.quarantine is not None and state.quarantine.kind == EXPIRE
    return replace(
        state,
        horizons=without_swept(measure.horizons),
        guards=measure.guards,
        last_round_ms=now_ms,
        quarantine=None if lifted else state.quarantine,
    )


def after_failure(
    state: PartitionState, kind: str, expectations: Sequence[str], now_ms: int, backoff_ms: int, branch: str = ""
) -> PartitionState:
    """Puts a log in quarantine, with the expectations that failed and the branch that keeps the failed try.

    1. The pause before the next try doubles with each failure, up to an hour.
    2. Where only the retention of a log failed that is in quarantine already, the old reason stays: a compaction or
       expiry that passes lifts it.
    3. A person's rejection is no failed try: after one the doubling starts from the beginning.
    """
    held = _held_by_check(state)
    kind = held.kind if held and kind == RETAIN else kind
    attempts = held.attempts + 1 if held else 1
    since_ms = held.since_ms if held else now_ms
    reason = f"{CHECK_FAILED}: {', '.join(sorted(set(expectations)))}"
    retry_at_ms = now_ms + _pause_ms(attempts, backoff_ms)
    return replace(state, quarantine=Quarantine(since_ms, kind, reason, attempts, retry_at_ms, branch))


def _held_by_check(state: PartitionState) -> Quarantine | None:
    return state.quarantine if state.quarantine and state.quarantine.check_failed else None


def _pause_ms(attempts: int, backoff_ms: int) -> int:
    """Returns how long a log rests after that many failures in a row: `backoff_ms`, doubled with each after the
    first."""
    doubled: int = backoff_ms * 2 ** min(attempts - 1, 30)
    return min(doubled, MAX_BACKOFF_MS)


def red_since_and_retry(state: PartitionState, now_ms: int, backoff_ms: int) -> tuple[int, int]:
    """Returns (since when a log is in quarantine, when it is tried again), in Unix ms, for a log whose check is red in
    the run of `now_ms`.

    The answer is the same before publish writes the quarantine (after_failure) and after it has.
    """
    held = _held_by_check(state)
    if held is None:
        return now_ms, now_ms + _pause_ms(1, backoff_ms)
    written = held.retry_at_ms == now_ms + _pause_ms(held.attempts, backoff_ms)
    return held.since_ms, now_ms + _pause_ms(held.attempts + (not written), backoff_ms)
