"""Change the state of a log after a published round. Pure.

1. A compaction moves the checkpoint to its end, in the commit that changes the data (semantics.md 1.4, 3.2).
2. An expiry removes due tombstones (cleantail.log.horizons). It changes the ledger, but not the checkpoint.
3. A reconciliation removes keys that are gone at the source. It changes neither checkpoint nor ledger.
4. An erasure removes every record of erased keys, even above the checkpoint. It changes neither checkpoint nor ledger.
5. A compaction lifts any quarantine of its log. Other rounds, and rounds that only move the log start, lift only a
   quarantine of their own kind. They prove nothing about records that another check blocked.
"""

from __future__ import annotations

from dataclasses import replace

from cleantail.log.partition_state import PartitionState, Reconciled, without_swept
from cleantail.log.rules import LogMeasure
from cleantail.log.work_units import PartitionWork

COMPACT = "compact"
"""The kind of a round that compacts logs or only moves their log start, and of a quarantine."""
EXPIRE = "expire"
"""The kind of a round that removes tombstones past their horizon, and of a quarantine."""
RECONCILE = "reconcile"
"""The kind of a round that removes keys which are gone at the source, and of a quarantine."""
ERASE = "erase"
"""The kind of a round that removes every record of erased keys, and of a quarantine."""
RETAIN = "retain"
"""The kind of a quarantine after a round that only moved the log start. No round has this kind."""


def after_round(
    state: PartitionState, work: PartitionWork, measure: LogMeasure, sequence_number: int, now_ms: int
) -> PartitionState:
    """Return the state after a compaction, or after a round that only moved the log start.

    If records were removed for `retention`, the log start has moved for good. `sequence_number`: of the snapshot that
    the round read.
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
        reconciled=state.reconciled,
        rewritten=state.rewritten,
        # a round that only moves the log start lifts only its own kind of quarantine
        quarantine=None if not work.only_retention or _is_of(state, RETAIN) else state.quarantine,
    )


def _is_of(state: PartitionState, kind: str) -> bool:
    """Return whether the log is in quarantine after a round of this kind."""
    return state.quarantine is not None and state.quarantine.kind == kind


def proof_due(proven_ms: int | None, now_ms: int, interval_ms: int) -> bool:
    return proven_ms is None or now_ms - proven_ms >= interval_ms


def late_spans(work: PartitionWork, state: PartitionState) -> list[tuple[int, int, int]]:
    """Return the spans in which a round searches for late tombstones (semantics.md 3.5).

    Each is (from, to, sequence number), `to` exclusive. The last round over the span read the snapshot with this
    sequence number. A tombstone in a file with a higher number has no horizon yet, although the ledger reaches beyond
    its offset.
    """
    low, spans = work.first_dirty_offset, []
    for round_end, sequence_number in _rounds_before(state):
        high = min(round_end, work.end_offset)
        if low < high:
            spans.append((low, high, sequence_number))
            low = high
    return spans


def _rounds_before(state: PartitionState) -> list[tuple[int, int]]:
    """Return the last round over each span below the ledger's end, as (end offset, sequence number); ends ascend.

    The last round ended at the checkpoint. Earlier rounds may have ended later. If the checkpoint was lost, the last
    known sequence number counts up to the ledger's end.
    """
    last = [] if state.checkpoint is None else [(state.checkpoint, state.known_sequence_number)]
    without_checkpoint = (state.ledger_end_offset, state.known_sequence_number)
    low, rounds = 0, []
    for end, sequence_number in [*last, *state.earlier_rounds, without_checkpoint]:
        if (end := min(end, state.ledger_end_offset)) > low:
            rounds.append((end, sequence_number))
            low = end
    return rounds


def after_expiry(state: PartitionState, measure: LogMeasure, now_ms: int) -> PartitionState:
    """Return the state after an expiry: the ledger and the number of guards change."""
    return replace(
        state,
        horizons=without_swept(measure.horizons),
        guards=measure.guards,
        last_round_ms=now_ms,
        quarantine=None if _is_of(state, EXPIRE) else state.quarantine,
    )


def after_reconciliation(state: PartitionState, work: PartitionWork, now_ms: int) -> PartitionState:
    """Return the state after a reconciliation: only the end of the comparison changes."""
    return replace(
        state,
        reconciled=Reconciled(work.end_offset, now_ms),
        last_round_ms=now_ms,
        quarantine=None if _is_of(state, RECONCILE) else state.quarantine,
    )


def after_erasure(state: PartitionState, work: PartitionWork, now_ms: int) -> PartitionState:
    """Return the state after an erasure. It stores the log end, because an erasure may remove the log's last records.

    Until the next expiry, the ledger may count tombstones that the erasure removed.
    """
    return replace(
        state,
        log_end_offset=max(state.log_end_offset or 0, work.log_end_offset),
        last_round_ms=now_ms,
        quarantine=None if _is_of(state, ERASE) else state.quarantine,
    )
