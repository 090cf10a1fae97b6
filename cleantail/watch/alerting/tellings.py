"""Tellings: what each channel is to be told now, so that the last thing it was told is true. Pure.

An incident is told once however long it lasts, and whoever heard of it hears of its end, when it is over. For one
channel its state is the last word that the channel has of it. A cell says which message goes out, and the last word
after it:

| last word | it begins or lasts | it begins anew | it is over | no answer, or the task dies |
|---|---|---|---|---|
| none | open, open | open, open | -, none | -, unsure |
| open | -, open | open, open | over, over | -, unsure |
| over | open, open | open, open | -, over | -, unsure |
| unsure | open, open | open, open | over, over | -, unsure |

- *It begins anew*: a partition was released and is red again before the end was told. It is never told as over then.
- *It is over*: the check has passed, or a person has released the partition and no check was red since; nothing is held
  back. Once that is the last word of all channels that have one, the incident is forgotten.
- *Unsure* is written before a message goes out, and replaced when the channel has answered. So it is what remains when
  the channel gave no answer (it may have heard all the same), when the task died between sending and writing, and when
  two tasks told the channel at once: nobody knows then whose message came last. It is told again by the next task that
  tells: a message may come twice (after a death three times), a false one is never the last.
- A channel that is new has no last word.

A message is about all incidents of one event (`Telling`): it is open as long as one of them is. So what a channel was
told last is true by topic and event, by which pagers resolve, and by topic, event and partition.

A failed check and the quarantine that follows are told once: who wants both events hears of the check. A quarantine
after a person's answer has no failed check.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from cleantail.config.events import Event
from cleantail.watch.alerting.incidents import Book, Incident, Key, Said, Word


@dataclass(frozen=True, slots=True)
class Listener:
    """A channel: its name among the topic's, and the events that it wants to hear of."""

    name: str
    events: Collection[Event]


@dataclass(frozen=True, slots=True)
class Telling:
    """One message about all incidents of an event: what has begun (also anew), what is over, what lasts."""

    event: Event
    begun: tuple[Incident, ...]
    ended: tuple[Incident, ...]
    still: tuple[Incident, ...] = ()

    @property
    def said(self) -> Said:
        return Said.OPEN if self.begun or self.still else Said.OVER

    @property
    def incidents(self) -> tuple[Incident, ...]:
        return *self.begun, *self.ended, *self.still


def tellings(book: Book, listener: Listener) -> list[Telling]:
    """What this channel is to be told now, one message an event. Those of which all is over come first."""
    found = []
    for event in sorted({event for event, _ in book.incidents if event in listener.events}):
        incidents = [incident for key, incident in sorted(book.incidents.items()) if key[0] is event]
        dues = [(incident, _due(book, incident, listener)) for incident in incidents]
        begun, ended = (tuple(i for i, due in dues if due is said) for said in (Said.OPEN, Said.OVER))
        if begun or ended:
            still = tuple(i for i, due in dues if due is None and i.is_open)
            found.append(Telling(event, begun, ended, still))
    return sorted(found, key=lambda telling: telling.said is Said.OPEN)


def _due(book: Book, incident: Incident, listener: Listener) -> Said | None:
    """The table of the module's docstring."""
    word = incident.words.get(listener.name)
    if not incident.is_open:
        return Said.OVER if word and word.said is not Said.OVER else None
    if word and word.said is Said.UNSURE:
        return Said.OPEN
    if _is_told_as_check(book, incident, listener):
        return None
    if word is None or word != Word(Said.OPEN, incident.condition.occurrence):
        return Said.OPEN
    return None


def _is_told_as_check(book: Book, incident: Incident, listener: Listener) -> bool:
    event, subject = incident.condition.key
    if event is not Event.QUARANTINED or Event.CHECK_FAILED not in listener.events:
        return False
    check = book.incidents.get((Event.CHECK_FAILED, subject))
    return check is not None and check.is_open


def while_telling(book: Book, listener: Listener, telling: Telling, by: str) -> Book:
    """The book to write before the message goes out: until the channel has answered, its last word is not known."""
    words = {}
    for incident in telling.incidents:
        word = _word(book, incident, listener)
        words[incident.condition.key] = Word(Said.UNSURE, by=by, beside=word is not None and word.by != "")
    return _with_words(book, listener, telling, words)


def without_answer(book: Book, listener: Listener, telling: Telling, by: str) -> Book:
    """The book to write when the channel gave no answer: this task tells nothing more, and nobody knows what was heard.

    Not to write it is safe too; the one who tells next then takes this one for still at work."""
    words = {i.condition.key: _word_that_nobody_knows(book, i, listener, by) for i in telling.incidents}
    return _with_words(book, listener, telling, words)


def after_telling(book: Book, listener: Listener, telling: Telling, by: str) -> Book:
    """The book to write when the channel has got the message. Where another task has told it of the same meanwhile,
    nobody knows which message was the last."""
    words = {}
    for incident in telling.incidents:
        key = incident.condition.key
        is_ours = _word(book, incident, listener) == Word(Said.UNSURE, by=by)
        said = Said.OPEN if incident.is_open else Said.OVER
        ours = Word(said, incident.condition.occurrence)
        words[key] = ours if is_ours else _word_that_nobody_knows(book, incident, listener, by)
    return _with_words(book, listener, telling, words)


def _word_that_nobody_knows(book: Book, incident: Incident, listener: Listener, by: str) -> Word:
    """The mark of another task that is still telling it stays."""
    word = _word(book, incident, listener)
    is_told_by_another = word is not None and word.by not in ("", by)
    return replace(word, beside=True) if word and is_told_by_another else Word(Said.UNSURE)


def _word(book: Book, incident: Incident, listener: Listener) -> Word | None:
    known = book.incidents.get(incident.condition.key)
    return known.words.get(listener.name) if known else None


def _with_words(book: Book, listener: Listener, telling: Telling, words: Mapping[Key, Word]) -> Book:
    after = dict(book.incidents)
    for incident in telling.incidents:
        key = incident.condition.key
        known = after.get(key, incident)
        after[key] = replace(known, words={**known.words, listener.name: words[key]})
    return replace(book, incidents=after)


def without_settled(book: Book, listeners: Iterable[Listener]) -> Book:
    """Without the words of channels that are gone, and without what is over for everybody that there is."""
    there = list(listeners)
    kept = {}
    for key, incident in book.incidents.items():
        names = {listener.name for listener in there if key[0] in listener.events}
        words = {name: word for name, word in incident.words.items() if name in names}
        if incident.is_open or any(word.said is not Said.OVER for word in words.values()):
            kept[key] = replace(incident, words=words)
    return replace(book, incidents=kept)
