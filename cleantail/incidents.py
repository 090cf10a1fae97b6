"""Incidents: what is wrong with a topic, since when, and who has heard of it. Pure.

Nothing is sent when something happens; what is wrong is compared with what each channel was told (as a controller
compares what is with what should be). So an incident is told once however long it lasts, a message that could not be
sent is sent by the next run, and whoever heard of an incident hears of its end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from cleantail.events import Event

BOOK_VERSION = 1


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that is wrong now. `event` and `subject` together say which; `text` says it in words, `link` where.

    `partition` is None where a task is meant. `mark`: the offset that a reader must have passed (HOLD_CAP only).
    """

    event: Event
    subject: str
    text: str
    link: str = ""
    partition: int | None = None
    mark: int = 0

    @property
    def key(self) -> tuple[Event, str]:
        return self.event, self.subject


@dataclass(frozen=True, slots=True)
class Incident:
    """A condition with its time (Unix ms). `told`: channels that know of it; `heard_over`: those that know its end."""

    condition: Condition
    since_ms: int
    over_ms: int | None = None
    told: frozenset[str] = frozenset()
    heard_over: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Listener:
    """A channel: its name among the topic's, and the events that it wants to hear of."""

    name: str
    events: Collection[Event]


Book = Mapping[tuple[Event, str], Incident]
"""The incidents of one topic."""


def observed(book: Book, conditions: Iterable[Condition], is_known: Callable[[Condition], bool], now_ms: int) -> Book:
    """The book once `conditions` are known to hold. An incident is over when what is wrong no longer is; where this
    run could not look (`is_known`), it stays as it is."""
    now = {condition.key: condition for condition in conditions}
    after = {key: _still(book[key], now_ms) if key in now else _maybe_over(book[key], is_known, now_ms) for key in book}
    for key, condition in now.items():
        old = after.get(key)
        after[key] = replace(old, condition=_newer(old.condition, condition)) if old else Incident(condition, now_ms)
    return after


def _still(incident: Incident, now_ms: int) -> Incident:
    """Back before everybody had heard that it was over: it is a new incident for those that had."""
    if incident.over_ms is None:
        return incident
    told = incident.told - incident.heard_over
    return replace(incident, since_ms=now_ms, over_ms=None, told=told, heard_over=frozenset())


def _maybe_over(incident: Incident, is_known: Callable[[Condition], bool], now_ms: int) -> Incident:
    if incident.over_ms is not None or not is_known(incident.condition):
        return incident
    return replace(incident, over_ms=now_ms)


def _newer(old: Condition, new: Condition) -> Condition:
    return replace(new, mark=max(old.mark, new.mark))


def to_tell(book: Book, listener: Listener) -> tuple[list[Incident], list[Incident]]:
    """What this channel is to hear now: incidents that it does not know of, and ends that it does not know of.

    One whose beginning never reached the channel, and that is over, is told by its end.
    """
    wanted = [incident for _, incident in sorted(book.items()) if _wants(book, incident, listener)]
    begun = [i for i in wanted if i.over_ms is None and listener.name not in i.told]
    ended = [i for i in wanted if i.over_ms is not None and listener.name not in i.heard_over]
    return begun, ended


def _wants(book: Book, incident: Incident, listener: Listener) -> bool:
    return incident.condition.event in listener.events and not _is_told_as_another(book, incident, listener)


def _is_told_as_another(book: Book, incident: Incident, listener: Listener) -> bool:
    """A failed check and the quarantine that follows from it are one incident: a channel hears of it once."""
    event, subject = incident.condition.key
    if event is Event.CHECK_FAILED:
        twin = book.get((Event.QUARANTINED, subject))
        return twin is not None and listener.name in twin.told
    if event is Event.QUARANTINED and Event.CHECK_FAILED in listener.events:
        return (Event.CHECK_FAILED, subject) in book and listener.name not in incident.told
    return False


def after_telling(book: Book, listener: Listener, told: Iterable[Incident]) -> Book:
    """The book once the channel has got the message about these."""
    after = dict(book)
    for incident in told:
        name = frozenset({listener.name})
        known = after[incident.condition.key]
        if incident.over_ms is None:
            after[incident.condition.key] = replace(known, told=known.told | name)
        else:
            after[incident.condition.key] = replace(known, heard_over=known.heard_over | name)
    return after


def without_settled(book: Book, listeners: Collection[Listener]) -> Book:
    """Without the incidents that are over and known to be so by every channel that there is."""
    names = {listener.name for listener in listeners}
    unheard = {incident.condition.key for listener in listeners for incident in to_tell(book, listener)[1]}
    kept = {key: i for key, i in book.items() if i.over_ms is None or key in unheard}
    return {key: replace(i, told=i.told & names, heard_over=i.heard_over & names) for key, i in kept.items()}


def book_as_json(book: Book) -> str:
    """One text, keys sorted, so that equal books are equal texts."""
    rows = [_row(incident) for _, incident in sorted(book.items())]
    return json.dumps({"version": BOOK_VERSION, "incidents": rows}, sort_keys=True)


def _row(incident: Incident) -> dict[str, Any]:
    return {**asdict(incident), "told": sorted(incident.told), "heard_over": sorted(incident.heard_over)}


def parse_book(text: str) -> Book:
    """Raises ValueError for a text that is no book of this version: a person may have edited it."""
    try:
        document = json.loads(text)
        if document["version"] != BOOK_VERSION:
            raise ValueError(f"version {document['version']}")
        incidents = [_incident(row) for row in document["incidents"]]
    except (TypeError, KeyError, AttributeError) as e:
        raise ValueError(f"not a book of incidents: {type(e).__name__}: {e}") from None
    return {incident.condition.key: incident for incident in incidents}


def _incident(row: dict[str, Any]) -> Incident:
    condition = Condition(**{**row["condition"], "event": Event(row["condition"]["event"])})
    sets = {name: frozenset(row[name]) for name in ("told", "heard_over")}
    return Incident(condition, int(row["since_ms"]), row["over_ms"], **sets)
