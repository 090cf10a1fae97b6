"""A book of incidents as one text of JSON, as it is kept between tasks and runs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from cleantail.codec import Codec
from cleantail.config.events import Event
from cleantail.errors import TableError
from cleantail.watch.alerting.incidents import Book, Condition, Incident, IncidentState, LastWord

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
