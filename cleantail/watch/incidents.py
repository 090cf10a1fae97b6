"""Incidents of a topic: what is wrong, since when, and the last message that each channel got about it. Pure.

1. A task reads the topic's state and updates the book of incidents (`observed`). It then compares the book with the
   last message of each channel and sends the differences (`due_notifications`), as a Kubernetes controller reconciles.
2. An incident is an event about a subject: a partition, a task, a reader, a round that waits. A quarantine that begins
   again after a release is the same incident with another `occurrence`.
3. A look ends an incident only if it could have seen it (`Look.is_known`). A look that could not read the table ends
   nothing.
4. A look of a run that began before the incident was last seen does not end it: tasks of old runs may be cleared later.
5. Such a run does not open an incident either, once a later run has looked at everything.

A channel is notified once of an incident, however long it lasts, and once of its end. Each cell of the table gives the
message to send and the channel's last word after it:

| last word | it begins or lasts | it begins again | it is over | no answer, or the task dies |
|---|---|---|---|---|
| none | open, open | open, open | -, none | -, unsure |
| open | -, open | open, open | over, over | -, unsure |
| over | open, open | open, open | -, over | -, unsure |
| unsure | open, open | open, open | over, over | -, unsure |

6. *It begins again*: a partition was released and a check failed again before its end was reported. Its end is then not
   reported.
7. *It is over*: the check passed, or a person released the partition and no check has failed since. The incident is
   deleted once every channel with a last word has been notified of the end.
8. *Unsure* is stored before a message is sent, and replaced when the channel answers. It stays if the channel does not
   answer, if the task dies in between, or if two tasks send to the channel at once.
9. The next task that sends notifies an unsure channel again. So a message may arrive twice (three times after a
   crash), but the last one is always true.
10. A message covers all incidents of one event (`Notification`). It is open as long as one of them is. Pagers resolve
    by topic and event, or by topic, event and partition.
11. A failed check and the quarantine that follows are reported once. A channel that listens to both events gets the
    check. A quarantine after a person's answer has no failed check.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from cleantail.codec import Codec
from cleantail.config.alert_channels import Event
from cleantail.errors import TableError

Key = tuple[Event, str]
"""Event and subject: which incident it is."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Describes something that is wrong now. `event` and `subject` together say which incident it is.

    `text` says it in words, `link` leads to it. `partition` is None where a task is meant. `mark` is the offset that a
    reader must have passed (HOLD_CAP only). `occurrence` changes where the incident begins anew without having been
    over for anybody. `seen_ms` says when it was seen, by the wall clock (Unix ms), 0 where the look itself sees it;
    `run_id` says by a task of which run.
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

    @property
    def key(self) -> Key:
        return self.event, self.subject


class IncidentState(StrEnum):
    """Names what a channel was told of an incident last, or that nobody knows what."""

    OPEN = "open"
    OVER = "over"
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class LastWord:
    """Describes what a channel was told last.

    UNSURE only: `by` says who is sending to the channel at this moment, and `beside` whether that sender began while
    another one was sending, whose message may arrive later.
    """

    said: IncidentState
    occurrence: str = ""
    by: str = ""
    beside: bool = False


@dataclass(frozen=True, slots=True)
class Incident:
    """Describes a condition with its times (Unix ms, by the clock of runs), and the last word of each channel that has
    one."""

    condition: Condition
    since_ms: int
    over_ms: int | None = None
    last_words: Mapping[str, LastWord] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        return self.over_ms is None


@dataclass(frozen=True, slots=True)
class Book:
    """Holds the incidents of one topic. `looked_ms` says when the last run that has looked at everything began (wall
    clock)."""

    incidents: Mapping[Key, Incident] = field(default_factory=dict)
    looked_ms: int = 0


@dataclass(frozen=True, slots=True)
class Look:
    """Describes what a task of a run has seen.

    `is_known` says of a condition whether the look could have seen that it is over. `now_ms` is the run's clock;
    `began_ms` says when the run began, by the wall clock. `whole` marks a look at everything, at the end of a run.
    """

    conditions: tuple[Condition, ...]
    is_known: Callable[[Condition], bool]
    now_ms: int
    began_ms: int
    run_id: str
    whole: bool = False


def observed(book: Book, look: Look) -> Book:
    """Returns the book after a look. What the look could not see stays as it is."""
    not_before_ms = max(look.began_ms, book.looked_ms)
    seen = [replace(c, seen_ms=c.seen_ms or not_before_ms, run_id=look.run_id) for c in look.conditions]
    after = dict(book.incidents)
    for condition in seen:
        old = after.get(condition.key)
        if (old is not None and old.is_open) or condition.seen_ms >= book.looked_ms:
            after[condition.key] = _with(old, condition, look.now_ms)
    now = {condition.key for condition in seen}
    ended = [key for key, i in after.items() if key not in now and i.is_open and _may_end(i.condition, look)]
    after |= {key: replace(after[key], over_ms=look.now_ms) for key in ended}
    return Book(after, max(book.looked_ms, look.began_ms) if look.whole else book.looked_ms)


def _with(old: Incident | None, condition: Condition, now_ms: int) -> Incident:
    """Returns the incident after its condition was seen: begun, begun anew, or lasting."""
    if old is None:
        return Incident(condition, now_ms)
    if not old.is_open:
        return Incident(condition, now_ms, last_words=old.last_words)
    condition_before = old.condition
    if condition.seen_ms < condition_before.seen_ms:
        return old
    link = condition.link or (condition_before.link if condition.occurrence == condition_before.occurrence else "")
    newest = replace(condition, mark=max(condition_before.mark, condition.mark), link=link)
    return replace(
        old, condition=newest, since_ms=old.since_ms if newest.occurrence == condition_before.occurrence else now_ms
    )


def _may_end(condition: Condition, look: Look) -> bool:
    """Returns whether a look may end an incident that it did not see (rules 3 and 4 of the module docstring)."""
    is_later = condition.run_id == look.run_id or look.began_ms >= condition.seen_ms
    return is_later and look.is_known(condition)


@dataclass(frozen=True, slots=True)
class Listener:
    """Describes a channel: its name among the topic's, and the events that it is sent."""

    name: str
    events: Collection[Event]


@dataclass(frozen=True, slots=True)
class Notification:
    """Describes one message about all incidents of an event: what has begun (also anew), what is over, what lasts."""

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
    """Returns what this channel is to be told now, one message for each event. Messages of which all is over come
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
    """Returns which message an incident needs for a channel, by the table of the module's docstring, or None."""
    word = incident.last_words.get(listener.name)
    if not incident.is_open:
        return IncidentState.OVER if word and word.said is not IncidentState.OVER else None
    if word and word.said is IncidentState.UNSURE:
        return IncidentState.OPEN
    if _is_covered_by_check(book, incident, listener):
        return None
    if word is None or word != LastWord(IncidentState.OPEN, incident.condition.occurrence):
        return IncidentState.OPEN
    return None


def _is_covered_by_check(book: Book, incident: Incident, listener: Listener) -> bool:
    """Returns whether the incident is a quarantine of which the channel hears as a failed check."""
    event, subject = incident.condition.key
    if event is not Event.QUARANTINED or Event.CHECK_FAILED not in listener.events:
        return False
    check = book.incidents.get((Event.CHECK_FAILED, subject))
    return check is not None and check.is_open


def before_sending(book: Book, listener: Listener, notification: Notification, by: str) -> Book:
    """Returns the book to write before the message goes out: until the channel has answered, its last word is not
    known."""
    last_words = {}
    for incident in notification.incidents:
        word = _last_word(book, incident, listener)
        last_words[incident.condition.key] = LastWord(
            IncidentState.UNSURE, by=by, beside=word is not None and word.by != ""
        )
    return _with_last_words(book, listener, notification, last_words)


def without_answer(book: Book, listener: Listener, notification: Notification, by: str) -> Book:
    """Returns the book to write when the channel gave no answer: this task sends nothing more, and nobody knows what
    was heard.

    Not to write it is safe too; the next sender then takes this one for still at work.
    """
    last_words = {i.condition.key: _unsure_word(book, i, listener, by) for i in notification.incidents}
    return _with_last_words(book, listener, notification, last_words)


def after_sending(book: Book, listener: Listener, notification: Notification, by: str) -> Book:
    """Returns the book to write when the channel has got the message.

    Where another task has sent to it about the same meanwhile, nobody knows which message was the last.
    """
    last_words = {}
    for incident in notification.incidents:
        key = incident.condition.key
        is_ours = _last_word(book, incident, listener) == LastWord(IncidentState.UNSURE, by=by)
        said = IncidentState.OPEN if incident.is_open else IncidentState.OVER
        ours = LastWord(said, incident.condition.occurrence)
        last_words[key] = ours if is_ours else _unsure_word(book, incident, listener, by)
    return _with_last_words(book, listener, notification, last_words)


def _unsure_word(book: Book, incident: Incident, listener: Listener, by: str) -> LastWord:
    """Returns the last word where nobody knows what was heard. The mark of another task that is still sending stays."""
    word = _last_word(book, incident, listener)
    another_is_sending = word is not None and word.by not in ("", by)
    return replace(word, beside=True) if word and another_is_sending else LastWord(IncidentState.UNSURE)


def _last_word(book: Book, incident: Incident, listener: Listener) -> LastWord | None:
    incident_now = book.incidents.get(incident.condition.key)
    return incident_now.last_words.get(listener.name) if incident_now else None


def _with_last_words(
    book: Book, listener: Listener, notification: Notification, last_words: Mapping[Key, LastWord]
) -> Book:
    after = dict(book.incidents)
    for incident in notification.incidents:
        key = incident.condition.key
        incident_now = after.get(key, incident)
        after[key] = replace(incident_now, last_words={**incident_now.last_words, listener.name: last_words[key]})
    return replace(book, incidents=after)


def without_settled(book: Book, listeners: Iterable[Listener]) -> Book:
    """Returns the book without the words of channels that no longer exist, and without incidents that are over for all
    that do."""
    current = list(listeners)
    kept = {}
    for key, incident in book.incidents.items():
        names = {listener.name for listener in current if key[0] in listener.events}
        last_words = {name: word for name, word in incident.last_words.items() if name in names}
        if incident.is_open or any(word.said is not IncidentState.OVER for word in last_words.values()):
            kept[key] = replace(incident, last_words=last_words)
    return replace(book, incidents=kept)


BOOK_VERSION = 2
"""The version that this code writes; it reads version 1 as well."""
_SINCE = re.compile(r"(partition \d+) (since \d+)")
"""Finds partition and begin in the subject of a quarantine in version 1."""


@dataclass(frozen=True, slots=True)
class _KeptIncident:
    """Describes an incident as it is kept: running installations have books that say `words`."""

    condition: Condition
    since_ms: int
    over_ms: int | None
    words: Mapping[str, LastWord]


@dataclass(frozen=True, slots=True)
class _KeptBook:
    incidents: tuple[_KeptIncident, ...]
    looked_ms: int
    version: int = BOOK_VERSION


@dataclass(frozen=True, slots=True)
class _IncidentOfVersion1:
    """Describes an incident with the channels that were told of it, and of its end."""

    condition: Condition
    since_ms: int
    over_ms: int | None
    told: tuple[str, ...]
    heard_over: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _BookOfVersion1:
    incidents: tuple[_IncidentOfVersion1, ...]


@dataclass(frozen=True, slots=True)
class _Version:
    version: int


_BOOK_JSON: Codec[_KeptBook] = Codec(_KeptBook)
_BOOK_1_JSON: Codec[_BookOfVersion1] = Codec(_BookOfVersion1)
_VERSION_JSON: Codec[_Version] = Codec(_Version)


def book_as_json(book: Book) -> str:
    """Returns the book as one text, in which equal books are equal."""
    incidents = (incident for _, incident in sorted(book.incidents.items()))
    kept = (_KeptIncident(i.condition, i.since_ms, i.over_ms, i.last_words) for i in incidents)
    return _BOOK_JSON.text(_KeptBook(tuple(kept), book.looked_ms))


def parse_book(text: str) -> Book:
    """Returns the book of a text. Raises TableError where it is no book of this version or the one before: a person may
    have edited it."""
    version = _VERSION_JSON.value(text, "the book").version
    if version == 1:
        return _of_version_1(_BOOK_1_JSON.value(text, "the book of version 1").incidents)
    if version != BOOK_VERSION:
        raise TableError(f"the book is of version {version}, not {BOOK_VERSION}")
    kept = _BOOK_JSON.value(text, "the book")
    incidents = (Incident(i.condition, i.since_ms, i.over_ms, i.words) for i in kept.incidents)
    return Book({incident.condition.key: incident for incident in incidents}, kept.looked_ms)


def _of_version_1(kept: Iterable[_IncidentOfVersion1]) -> Book:
    """Returns the incidents of a book of version 1, in which every channel that has heard of an incident is unsure of
    it.

    Version 1 knew who was told, but not in which order: it reported the end of a quarantine after the beginning of the
    next one. So each channel is told once more what is true.
    """
    incidents: dict[tuple[Event, str], Incident] = {}
    for old in sorted(kept, key=lambda incident: (incident.over_ms is None, incident.since_ms)):
        match = _SINCE.fullmatch(old.condition.subject)
        condition = replace(old.condition, subject=match[1], occurrence=match[2]) if match else old.condition
        heard = {name: LastWord(IncidentState.UNSURE) for name in (*old.told, *old.heard_over)}
        before = incidents.get(condition.key)
        last_words = {**before.last_words, **heard} if before else heard
        incidents[condition.key] = Incident(condition, old.since_ms, old.over_ms, last_words)
    return Book(incidents)
