"""Approval of rounds by users: the conditions, the stored question and answer, and the effect of a rejection.

1. `publish: approve` makes every round of a topic wait. `cleantail.max.drop.ratio` makes a round wait that would remove
   more than that share of one of its logs. Compactions, expiries and reconciliations all wait: no later round can
   restore what the latter two remove.
2. One answer applies to the whole round, because everything that passed its checks is published in one commit
   (semantics.md 3.2). The answer counts only for the branch heads that were shown. A round that was made or checked
   again needs another answer.
3. Airflow shows the question, and its database has the user who answered. But every user who may edit a DAG may also
   write the results of its tasks, or set a task to success. So the approval task stores the question, and later the
   answer, in a property of Cleantail's own namespace. `publish` reads only that property
   (cleantail.lake.own_namespace).
4. If a topic names approvers, only they may approve, undo a round or release a log.
5. After a rejection, compaction and retention skip the round's logs until a pause has passed. After a failed check,
   only compaction skips them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cleantail.codec import Codec, digest_of
from cleantail.config.config_model import LONG_MAX
from cleantail.config.topic import Topic
from cleantail.errors import HeldError
from cleantail.human import counted, one_line
from cleantail.log.partition_state import NOT_APPROVED, PartitionState, Quarantine
from cleantail.log.round_state import ERASE, EXPIRE, RECONCILE, RETAIN
from cleantail.log.rules import LogMeasure
from cleantail.rounds.checked_round import CheckedRound, Hold

APPROVE = "approve"
"""`publish: approve` in a topic's YAML."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A user rejected a round, or the time to answer passed: then `by` is None. `at_ms` is Unix ms."""

    by: str | None
    at_ms: int

    @property
    def reason(self) -> str:
        return f"rejected by {self.by}" if self.by else NOT_APPROVED


def approved_note(by: str | None) -> str:
    """Return the note of a published round in the evidence: `approved by Anna`, or "" if no approval was needed."""
    return f"approved by {by}" if by else ""


def holds_of(topic: Topic, measures: Iterable[LogMeasure], passed: Iterable[int]) -> tuple[Hold, ...]:
    """Return the logs, of those that passed, for which a checked round waits; empty if the round does not wait."""
    green = set(passed)
    reasons = ((m.partition, _hold_reason(topic, m)) for m in measures if m.partition in green)
    return tuple(Hold(partition, reason) for partition, reason in sorted(reasons) if reason)


def _hold_reason(topic: Topic, measure: LogMeasure) -> str:
    records, limit = measure.records_in, topic.config.cleantail_max_drop_ratio
    if records and measure.removed / records > limit:  # strict, as Kafka's ratios: 1.0 switches the limit off
        share = f"{measure.removed} of {counted(records, 'record')}"
        return f"{share} would be removed, above cleantail.max.drop.ratio {limit}"
    return "all rounds of this topic wait (publish: approve)" if topic.publish == APPROVE else ""


def after_rejection(state: PartitionState, kind: str, rejection: Rejection, pause_ms: int) -> PartitionState:
    """Return the state of a log whose round was rejected: in quarantine until the pause ends or a user releases it.

    The log has passed its check, so the quarantine of an earlier failed check ends. Exception: a rejected expiry,
    reconciliation or retention (`kind`) has not checked the records of another kind's quarantine. It does not end that
    quarantine, and only makes the pause longer. A second call with the same rejection changes nothing.
    """
    retry_at_ms = min(rejection.at_ms + pause_ms, LONG_MAX)
    held = state.quarantine
    if held and held.check_failed:
        if kind == RETAIN or (kind in (EXPIRE, RECONCILE, ERASE) and held.kind != kind):
            return replace(state, quarantine=replace(held, retry_at_ms=max(held.retry_at_ms, retry_at_ms)))
        held = None
    if held and (held.reason, held.retry_at_ms) == (rejection.reason, retry_at_ms):
        return state
    since_ms, attempts = (held.since_ms, held.attempts + 1) if held else (rejection.at_ms, 1)
    return replace(state, quarantine=Quarantine(since_ms, kind, rejection.reason, attempts, retry_at_ms))


def may_decide(topic: Topic, *users: str | None) -> bool:
    """Return whether a user, under any of their names in Airflow, may undo a round of the topic or release a log."""
    return topic.publish != APPROVE or not topic.approvers or not set(topic.approvers).isdisjoint(users)


def require_approver(topic: Topic, what: str, *users: str | None) -> None:
    """Raise HeldError if the user may not decide. `what`: the requested action, as text."""
    if not may_decide(topic, *users):
        name = next((user for user in users if user), "a user unknown to Airflow")
        raise HeldError(
            f"{topic.topic}: {name} requested {what}, but is not among the topic's approvers "
            f"({', '.join(topic.approvers)}), and publish is approve; nothing was done"
        )


def held_message(topic: str, holds: Sequence[Hold]) -> str:
    """Return the logs for which a round waits, and why, in one line."""
    logs = "; ".join(f"partition {hold.partition}: {hold.reason}" for hold in holds)
    return f"{topic}: nothing was published, the round waits for approval: {logs}"


@dataclass(frozen=True, slots=True)
class Answer:
    """The last question about a topic's rounds of one kind, and its answer. Times are Unix ms.

    `shown`: a digest of the subject of the question (shown_of). `task`: a digest of the Airflow task instance that
    stored the question. `approved` is None until there is an answer. `user` and `by`: id and name of the user who
    answered, None if the time to answer passed.
    """

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
    """Return the question of a task about a checked round. `task`: Airflow's identity of the task instance."""
    return Answer(checked.topic, checked.kind, checked.round, shown_of(checked), digest_of(map(str, task)), now_ms)


def shown_of(checked: CheckedRound) -> str:
    """Return a digest of the subject of an answer: the heads of the branches, and the logs that passed there."""
    return digest_of(map(str, [*checked.heads, "passed", *checked.green]))


def name_of(user: Mapping[str, str] | None) -> str | None:
    """Return the name of Airflow's user in one line; None if no user answered."""
    return one_line(user["name"] or user["id"]) if user else None


def answered(
    last_question: Answer | None, task: Sequence[str], approved: bool, user: Mapping[str, str] | None, at_ms: int
) -> Answer:
    """Return the question with its answer. Raises HeldError if another task has stored the last question."""
    if last_question is None or last_question.task != digest_of(map(str, task)):
        raise HeldError(
            "the answer belongs to an earlier question about the topic, so it does not count. Clear this task: it "
            "asks again"
        )
    by = name_of(user)
    return replace(last_question, approved=approved, user=user["id"] if user else None, by=by, at_ms=at_ms)


def decided(topic: Topic, checked: CheckedRound, answer: Answer | None) -> str | Rejection | None:
    """Return the effect of the answer on a checked round: the approver's name, a rejection, or None if the round does
    not wait.

    Raises HeldError if the round waits without a valid approval.
    """
    ours = answer is not None and (answer.kind, answer.round) == (checked.kind, checked.round)
    same = answer is not None and ours and answer.shown == shown_of(checked)
    # 1. a rejection of the shown round counts, even if the round did not have to wait
    if answer is not None and same and answer.approved is False:
        return Rejection(answer.by, answer.at_ms or answer.asked_at_ms)
    # 2. a round that does not wait is published without an answer
    if not checked.holds:
        return None
    # 3. any other round waits until an approver has approved this very round
    if answer is None or not ours:
        why = "no user was asked about it, regardless of XComs and task states"
    elif not same:
        why = "it was made or checked again after the question, and an answer counts only for the round that was shown"
    elif not answer.approved:
        why = "no user has answered, regardless of XComs and task states"
    elif topic.approvers and answer.user not in topic.approvers:
        why = f"{answer.by} approved it, but is not among the topic's approvers"
    else:
        return answer.by or answer.user
    raise HeldError(
        f"{checked.topic}: nothing was published: round {checked.round} ({checked.kind}) has no valid approval: {why}. "
        "Clear its approval task, and answer the question. Or let the next run make the round again"
    )
