"""When a round waits for a person, and what the answer does to its logs. Pure.

1. `publish: approve` holds every round of a topic, and `cleantail.max.drop.ratio` a round that would remove more than
   that share of one of its logs.
2. Compactions, expiries and reconciliations are all held: the latter two remove for good what no later round can
   tell.
3. One answer is for the whole round, since what passed its checks is published in one commit (semantics.md 3.2).
4. A rejection takes the round's logs out of compaction and retention until a pause has passed, as a failed check does.
5. Where approvers are named, only they may approve, undo a round or release a log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cleantail.config.settings.config_model import LONG_MAX
from cleantail.config.topic import Topic
from cleantail.errors import HeldError
from cleantail.human import counted
from cleantail.log.partition_state import PartitionState, Quarantine
from cleantail.log.round_state import EXPIRE, RECONCILE, RETAIN
from cleantail.log.rules import LogMeasure
from cleantail.rounds.checked.checked_round import Hold

APPROVE = "approve"
"""`publish: approve` in a topic's YAML."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Nobody said yes: `by` a user, or None where the time to answer has passed. `at_ms`: Unix ms."""

    by: str | None
    at_ms: int

    @property
    def reason(self) -> str:
        """Returns in words who did not say yes."""
        return f"rejected by {self.by}" if self.by else "not approved in time"


def holds_of(topic: Topic, measures: Iterable[LogMeasure], passed: Iterable[int]) -> tuple[Hold, ...]:
    """Returns the logs for which a checked round waits, of those that passed; none where it need not wait."""
    green = set(passed)
    reasons = ((m.partition, _hold_reason(topic, m)) for m in measures if m.partition in green)
    return tuple(Hold(partition, reason) for partition, reason in sorted(reasons) if reason)


def _hold_reason(topic: Topic, measure: LogMeasure) -> str:
    records, limit = measure.records_in, topic.config.cleantail_max_drop_ratio
    if records and measure.removed / records > limit:  # strict, as Kafka's ratios: 1.0 switches it off
        return f"{measure.removed} of {counted(records, 'record')} would go, above cleantail.max.drop.ratio {limit}"
    return "publish: approve" if topic.publish == APPROVE else ""


def can_be_held(topic: Topic) -> bool:
    """Returns whether any round of the topic ever waits for a person: only such a topic's DAG has tasks for it."""
    return topic.waits_for_people


def after_rejection(state: PartitionState, kind: str, rejection: Rejection, pause_ms: int) -> PartitionState:
    """Returns the state of a log whose round was rejected: it is out of compaction, and of retention, until the
    pause has passed or a person releases it: the next run would ask the same again. `kind`: of what the log was to
    have, compact, expire, reconcile or retain. It has passed its check, so the quarantine of an earlier failed one
    of the kind is over. That of a failed compaction is not where only an expiry, a reconciliation or retention was
    due: its dirty records were not checked, and only its pause gets longer. The same answer again changes
    nothing."""
    retry_at_ms = min(rejection.at_ms + pause_ms, LONG_MAX)
    held = state.quarantine
    if held and held.check_failed:
        if kind == RETAIN or (kind in (EXPIRE, RECONCILE) and held.kind != kind):
            return replace(state, quarantine=replace(held, retry_at_ms=max(held.retry_at_ms, retry_at_ms)))
        held = None
    if held and (held.reason, held.retry_at_ms) == (rejection.reason, retry_at_ms):
        return state
    since_ms, attempts = (held.since_ms, held.attempts + 1) if held else (rejection.at_ms, 1)
    return replace(state, quarantine=Quarantine(since_ms, kind, rejection.reason, attempts, retry_at_ms))


def may_decide(topic: Topic, *users: str | None) -> bool:
    """Returns whether a user, by any of the names that Airflow knows it by, may undo a round of the topic, or release a
    log: with `publish: approve` only who may approve. With none named that is everybody who may edit the DAG."""
    return topic.publish != APPROVE or not topic.approvers or not set(topic.approvers).isdisjoint(users)


def require_approver(topic: Topic, what: str, *users: str | None) -> None:
    """Raises HeldError where the user may not decide. `what`: what was asked for, in words."""
    if not may_decide(topic, *users):
        name = next((user for user in users if user), "nobody that Airflow knows")
        raise HeldError(
            f"{topic.topic}: {what} was asked for by {name}, who is not among the topic's approvers "
            f"({', '.join(topic.approvers)}), and publish is approve: nothing was done"
        )


def held_message(topic: str, holds: Sequence[Hold]) -> str:
    """Returns which logs a round waits for, and why, in one line."""
    logs = "; ".join(f"partition {hold.partition}: {hold.reason}" for hold in holds)
    return f"{topic}: nothing was published, the round waits for approval: {logs}"
