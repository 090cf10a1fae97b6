"""Incidents: what is wrong with a topic, since when, and what each channel was told of it last. Pure.

Nothing is sent when something happens. Looks keep the book true (here); what is true is compared with the last word
that each channel has, as a controller compares what is with what should be, and the difference is told
(`notifications`).

An incident is an event about a subject: a partition, a task, a reader, a round that waits. A quarantine that begins
anew after a release is the same incident, with another `occurrence`.

Only a look that could have seen it ends an incident (`Look.is_known`): neither one that could not read the table, nor
one of an earlier run than the one that saw the incident last (a task of it may be cleared at any time). What an earlier
run saw opens nothing either, once a later run has looked at everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from cleantail.config.events import Event

Key = tuple[Event, str]
"""Event and subject: which incident."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that is wrong now. `event` and `subject` together say which; `text` says it in words, `link` where.

    `partition` is None where a task is meant. `mark`: the offset that a reader must have passed (HOLD_CAP only).
    `occurrence`: what changes when it begins anew without having been over for anybody. `seen_ms`: when it was seen, by
    the wall clock (Unix ms), 0 where it is seen by the look itself; `run_id`: by a task of which run.
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
    """Describes the last word that a channel has of an incident."""

    OPEN = "open"
    OVER = "over"
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class LastWord:
    """Says what a channel was told last. `by`: who is telling it at this moment, and `beside`: whether that one began
    while another one was telling it, whose message may come later (UNSURE only)."""

    said: IncidentState
    occurrence: str = ""
    by: str = ""
    beside: bool = False


@dataclass(frozen=True, slots=True)
class Incident:
    """Describes a condition with its time (Unix ms, by the clock of runs), and the last word of each channel that has
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
    """Describes the incidents of one topic. `looked_ms`: when the last run began (wall clock) that has looked at
    everything."""

    incidents: Mapping[Key, Incident] = field(default_factory=dict)
    looked_ms: int = 0


@dataclass(frozen=True, slots=True)
class Look:
    """Says what a task of a run has seen. `is_known`: whether it could have seen that something is over.

    `now_ms` is the run's clock, `began_ms` when the run began by the wall clock. `whole`: at everything, at the end.
    """

    conditions: tuple[Condition, ...]
    is_known: Callable[[Condition], bool]
    now_ms: int
    began_ms: int
    run_id: str
    whole: bool = False


def observed(book: Book, look: Look) -> Book:
    """Returns the book after a look. Where it could not see, everything stays as it is."""
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
    is_later = condition.run_id == look.run_id or look.began_ms >= condition.seen_ms
    return is_later and look.is_known(condition)
