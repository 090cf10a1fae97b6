"""When a run reconciles a topic with its source. Pure.

It does where somebody has triggered it with `reconcile`, and, with `cleantail.reconcile: needed`, where the brokers may
have forgotten deletions before they were read (cleantail.kafka.forgotten). Logs whose quarantine has a pause are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cleantail.config.topic import Topic
from cleantail.log.log_state import LogState

NEEDED = "needed"
"""The value of `cleantail.reconcile` with which runs reconcile by themselves."""
NO_SOURCE = "its source is not Kafka, so there is nothing to compare with"


@dataclass(frozen=True, slots=True)
class ReconcileDecision:
    """Says whether a run reconciles, and why or why not."""

    due: bool = False
    reason: str = NO_SOURCE


def resolve_reconcile(topic: Topic, logs: Sequence[LogState], asked: bool = False) -> ReconcileDecision:
    """Decides for one run. `asked`: it was triggered with `reconcile`."""
    if topic.source.kafka is None:
        return ReconcileDecision()
    if asked:
        why = "the run was triggered with reconcile" if logs else "the table has no records yet"
        return ReconcileDecision(bool(logs), why)
    needed = [log.forgotten for log in logs if log.forgotten and not log.forgotten.hindrance]
    if not needed:
        return ReconcileDecision(reason="no reconciliation is needed: every deletion was read in time")
    if topic.config.cleantail_reconcile != NEEDED:
        way = "cleantail.reconcile is trigger: trigger a run with reconcile"
        return ReconcileDecision(reason=f"a reconciliation is needed, and {way} ({needed[0].text})")
    return ReconcileDecision(True, needed[0].text)
