"""Where the incidents of a topic are kept: an Airflow Variable, `cleantail.incidents.TOPIC`.

Not in the table: an incident may be that the catalog cannot be reached, or that the first file of a topic that has no
table yet is broken, and a commit for each message would make rounds start over. Not in a file: workers need not share a
disk. The variable lives with Airflow's connections and survives restarts; who deletes it has what is open told anew.

Who changes the book holds the lock `alerts-TOPIC` below CLEANTAIL_HOME while it looks, tells and writes: two tasks of
one topic (the check of a run, and the alert of an earlier one that was cleared) tell one after the other. Where workers
share no CLEANTAIL_HOME the lock holds on each machine alone; then what two tasks told a channel at once is marked as
unsure (`cleantail.watch.alerting.notifications`) and told again by the next one.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from airflow.sdk import Variable

from cleantail.home.locks import exclusive
from cleantail.watch.alerting.incident_texts import book_as_json, parse_book
from cleantail.watch.alerting.incidents import Book

PREFIX = "cleantail.incidents."
LOCK_WAIT_S = 300.0
"""As long as a few channels take that do not answer."""
_NAME_CHARS = 250
"""Airflow's longest name of a variable."""
_DESCRIPTION = "What is wrong with the topic and who was told. Kept by Cleantail; delete it to have it told anew."

logger = logging.getLogger(__name__)


class Shelf(Protocol):
    """Where a book is kept. It is read anew for each change, so that nothing of it is written that is out of date."""

    def load(self) -> Book: ...

    def save(self, book: Book) -> None: ...


def variable_name(topic: str) -> str:
    """A topic's name may be as long as that of a variable."""
    if len(PREFIX + topic) <= _NAME_CHARS:
        return PREFIX + topic
    return PREFIX + hashlib.sha256(topic.encode()).hexdigest()


def load_book(topic: str) -> Book:
    """The topic's incidents; none where the variable is missing, or not a book that can be read."""
    text = Variable.get(variable_name(topic), default=None)
    try:
        return parse_book(text) if text else Book()
    except ValueError as e:
        logger.warning("variable %s cannot be read, what is open is told anew: %s", variable_name(topic), e)
        return Book()


class VariableShelf:
    """The variable of one topic."""

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def load(self) -> Book:
        return load_book(self.topic)

    def save(self, book: Book) -> None:
        """Writes what has changed. Without incidents the variable stays: it says when everything was looked at."""
        if book_as_json(book) != book_as_json(self.load()):
            Variable.set(variable_name(self.topic), book_as_json(book), description=_DESCRIPTION)


@contextmanager
def shelf_of(topic: str, home: Path) -> Iterator[Shelf]:
    """The topic's book, for this task alone until the block ends. Raises CleantailError where another holds it for
    LOCK_WAIT_S seconds."""
    with exclusive(home, f"alerts-{topic}", LOCK_WAIT_S):
        yield VariableShelf(topic)
