"""Keeps the incidents of a topic in an Airflow Variable, `cleantail.incidents.TOPIC`.

They are not in the table: an incident may be that the catalog cannot be reached, or that the first file of a topic that
has no table yet is broken, and a commit for each message would make rounds start over. They are not in a file, since
workers need not share a disk. The variable lives with Airflow's connections and survives restarts; who deletes it has
the open incidents told anew.

A task that changes the book holds the lock `alerts-TOPIC` below CLEANTAIL_HOME while it looks, tells and writes, so two
tasks of one topic (the check of a run, and the alert of an earlier one that was cleared) tell one after the other.
Where workers share no CLEANTAIL_HOME the lock holds on each machine alone; then what two tasks told a channel at once
is marked as unsure (`cleantail.watch.incidents`), and the next task tells it again.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from airflow.sdk import Variable

from cleantail.errors import TableError
from cleantail.home.home_folder import exclusive
from cleantail.watch.incidents import Book, book_as_json, parse_book

PREFIX = "cleantail.incidents."
LOCK_WAIT_S = 300.0
"""A task waits for the lock as long as a few channels take that do not answer."""
_NAME_CHARS = 250
"""Airflow's longest name of a variable."""
_DESCRIPTION = "What is wrong with the topic and who was told. Kept by Cleantail; delete it to have it told anew."

logger = logging.getLogger(__name__)


class BookStore(Protocol):
    """Loads and saves a topic's book. It is loaded anew for each change, so that nothing out of date is written."""

    def load(self) -> Book: ...

    def save(self, book: Book) -> None: ...


def variable_name(topic: str) -> str:
    """Returns the variable's name; a topic's name that is too long for it is replaced by its hash."""
    if len(PREFIX + topic) <= _NAME_CHARS:
        return PREFIX + topic
    return PREFIX + hashlib.sha256(topic.encode()).hexdigest()


def load_book(topic: str) -> Book:
    """Reads the topic's incidents: none where the variable is missing, or holds no book that can be read."""
    text = Variable.get(variable_name(topic), default=None)
    try:
        return parse_book(text) if text else Book()
    except TableError as e:
        logger.warning("variable %s cannot be read, what is open is told anew: %s", variable_name(topic), e)
        return Book()


class VariableBookStore:
    """Keeps the book of one topic in an Airflow Variable."""

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def load(self) -> Book:
        return load_book(self.topic)

    def save(self, book: Book) -> None:
        """Writes the book if it has changed. Without incidents the variable stays: it says when all was looked at."""
        if book_as_json(book) != book_as_json(self.load()):
            Variable.set(variable_name(self.topic), book_as_json(book), description=_DESCRIPTION)


@contextmanager
def locked_book(topic: str, home: Path) -> Iterator[BookStore]:
    """Locks the topic's book for this task until the block ends.

    Raises CleantailError where another task holds the lock for LOCK_WAIT_S seconds.
    """
    with exclusive(home, f"alerts-{topic}", LOCK_WAIT_S):
        yield VariableBookStore(topic)
