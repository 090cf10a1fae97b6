"""Records and the next offsets of their partitions in one commit, and only onto the position that was read from.

Every such commit makes a snapshot of `main`, also one that brings no record. By that a catalog sees any two of them as
what they are, one after the other: the later one finds another position than it was planned on, and appends nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError

from cleantail.errors import ConflictError
from cleantail.kafka.positions import PROPERTY_POSITION
from spark_jobs.changes import texts
from spark_jobs.commits import REF_ATTEMPTS
from spark_jobs.iceberg_errors import conflict, lost, state_unknown
from spark_jobs.tables import TopicTable


@dataclass(frozen=True, slots=True)
class Advance:
    """The position's text `before` and `after` a read, and the summary of its snapshot."""

    before: str | None
    after: str
    summary: Mapping[str, str]


def append_and_advance(table: TopicTable, files: Sequence[Any], advance: Advance) -> None:
    """Appends the data files to `main` and moves the position, both or neither. Done already is done: so a commit whose
    answer was lost can be tried again. Raises ConflictError where another ingestion was faster."""
    for attempt in range(1, REF_ATTEMPTS + 1):
        transaction = table.load().newTransaction()
        now = texts(transaction.table().properties()).get(PROPERTY_POSITION)
        if now == advance.after:
            return
        if now != advance.before:
            raise ConflictError(
                f"another ingestion has moved the position of {table.topic.table}: nothing was appended"
            )
        _stage(transaction, files, advance)
        try:
            # not commitTransaction: that would lay the change onto whatever came in between
            transaction.underlyingOps().commit(transaction.startMetadata(), transaction.currentMetadata())
        except Py4JJavaError as e:
            if attempt == REF_ATTEMPTS or not (lost(e) or state_unknown(e)):
                raise conflict(e) from None
        else:
            return
        time.sleep(random.uniform(0.02, 0.1) * attempt)
    raise AssertionError("unreachable: the last attempt raises")


def _stage(transaction: Any, files: Sequence[Any], advance: Advance) -> None:
    append = transaction.newAppend() if files else transaction.newFastAppend()
    for file in files:
        append.appendFile(file)
    for name, value in advance.summary.items():
        append.set(name, value)
    append.commit()
    transaction.updateProperties().set(PROPERTY_POSITION, advance.after).commit()
