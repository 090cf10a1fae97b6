"""A book that was kept is the same book; a book of another format is refused."""

import pytest

from cleantail.config.alert_channels import Event
from cleantail.errors import TableError
from cleantail.watch.incidents import Book, Condition, Incident, IncidentState, LastMessage, book_as_json, parse_book

RUN = Incident(Condition(Event.RUN_FAILED, "task compact", "compact failed", "link", run_id="r", seen_ms=3), 1)
CHECK = Incident(
    Condition(Event.CHECK_FAILED, "partition 4", "partition 4: x", "link", 4, occurrence="since 7"),
    7,
    9,
    {"mail": LastMessage(IncidentState.OPEN, "since 7"), "chat": LastMessage(IncidentState.UNSURE, by="me")},
)


def book(*incidents, looked_ms=5):
    return Book({incident.condition.key: incident for incident in incidents}, looked_ms)


def test_a_book_is_the_same_after_it_was_kept():
    assert parse_book(book_as_json(book(RUN, CHECK))) == book(RUN, CHECK)


def test_equal_books_are_equal_texts():
    assert book_as_json(book(RUN, CHECK)) == book_as_json(book(CHECK, RUN))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '"x"',
        '{"format": 2, "incidents": []}',
        '{"format": 2, "incidents": [], "looked_ms": 1}',
        '{"format": 1}',
        '{"format": 1, "incidents": []}',
        '{"incidents": [], "looked_ms": 1}',
        '{"format": 1, "incidents": [3], "looked_ms": 1}',
        '{"format": 1, "incidents": [{"last_messages": 3}], "looked_ms": 1}',
    ],
)
def test_an_invalid_book_of_incidents_is_an_error(text):
    with pytest.raises(TableError, match="^the book cannot be read: "):
        parse_book(text)


def test_an_event_of_another_version_is_an_error():
    text = book_as_json(book(RUN)).replace("run_failed", "sun_failed")
    with pytest.raises(TableError, match="incidents.0.condition.event: Input should be .check_failed"):
        parse_book(text)
