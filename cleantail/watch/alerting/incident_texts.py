"""A book of incidents as one text of JSON, as it is kept between tasks and runs. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from cleantail.config.events import Event
from cleantail.watch.alerting.incidents import Book, Condition, Incident, IncidentState, LastWord

BOOK_VERSION = 2
"""The version that this code writes; it reads version 1 as well."""
_SINCE = re.compile(r"(partition \d+) (since \d+)")
"""Finds partition and begin in the subject of a quarantine in version 1."""


def book_as_json(book: Book) -> str:
    """Returns the book as one text with sorted keys, so that equal books are equal texts."""
    rows = [_row(incident) for _, incident in sorted(book.incidents.items())]
    return json.dumps({"version": BOOK_VERSION, "looked_ms": book.looked_ms, "incidents": rows}, sort_keys=True)


def parse_book(text: str) -> Book:
    """Returns the book of a text. Raises ValueError where it is no book of this version or the one before: a person may
    have edited it."""
    try:
        document = json.loads(text)
        if document["version"] == 1:
            return _of_version_1(document["incidents"])
        if document["version"] != BOOK_VERSION:
            raise ValueError(f"version {document['version']}")
        incidents = [_incident(row) for row in document["incidents"]]
        return Book({incident.condition.key: incident for incident in incidents}, int(document["looked_ms"]))
    except (TypeError, KeyError, AttributeError) as e:
        raise ValueError(f"not a book of incidents: {type(e).__name__}: {e}") from None


def _row(incident: Incident) -> dict[str, Any]:
    fields = asdict(incident)
    fields["words"] = fields.pop("last_words")  # books that running installations have kept say `words`
    return fields


def _incident(row: Mapping[str, Any]) -> Incident:
    last_words = {
        name: LastWord(
            IncidentState(fields["said"]), str(fields["occurrence"]), str(fields["by"]), bool(fields.get("beside"))
        )
        for name, fields in row["words"].items()
    }
    return Incident(_condition(row["condition"]), int(row["since_ms"]), row["over_ms"], last_words)


def _condition(fields: Mapping[str, Any]) -> Condition:
    return Condition(**{**fields, "event": Event(fields["event"])})


def _of_version_1(rows: Iterable[Mapping[str, Any]]) -> Book:
    """Returns the incidents of a book of version 1, in which every channel that has heard of an incident is unsure of
    it.

    Version 1 knew who was told, but not in which order: it reported the end of a quarantine after the beginning of the
    next one. So each channel is told once more what is true.
    """
    incidents: dict[tuple[Event, str], Incident] = {}
    for row in sorted(rows, key=lambda r: (r["over_ms"] is None, int(r["since_ms"]))):
        old = _condition(row["condition"])
        match = _SINCE.fullmatch(old.subject)
        condition = replace(old, subject=match[1], occurrence=match[2]) if match else old
        heard = {name: LastWord(IncidentState.UNSURE) for name in [*row["told"], *row["heard_over"]]}
        before = incidents.get(condition.key)
        last_words = {**before.last_words, **heard} if before else heard
        incidents[condition.key] = Incident(condition, int(row["since_ms"]), row["over_ms"], last_words)
    return Book(incidents)
