"""Says what each channel is to be told now, so that the last thing it was told is true. Pure.

A channel is told once of an incident however long it lasts, and whoever heard of it hears of its end, when it is over.
The state of an incident for one channel is the channel's last word of it. A cell says which message goes out, and the
last word after it:

| last word | it begins or lasts | it begins anew | it is over | no answer, or the task dies |
|---|---|---|---|---|
| none | open, open | open, open | -, none | -, unsure |
| open | -, open | open, open | over, over | -, unsure |
| over | open, open | open, open | -, over | -, unsure |
| unsure | open, open | open, open | over, over | -, unsure |

1. *It begins anew*: a partition was released and is red again before its end was reported. Then it is never reported as
   over.
2. *It is over*: the check has passed, or a person has released the partition and no check was red since; nothing is
   held back. Once that is the last word of all channels that have one, the incident is forgotten.
3. *Unsure* is written before a message goes out, and replaced when the channel has answered. So it remains where the
   channel gave no answer (it may have heard all the same), where the task died between sending and writing, and where
   two tasks sent to the channel at once: nobody knows then whose message came last.
4. The next task that sends tells an unsure channel again. So a message may come twice (after a death three times), but
   a false one is never the last.
5. A new channel has no last word.
6. A message is about all incidents of one event (`Notification`), and open as long as one of them is. So what a channel
   was told last is true by topic and event, by which pagers resolve, and by topic, event and partition.
7. A failed check and the quarantine that follows are reported once: who wants both events hears of the check. A
   quarantine after a person's answer has no failed check.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from cleantail.config.events import Event
from cleantail.watch.alerting.incidents import Book, Incident, IncidentState, Key, LastWord


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
