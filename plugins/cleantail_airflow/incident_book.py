"""Where the incidents of a topic are kept: an Airflow Variable, `cleantail.incidents.TOPIC`.

Not in the table: an incident may be that the catalog cannot be reached, or that the first file of a topic that has no
table yet is broken, and a commit for each message would make rounds start over. Not in a file: workers need not share a
disk. The variable lives with Airflow's connections and survives restarts; who deletes it has what is open told anew.
Only one task at a time writes it: a DAG has one active run, and the tasks that tell follow each other.
"""

from __future__ import annotations

import hashlib
import logging

from airflow.sdk import Variable

from cleantail.incidents import Book, book_as_json, parse_book

PREFIX = "cleantail.incidents."
_NAME_CHARS = 250
"""Airflow's longest name of a variable."""
_DESCRIPTION = "What is wrong with the topic and who was told. Kept by Cleantail; delete it to have it told anew."

logger = logging.getLogger(__name__)


def variable_name(topic: str) -> str:
    """A topic's name may be as long as that of a variable."""
    if len(PREFIX + topic) <= _NAME_CHARS:
        return PREFIX + topic
    return PREFIX + hashlib.sha256(topic.encode()).hexdigest()


def load_book(topic: str) -> Book:
    """The topic's open incidents; none where the variable is missing, or not a book that can be read."""
    text = Variable.get(variable_name(topic), default=None)
    try:
        return parse_book(text) if text else {}
    except ValueError as e:
        logger.warning("variable %s cannot be read, what is open is told anew: %s", variable_name(topic), e)
        return {}


def save_book(topic: str, before: Book, after: Book) -> None:
    """Writes what has changed; without incidents there is no variable."""
    if book_as_json(before) == book_as_json(after):
        return
    if after:
        Variable.set(variable_name(topic), book_as_json(after), description=_DESCRIPTION)
    else:
        Variable.delete(variable_name(topic))
