"""Says what a person was asked and has answered about a round, kept where no editor of a DAG can write: beside the
table.

1. Airflow asks, and its database says who answered; but everybody who may edit a DAG may write the results of its tasks
   and call a task done that nobody has answered.
2. So the task that asks writes down the question, and when it is woken by an answer, the answer: a property of
   Cleantail's own namespace, as the readers' positions are. Publish goes by that and by nothing else.
3. An answer is for the heads of the branches that were shown: a round that was made or checked anew asks again.
4. Where the topic names approvers, another user's yes is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cleantail.codec import Codec
from cleantail.config.topic import Topic
from cleantail.digests import digest_of
from cleantail.errors import HeldError, TableError
from cleantail.log.horizons import namespace_of
from cleantail.retries import settled
from cleantail.rounds.approval import Rejection
from cleantail.rounds.checked.checked_round import CheckedRound

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

PROPERTY_ANSWER = "cleantail.answer."
"""So begins the name of a property that keeps an answer. A hash of topic and kind follows, since catalogs bound the
length of a property's name, and mostly that of its value."""


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
        text = catalog.load_namespace_properties(namespace_of(topic)).get(name)
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
    settled(lambda: catalog.create_namespace_if_not_exists(namespace_of(topic)))
    updates = {_property(topic, answer.kind): ANSWER_JSON.text(answer)}
    settled(lambda: catalog.update_namespace_properties(namespace_of(topic), updates=updates))


def _property(topic: Topic, kind: str) -> str:
    return PROPERTY_ANSWER + digest_of([topic.topic, kind])
