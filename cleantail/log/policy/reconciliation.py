"""Decides when a run compares a topic with what Kafka has of it, to remove keys that are gone there. Pure.

1. A topic that is not read from Kafka has nothing to be compared with.
2. A run that was triggered with `reconcile` compares, as soon as the table has a log.
3. Any other run asks whether it is needed: the brokers may have forgotten deletions of a log before they were read
   (semantics.md 3.12, cleantail.kafka.forgotten). One that has a hindrance does not count: the comparison would be
   refused, so it is told as a warning of the log instead.
4. A needed reconciliation is made with `cleantail.reconcile: needed`. With `trigger` it waits for somebody to trigger
   it, and the reason says so.

The decision is about the topic. Its logs are chosen later, without those whose quarantine has a pause.
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
    """Decides for one run, by the rules of the module docstring. `asked`: it was triggered with `reconcile`."""
    # 1. the source
    if topic.source.kafka is None:
        return ReconcileDecision()
    # 2. a person's trigger
    if asked:
        why = "the run was triggered with reconcile" if logs else "the table has no records yet"
        return ReconcileDecision(bool(logs), why)
    # 3. the need
    needed = [log.forgotten for log in logs if log.forgotten and not log.forgotten.hindrance]
    if not needed:
        return ReconcileDecision(reason="no reconciliation is needed: every deletion was read in time")
    # 4. the config
    if topic.config.cleantail_reconcile != NEEDED:
        way = "cleantail.reconcile is trigger: trigger a run with reconcile"
        return ReconcileDecision(reason=f"a reconciliation is needed, and {way} ({needed[0].text})")
    return ReconcileDecision(True, needed[0].text)
