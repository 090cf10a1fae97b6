"""When a log is put into quarantine, and how long it rests before it is tried again. Pure.

1. A failed check puts the log into quarantine (`after_failure`), and so does a person's rejection
   (cleantail.rounds.approval.after_rejection).
2. The pause before the next try doubles with each failed check, up to an hour. While it lasts, the log is neither
   compacted nor swept (cleantail.log.policy.triggers.quarantine_pause); its retention goes on.
3. A log leaves quarantine when a round of it is published (cleantail.log.round_state.after_round and after_expiry say
   which round ends which quarantine), or when a person releases it (cleantail.log.releases).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cleantail.log.partition_state import CHECK_FAILED, PartitionState, Quarantine
from cleantail.log.round_state import RETAIN

MAX_BACKOFF_MS = 3_600_000
"""The longest pause before a log in quarantine is tried again."""


def after_failure(
    state: PartitionState, kind: str, expectations: Sequence[str], now_ms: int, backoff_ms: int, branch: str = ""
) -> PartitionState:
    """Returns the state of a log whose check failed: in quarantine, with the expectations that failed.

    1. `branch` keeps what the round would have published, for inspection.
    2. The pause before the next try doubles with each failure, up to an hour; `backoff_ms` is the first pause.
    3. Where only the retention of a log failed that a failed check holds already, the quarantine keeps its kind: the
       compaction or expiry that passes lifts it, and no retention.
    4. A person's rejection is no failed check: after one the doubling starts from the beginning.
    """
    held = _held_by_check(state)
    kind = held.kind if held and kind == RETAIN else kind
    attempts = held.attempts + 1 if held else 1
    since_ms = held.since_ms if held else now_ms
    reason = f"{CHECK_FAILED}: {', '.join(sorted(set(expectations)))}"
    retry_at_ms = now_ms + _pause_ms(attempts, backoff_ms)
    return replace(state, quarantine=Quarantine(since_ms, kind, reason, attempts, retry_at_ms, branch))


def _held_by_check(state: PartitionState) -> Quarantine | None:
    """Returns the log's quarantine where a failed check put it there, and no person's rejection."""
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
