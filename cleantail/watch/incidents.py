"""Incidents of a topic: each problem, the time of its beginning, and the last message to each channel. Pure.

1. A task reads the topic's state and updates the book of incidents (`observed`). It then compares the book with the
   last message of each channel and sends the differences (`due_notifications`), as a Kubernetes controller reconciles.
2. An incident is an event about a subject: a partition, a task, a reader, a round that waits. A quarantine that begins
   again after a release is the same incident with another `occurrence`.
3. A task ends an incident only if it could have found the condition (`Observation.is_known`). A task that could not
   read the table ends no incident.
4. A task of a run that began before the incident was last seen does not end it: tasks of old runs may be cleared
   later.
5. After a later run has evaluated everything, such a run does not open an incident either.

A channel is notified once of an incident, once of each new cause, and once of its end. Each cell
of the table has the message to send, and then the channel's last message:

| last message | it begins or lasts | it begins again | its cause changes | it is over | no answer, or the task dies |
|---|---|---|---|---|---|
| none | open, open | open, open | open, open | -, none | -, unsure |
| open | -, open | open, open | open, open | over, over | -, unsure |
| over | open, open | open, open | open, open | -, over | -, unsure |
| unsure | open, open | open, open | open, open | over, over | -, unsure |

6. *It begins again*: a partition was released and a check failed again before its end was reported. Its end is then not
   reported. If a check fails again in the same run, for example after a round starts over, the incident does not begin
   again. *Its cause changes*: the incident is the same, and the message has the new reason.
7. *It is over*: the check passed, or a person released the partition and no check has failed since. The incident is
   deleted once every channel with a last message has been notified of the end.
8. *Unsure* is stored before a message is sent, and replaced when the channel answers. *Unsure* stays if the channel
   does not answer, if the task dies in between, or if two tasks send to the channel at once.
9. The next task that sends notifies an unsure channel again. So a message may arrive twice (three times after a
   crash), but the last message is always true.
10. A message covers all incidents of one event (`Notification`). It is open as long as one of them is open. Pagers
   resolve by topic and event, or by topic, event and partition.
11. A failed check and the following quarantine are reported once. A channel that listens to both events gets the check.
   A quarantine after a person's answer has no failed check.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from cleantail.codec import FORMAT, Codec, FormatNumber, digest_of
from cleantail.config.alert_channels import Event

Key = tuple[Event, str]
"""Event and subject identify an incident."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A present problem. `event` and `subject` identify the incident.

    `partition` is None for a task. `mark` is the offset that a reader must have passed (HOLD_CAP only).
    `occurrence` changes if the incident begins again without having been over. `seen_ms` is the wall clock (Unix ms) at
    which the condition was seen, 0 if the present task sees it now. `run_id` is the run of the task that saw it.
    `cause` (cause_of) changes if the same incident has another reason. It is empty if unknown.
    """

    event: Event
    subject: str
    text: str
    link: str = ""
    partition: int | None = None
    mark: int = 0
    occurrence: str = ""
    seen_ms: int = 0
    run_id: str = ""
    cause: str = ""

    @property
    def key(self) -> Key:
        return self.event, self.subject


def cause_of(reason: str) -> str:
    """Return a digest of the reason, without words with a digit, because offsets, counts and times change from run to
    run."""
    return digest_of(word for word in reason.split() if not any(map(str.isdigit, word)))


class IncidentState(StrEnum):
    """The last notification of a channel, as a state. UNSURE if unknown."""

    OPEN = "open"
    OVER = "over"
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class LastMessage:
    """The last notification that a channel got.

    Only for UNSURE: `by` is the task that is sending to the channel now. `beside` is true if that task began while
    another task was sending, whose message may arrive later.
    """

    said: IncidentState
    occurrence: str = ""
    by: str = ""
    beside: bool = False
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Incident:
    """A condition with its times (Unix ms, wall clock), and the last message of each channel that has one.

    `outcome`: its end if known, such as `approved by Anna`. The stored form calls the last messages `words`.
    """

    condition: Condition
    since_ms: int
    over_ms: int | None = None
    last_messages: Annotated[Mapping[str, LastMessage], Field(alias="words")] = field(default_factory=dict)
    outcome: str = ""

    @property
    def is_open(self) -> bool:
        return self.over_ms is None


@dataclass(frozen=True, slots=True)
class Book:
    """The incidents of one topic. `looked_ms`: when the last run that evaluated everything began (wall clock)."""

    incidents: Mapping[Key, Incident] = field(default_factory=dict)
    looked_ms: int = 0


@dataclass(frozen=True, slots=True)
class Observation:
    """The findings of a task of a run.

    `is_known`: returns whether the task could have found the end of a condition. `now_ms` is the wall clock, `began_ms`
    the beginning of the run by this clock. `whole` is true at the end of a run, when all was evaluated. `outcome`: the
    outcome of the incidents that this task ends.
    """

    conditions: tuple[Condition, ...]
    is_known: Callable[[Condition], bool]
    now_ms: int
    began_ms: int
    run_id: str
    whole: bool = False
    outcome: str = ""


def observed(book: Book, seen: Observation) -> Book:
    """Return the book with a task's findings. Incidents that the task could not check do not change."""
    not_before_ms = max(seen.began_ms, book.looked_ms)
    after = dict(book.incidents)
    for as_seen in seen.conditions:
        condition = replace(as_seen, seen_ms=as_seen.seen_ms or not_before_ms, run_id=seen.run_id)
        old = after.get(condition.key)
        if (old is not None and old.is_open) or condition.seen_ms >= book.looked_ms:
            after[condition.key] = _with(old, condition, as_seen.seen_ms or seen.now_ms)
    now = {condition.key for condition in seen.conditions}
    ended = [key for key, i in after.items() if key not in now and i.is_open and _may_end(i.condition, seen)]
    after |= {key: replace(after[key], over_ms=seen.now_ms, outcome=seen.outcome) for key in ended}
    return Book(after, max(book.looked_ms, seen.began_ms) if seen.whole else book.looked_ms)


def _with(old: Incident | None, condition: Condition, at_ms: int) -> Incident:
    """Return the incident after its condition was seen at `at_ms`: it begins, begins again, or lasts."""
    if old is None:
        return Incident(condition, at_ms)
    if not old.is_open:
        return Incident(condition, at_ms, last_messages=old.last_messages)
    condition_before = old.condition
    if condition.seen_ms < condition_before.seen_ms:
        return old
    lasts = condition.occurrence == condition_before.occurrence
    same_run = condition.run_id == condition_before.run_id
    link = condition.link or (condition_before.link if lasts or same_run else "")
    cause = condition.cause or condition_before.cause
    newest = replace(condition, mark=max(condition_before.mark, condition.mark), link=link, cause=cause)
    last_messages = {
        name: replace(message, occurrence=newest.occurrence)
        if same_run and message.occurrence == condition_before.occurrence
        else message
        for name, message in old.last_messages.items()
    }
    since_ms = old.since_ms if lasts or same_run else at_ms
    return replace(old, condition=newest, since_ms=since_ms, last_messages=last_messages)


def _may_end(condition: Condition, seen: Observation) -> bool:
    """Return whether a task may end an incident that it did not find (rules 3 and 4)."""
    is_later = condition.run_id == seen.run_id or seen.began_ms >= condition.seen_ms
    return is_later and seen.is_known(condition)


@dataclass(frozen=True, slots=True)
class Listener:
    """A channel: its name among the topic's channels, and the events that it gets."""

    name: str
    events: Collection[Event]


@dataclass(frozen=True, slots=True)
class Notification:
    """One message about all incidents of an event: incidents that began (or began again), ended, or last."""

    event: Event
    begun: tuple[Incident, ...]
    ended: tuple[Incident, ...]
    still: tuple[Incident, ...] = ()

    @property
    def said(self) -> IncidentState:
        return IncidentState.OPEN if self.begun or self.still else IncidentState.OVER

    @property
    def incidents(self) -> tuple[Incident, ...]:
        return *self.begun, *self.ended, *self.still


def due_notifications(book: Book, listener: Listener) -> list[Notification]:
    """Return the messages that this channel needs now, one for each event. Messages about ended incidents alone come
    first."""
    notifications = []
    for event in sorted({event for event, _ in book.incidents if event in listener.events}):
        incidents = [incident for key, incident in sorted(book.incidents.items()) if key[0] is event]
        dues = [(incident, _due(book, incident, listener)) for incident in incidents]
        begun, ended = (tuple(i for i, due in dues if due is said) for said in (IncidentState.OPEN, IncidentState.OVER))
        if begun or ended:
            still = tuple(i for i, due in dues if due is None and i.is_open)
            notifications.append(Notification(event, begun, ended, still))
    return sorted(notifications, key=lambda notification: notification.said is IncidentState.OPEN)


def _due(book: Book, incident: Incident, listener: Listener) -> IncidentState | None:
    """Return the message that a channel needs about an incident, by the table of the module's docstring, or None."""
    message = incident.last_messages.get(listener.name)
    if not incident.is_open:
        return IncidentState.OVER if message and message.said is not IncidentState.OVER else None
    if message and message.said is IncidentState.UNSURE:
        return IncidentState.OPEN
    if _is_covered_by_check(book, incident, listener):
        return None
    return None if message == _message(incident) else IncidentState.OPEN


def _message(incident: Incident) -> LastMessage:
    """Return the last message of a channel that has just been notified of the present incident."""
    said = IncidentState.OPEN if incident.is_open else IncidentState.OVER
    return LastMessage(said, incident.condition.occurrence, cause=incident.condition.cause)


def _is_covered_by_check(book: Book, incident: Incident, listener: Listener) -> bool:
    """Return whether the channel gets this quarantine as a failed check."""
    event, subject = incident.condition.key
    if event is not Event.QUARANTINED or Event.CHECK_FAILED not in listener.events:
        return False
    check = book.incidents.get((Event.CHECK_FAILED, subject))
    return check is not None and check.is_open


def before_sending(book: Book, listener: Listener, notification: Notification, by: str) -> Book:
    """Return the book to store before a message is sent. The channel's last message is unsure until it answers."""
    last_messages = {}
    for incident in notification.incidents:
        message = _last_message(book, incident, listener)
        last_messages[incident.condition.key] = LastMessage(
            IncidentState.UNSURE, by=by, beside=message is not None and message.by != ""
        )
    return _with_last_messages(book, listener, notification, last_messages)


def without_answer(book: Book, listener: Listener, notification: Notification, by: str) -> Book:
    """Return the book to store if the channel gave no answer, so that this task no longer counts as sending.

    Without storing, the next sender assumes that this task is still sending, which is also safe.
    """
    last_messages = {i.condition.key: _unsure(book, i, listener, by) for i in notification.incidents}
    return _with_last_messages(book, listener, notification, last_messages)


def after_sending(book: Book, listener: Listener, notification: Notification, by: str) -> Book:
    """Return the book to store when the channel has the message.

    If another task has sent a message about the same event meanwhile, the order of the two messages is unknown.
    """
    last_messages = {}
    for incident in notification.incidents:
        key = incident.condition.key
        is_ours = _last_message(book, incident, listener) == LastMessage(IncidentState.UNSURE, by=by)
        last_messages[key] = _message(incident) if is_ours else _unsure(book, incident, listener, by)
    return _with_last_messages(book, listener, notification, last_messages)


def _unsure(book: Book, incident: Incident, listener: Listener, by: str) -> LastMessage:
    """Return the last message UNSURE. The mark of another task that is still sending stays."""
    message = _last_message(book, incident, listener)
    if message is None or message.by in ("", by):
        return LastMessage(IncidentState.UNSURE)
    return replace(message, beside=True)


def _last_message(book: Book, incident: Incident, listener: Listener) -> LastMessage | None:
    incident_now = book.incidents.get(incident.condition.key)
    return incident_now.last_messages.get(listener.name) if incident_now else None


def _with_last_messages(
    book: Book, listener: Listener, notification: Notification, last_messages: Mapping[Key, LastMessage]
) -> Book:
    after = dict(book.incidents)
    for incident in notification.incidents:
        key = incident.condition.key
        incident_now = after.get(key, incident)
        after[key] = replace(
            incident_now, last_messages={**incident_now.last_messages, listener.name: last_messages[key]}
        )
    return replace(book, incidents=after)


def without_settled(book: Book, listeners: Iterable[Listener]) -> Book:
    """Return the book without the last messages of removed channels, and without incidents that are over for all
    channels."""
    current = list(listeners)
    kept = {}
    for key, incident in book.incidents.items():
        names = {listener.name for listener in current if key[0] in listener.events}
        last_messages = {name: message for name, message in incident.last_messages.items() if name in names}
        if incident.is_open or any(message.said is not IncidentState.OVER for message in last_messages.values()):
            kept[key] = replace(incident, last_messages=last_messages)
    return replace(book, incidents=kept)


@dataclass(frozen=True, slots=True)
class _WrittenBook:
    """The stored form of a book."""

    incidents: tuple[Incident, ...]
    looked_ms: int
    format: FormatNumber


_BOOK_JSON: Codec[_WrittenBook] = Codec(_WrittenBook)


def book_as_json(book: Book) -> str:
    """Return the book as one text. Equal books have equal texts."""
    incidents = tuple(incident for _, incident in sorted(book.incidents.items()))
    return _BOOK_JSON.text(_WrittenBook(incidents, book.looked_ms, FORMAT))


def parse_book(text: str) -> Book:
    """Parse a text of book_as_json. Raises TableError for any other text, because a person may have edited it."""
    written = _BOOK_JSON.value(text, "the book")
    return Book({incident.condition.key: incident for incident in written.incidents}, written.looked_ms)
