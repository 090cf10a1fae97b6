"""Incidents: what is wrong with a topic, since when, and what each channel was told of it last. Pure.

1. Nothing is sent when something happens. A task looks at the topic, and its look brings the book up to date
   (`observed`). Then the book is compared with the last word that each channel has, and what differs is sent
   (`notifications`). A Kubernetes controller reconciles what is with what should be in the same way.
2. An incident is an event about a subject: a partition, a task, a reader, a round that waits. A quarantine that begins
   anew after a release is the same incident, with another `occurrence`.
3. Only a look that could have seen it ends an incident (`Look.is_known`). A look that could not read the table does not
   end it.
4. Nor does a look of an earlier run than the one that saw the incident last: a task of an earlier run may be cleared at
   any time.
5. What an earlier run saw opens no incident either, once a later run has looked at everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from cleantail.config.events import Event

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
