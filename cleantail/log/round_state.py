"""Says what a published round leaves in the state of a log. Pure.

1. A compaction moves the checkpoint to its end, in the commit that changes the data (semantics.md 1.4, 3.2).
2. An expiry removes due tombstones (cleantail.log.horizons). It changes the ledger, and not the checkpoint.
3. A reconciliation removes keys that are gone at the source. It changes neither checkpoint nor ledger: no tombstone
   goes by it.
4. A compaction lifts the quarantine of its log once its checks are green. An expiry, a reconciliation, and a round that
   only moved the log start lift one of their own kind: they say nothing of the records that another check held back
   (cleantail.log.quarantine has what puts a log there).
"""

from __future__ import annotations

from dataclasses import replace

from cleantail.log.partition_state import PartitionState, Reconciled, without_swept
from cleantail.log.rules import LogMeasure
from cleantail.log.work_units import PartitionWork

COMPACT = "compact"
"""The kind of a round that compacts logs, or only moves their log start; of a quarantine that a compaction left."""
EXPIRE = "expire"
"""The kind of a round that removes tombstones past their horizon, and of a quarantine that it left."""
RECONCILE = "reconcile"
"""The kind of a round that removes keys which are gone at the source, and of a quarantine that it left."""
RETAIN = "retain"
"""The kind of a quarantine, and of no round: it was left by a round which only moved the log start."""


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
        reconciled=state.reconciled,
        rewritten=state.rewritten,
        # a round which only moves the log start lifts no quarantine but its own
        quarantine=None if not work.only_retention or _is_of(state, RETAIN) else state.quarantine,
    )


def _is_of(state: PartitionState, kind: str) -> bool:
    """Return whether the log is in quarantine after a round of this kind."""
    return state.quarantine is not None and state.quarantine.kind == kind


def proof_due(proven_ms: int | None, now_ms: int, interval_ms: int) -> bool:
    """Returns whether all keys of a log are to be proven unique from nothing, and not only the keys that the round
    touches."""
    return proven_ms is None or now_ms - proven_ms >= interval_ms


def late_spans(work: PartitionWork, state: PartitionState) -> list[tuple[int, int, int]]:
    """Returns the spans in which a round looks for tombstones that came late, as (from, to, sequence number)
    (semantics.md 3.5).

    `to` is exclusive. The sequence number is that of the snapshot which the last round over the span had read. A file
    with a higher one came after it: a tombstone in that file has no horizon yet, though the ledger reaches beyond its
    offset.
    """
    low, spans = work.first_dirty_offset, []
    for round_end, sequence_number in _rounds_before(state):
        high = min(round_end, work.end_offset)
        if low < high:
            spans.append((low, high, sequence_number))
            low = high
    return spans


def _rounds_before(state: PartitionState) -> list[tuple[int, int]]:
    """Returns the rounds that were the last to pass over some offset below the ledger's end, as (end offset, sequence
    number); ends ascend.

    The last round went up to the checkpoint, and earlier ones may have gone further, each up to its end. Where the
    checkpoint was lost, the last known sequence number holds up to the ledger's end: the ledger still says what was
    cleaned.
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
    """Returns the state after an expiry: the ledger and the number of guards change, the checkpoint stays the last
    round's. An expiry lifts the quarantine of a failed expiry, and no other."""
    return replace(
        state,
        horizons=without_swept(measure.horizons),
        guards=measure.guards,
        last_round_ms=now_ms,
        quarantine=None if _is_of(state, EXPIRE) else state.quarantine,
    )


def after_reconciliation(state: PartitionState, work: PartitionWork, now_ms: int) -> PartitionState:
    """Returns the state after a reconciliation, which says how far the keys were compared. It lifts the quarantine of a
    failed reconciliation, and no other."""
    return replace(
        state,
        reconciled=Reconciled(work.end_offset, now_ms),
        last_round_ms=now_ms,
        quarantine=None if _is_of(state, RECONCILE) else state.quarantine,
    )
