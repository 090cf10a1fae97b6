"""Says what is to change, and by whom. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Area(StrEnum):
    """Lists what may be of an earlier version, in the order in which it is looked at and changed."""

    CONFIGURATION = "configuration"
    STATE = "place of the state"
    JARS = "jars"
    TABLE = "table"
    SIDE_TABLE = "side table"
    EVIDENCE = "evidence"
    ROUND = "round"
    DATA_DOCS = "Data Docs"
    INCIDENTS = "incidents"


class By(StrEnum):
    """Lists who makes a change: the command, a task of this version when it comes to it, or a person."""

    UPGRADE = "upgrade"
    ITSELF = "itself"
    PERSON = "person"


@dataclass(frozen=True, slots=True)
class Change:
    """Describes one thing of an earlier version: `subject` is a file, a table or a topic, `text` says in a clause what
    becomes of it and why."""

    area: Area
    subject: str
    text: str
    by: By


def left_for_people(changes: Iterable[Change]) -> bool:
    """Returns whether something is left that only a person can decide."""
    return any(change.by is By.PERSON for change in changes)
