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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cleantail.codec import Codec, digest_of
from cleantail.config.config_model import LONG_MAX
from cleantail.config.topic import Topic
from cleantail.errors import HeldError, TableError
from cleantail.human import counted
from cleantail.log.partition_state import PartitionState, Quarantine
from cleantail.log.round_state import EXPIRE, RECONCILE, RETAIN
from cleantail.log.rules import LogMeasure
from cleantail.retries import settled
from cleantail.rounds.checked_round import CheckedRound, Hold

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


PROPERTY_ANSWER = "cleantail.answer."
"""So begins the name of a property that keeps an answer. A hash of topic and kind follows, since catalogs bound the
length of a property's name, and mostly that of its value."""
APPROVE = "approve"
"""`publish: approve` in a topic's YAML."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Describes the last question about a topic's rounds of one kind, and its answer. `shown`: digest of what was asked
    for (shown_of); `task`: of the Airflow task instance that asked. `approved` is None until there is an answer; `user`
    and `by`: id and name of who gave it, None where nobody did in time; times are Unix ms."""

    topic: str
    kind: str
    round: str
    shown: str
    task: str
    asked_at_ms: int
    approved: bool | None = None
    user: str | None = None
    by: str | None = None
    at_ms: int | None = None


ANSWER_JSON: Codec[Answer] = Codec(Answer)


def question(checked: CheckedRound, task: Sequence[str], now_ms: int) -> Answer:
    """Returns what a task asks of a checked round; `task` is what Airflow knows its instance by."""
    return Answer(checked.topic, checked.kind, checked.round, shown_of(checked), digest_of(map(str, task)), now_ms)


def shown_of(checked: CheckedRound) -> str:
    """Returns a digest of what an answer is for: the heads of the branches, and the logs that passed there."""
    return digest_of(map(str, [*checked.heads, "passed", *checked.green]))


def answered(
    last_question: Answer | None, task: Sequence[str], approved: bool, user: Mapping[str, str] | None, at_ms: int
) -> Answer:
    """Returns the question with its answer. Raises HeldError where the last question is not this task's own."""
    if last_question is None or last_question.task != digest_of(map(str, task)):
        raise HeldError(
            "the question that was answered is not the last one that was asked about the topic, so the answer counts "
            "for nothing. Clear this task: it asks again"
        )
    by = (user["name"] or user["id"]) if user else None
    return replace(last_question, approved=approved, user=user["id"] if user else None, by=by, at_ms=at_ms)


def decided(topic: Topic, checked: CheckedRound, answer: Answer | None) -> str | Rejection | None:
    """Returns what the answer means for a checked round: the name of who has approved it, or that it was rejected; None
    where it need not wait and nobody was asked. Raises HeldError where it waits, with the reason why it still does."""
    ours = answer is not None and (answer.kind, answer.round) == (checked.kind, checked.round)
    same = answer is not None and ours and answer.shown == shown_of(checked)
    # 1. a no to what was shown is a no, whether the round had to wait or not
    if answer is not None and same and answer.approved is False:
        return Rejection(answer.by, answer.at_ms or answer.asked_at_ms)
    # 2. a round that need not wait is published without an answer
    if not checked.holds:
        return None
    # 3. any other waits until somebody who may has said yes to this very round
    if answer is None or not ours:
        raise _nobody(checked, "nobody was asked about it, whatever an XCom or the state of a task says")
    if not same:
        raise _nobody(
            checked, "it was made or checked anew after it was asked for, and an answer is for what was shown"
        )
    if not answer.approved:
        raise _nobody(
            checked, "it was asked for, and nobody has answered, whatever an XCom or the state of a task says"
        )
    if topic.approvers and answer.user not in topic.approvers:
        raise _nobody(checked, f"{answer.by} has approved it, who is not among the topic's approvers")
    return answer.by or answer.user


def _nobody(checked: CheckedRound, why: str) -> HeldError:
    return HeldError(
        f"{checked.topic}: nothing was published: nobody who may has approved round {checked.round} "
        f"({checked.kind}): {why}. Clear the task that asks, and answer it; or let the next run make the round anew"
    )


def read_answer(catalog: Catalog, topic: Topic, kind: str) -> Answer | None:
    """Returns the last question about the topic's rounds of this kind, with its answer if it has one. Raises TableError
    for a property that is none."""
    from pyiceberg.exceptions import NoSuchNamespaceError

    name = _property(topic, kind)
    try:
        text = catalog.load_namespace_properties(topic.own_namespace).get(name)
    except NoSuchNamespaceError:
        return None
    if text is None:
        return None
    try:
        answer = ANSWER_JSON.value(text, "it")
    except TableError as e:
        raise TableError(f"namespace property {name} is not an answer about a round: {e}") from None
    return answer if answer.topic == topic.topic else None


def write_answer(catalog: Catalog, topic: Topic, answer: Answer) -> None:
    """Keeps the question or the answer, in the place of the last one of its kind."""
    settled(lambda: catalog.create_namespace_if_not_exists(topic.own_namespace))
    updates = {_property(topic, answer.kind): ANSWER_JSON.text(answer)}
    settled(lambda: catalog.update_namespace_properties(topic.own_namespace, updates=updates))


def _property(topic: Topic, kind: str) -> str:
    return PROPERTY_ANSWER + digest_of([topic.topic, kind])


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
