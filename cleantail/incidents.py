"""Incidents: what is wrong with a topic, since when, and what each channel was told of it last. Pure.

Nothing is sent when something happens. What is wrong (the book's incidents, as the last look left them) is compared with
the last word that each channel has (as a controller compares what is with what should be), and the difference is told.
So an incident is told once however long it lasts, and whoever heard of it hears of its end, when it is over.

An incident is an event about a subject: a partition, a task, a reader, a round that waits. A quarantine that begins anew
after a release is the same incident, with another `occurrence`: told again, never as over in between.

## The states of an incident, for one channel

The rows are what is true and the channel's last word, the columns what happens next. A cell is the message, if any, and
the last word after it.

| true, last word | it begins, or lasts | it begins anew (another occurrence) | it is over | no answer, or the task dies |
|---|---|---|---|---|
| over, none | open -> open | open -> open | nothing, forgotten | nothing sent, none |
| over, open | nothing, open | open -> open | over -> over | -> unsure |
| over, over | open -> open | open -> open | nothing, forgotten | -> unsure |
| over, unsure | open -> open | open -> open | over -> over | unsure |
| open, none (a new channel, too) | open -> open | open -> open | nothing, forgotten | -> unsure |
| open, open | nothing, open | open -> open | over -> over | -> unsure |
| open, over | open -> open | open -> open | nothing, forgotten | -> unsure |
| open, unsure | open -> open | open -> open | over -> over | unsure |

- *Unsure* is written before a message goes out and replaced when the channel has answered. So it is what remains when
  the channel gave no answer (it may have heard all the same), when the task died between sending and writing, and when
  two tasks told the same channel at once. What is unsure is told again: a message may come twice, a false one is never
  the last.
- A release by a person lifts the quarantine, so it is over, unless the next check is red before anybody looked.
- Only a look that could have seen it ends an incident (`Look.is_known`): neither a task of an earlier run than the one
  that saw it last, nor one that could not read the table. What an earlier run saw opens nothing that a later one has
  looked at since.

A message is about all incidents of one event (`Telling`): it is open as long as one of them is. So what a channel was
told last is true by topic and event, by which pagers resolve, and by topic, event and partition.

A failed check and the quarantine that follows are told once: who wants both events hears of the check. A quarantine
after a person's answer has no failed check.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from cleantail.events import Event

Key = tuple[Event, str]
"""Event and subject: which incident."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that is wrong now. `event` and `subject` together say which; `text` says it in words, `link` where.

    `partition` is None where a task is meant. `mark`: the offset that a reader must have passed (HOLD_CAP only).
    `occurrence`: what changes when it begins anew without having been over for anybody. `seen_ms`: when it was seen, by
    the wall clock (Unix ms); `run_id`: by a task of which run.
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


class Said(StrEnum):
    """The last word that a channel has of an incident."""

    OPEN = "open"
    OVER = "over"
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class Word:
    """What a channel was told last. `by`: who is telling it at this moment (UNSURE only)."""

    said: Said
    occurrence: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class Incident:
    """A condition with its time (Unix ms, by the clock of runs), and the last word of each channel that has one."""

    condition: Condition
    since_ms: int
    over_ms: int | None = None
    words: Mapping[str, Word] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        return self.over_ms is None


@dataclass(frozen=True, slots=True)
class Book:
    """The incidents of one topic. `looked_ms`: when the last run began (wall clock) that has looked at everything."""

    incidents: Mapping[Key, Incident] = field(default_factory=dict)
    looked_ms: int = 0


@dataclass(frozen=True, slots=True)
class Look:
    """What a task of a run has seen. `is_known`: whether it could have seen that something is over.

    `now_ms` is the run's clock, `began_ms` when the run began by the wall clock. `whole`: at everything, at the end.
    """

    conditions: tuple[Condition, ...]
    is_known: Callable[[Condition], bool]
    now_ms: int
    began_ms: int
    run_id: str
    whole: bool = False


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


def observed(book: Book, look: Look) -> Book:
    """The book after a look. Where it could not see, everything stays as it is."""
    seen = [replace(c, seen_ms=c.seen_ms or look.began_ms, run_id=look.run_id) for c in look.conditions]
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
    if old is None:
        return Incident(condition, now_ms)
    if not old.is_open:
        return Incident(condition, now_ms, words=old.words)
    known = old.condition
    if condition.seen_ms < known.seen_ms:
        return old
    link = condition.link or (known.link if condition.occurrence == known.occurrence else "")
    newest = replace(condition, mark=max(known.mark, condition.mark), link=link)
    return replace(old, condition=newest, since_ms=old.since_ms if newest.occurrence == known.occurrence else now_ms)


def _may_end(condition: Condition, look: Look) -> bool:
    is_later = condition.run_id == look.run_id or look.began_ms >= condition.seen_ms
    return is_later and look.is_known(condition)


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
    words = {i.condition.key: Word(Said.UNSURE, by=by) for i in telling.incidents}
    return _with_words(book, listener, telling, words)


def after_telling(book: Book, listener: Listener, telling: Telling, by: str) -> Book:
    """The book to write when the channel has got the message. Where another task has told it of the same meanwhile,
    nobody knows which message was the last."""
    words = {}
    for incident in telling.incidents:
        key = incident.condition.key
        is_ours = key in book.incidents and book.incidents[key].words.get(listener.name) == Word(Said.UNSURE, by=by)
        said = Said.OPEN if incident.is_open else Said.OVER
        words[key] = Word(said, incident.condition.occurrence) if is_ours else Word(Said.UNSURE)
    return _with_words(book, listener, telling, words)


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
