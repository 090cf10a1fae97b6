"""Two different records at one (partition, offset): what is said of them, which is never a key or a value.

Kafka gives an offset once, so a second record there is a copy of the first: equal in key, value, timestamp and headers
(semantics.md 3.5; no headers and an empty list of them are the same). One that differs is of another log: the topic was
made anew and counts from 0 again, or the records are another topic's. Which of the two is right nobody can tell from
the table, so nothing is decided: ingestion refuses the file, and a round's check holds the log back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cleantail.config.topic_table import HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, VALUE
from cleantail.human import counted

COMPARED = (KEY, VALUE, TIMESTAMP, HEADERS)
"""In what a copy is equal to its record. The type of the timestamp is the topic's, not the record's."""
MEASURE = "contradicting_offsets"
FIRST = "first_contradiction"
"""Measures of a log: the number of such offsets, and the lowest of them in words."""

CANDIDATE, HIDDEN, LIVE = 0, 1, 2
"""A record's part: it is to be compared with what else its offset has; it is only compared with, being deleted or not.
Two that nobody asks about may differ."""
OTHERS = {
    CANDIDATE: "two different records",
    HIDDEN: "the table had another record there, which is hidden by now but still in its data file",
    LIVE: "the table has another record there",
}


@dataclass(frozen=True, slots=True)
class Contradiction:
    """The offsets of one log that have two different records: how many, the lowest, and which of COMPARED differ
    there. `other`: the highest part of the records there, which says where the other one is."""

    partition: int
    offsets: int
    first_offset: int
    differing: tuple[str, ...]
    other: int = CANDIDATE

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Contradiction:
        """From a row of transforms.contradictions.first_by_log."""
        first = row["first"]
        differing = tuple(name for name in COMPARED if first[name])
        return cls(row[PARTITION], row["offsets"], first[OFFSET], differing, first["part"])

    @property
    def difference(self) -> str:
        """`key differs`, `key, value and headers differ`."""
        *others, last = self.differing
        subject = f"{', '.join(others)} and {last}" if others else last
        return f"{subject} {'differ' if others or last == HEADERS else 'differs'}"

    @property
    def text(self) -> str:
        """For a finding: how many offsets, and what is wrong at the first."""
        number = "1 offset has" if self.offsets == 1 else f"{self.offsets} offsets have"
        return f"{number} two different records, the lowest is {self.first_offset}: {self.difference}"

    def as_json(self) -> dict[str, Any]:
        """For `cleantail check`: numbers and texts of our own making."""
        return {PARTITION: self.partition, "offsets": self.offsets, "text": self.text}

    def as_measures(self) -> dict[str, Any]:
        """Returns what a round's measures of the log say of it."""
        return {MEASURE: self.offsets, FIRST: self.text}


def refusal(contradictions: Sequence[Contradiction], files: Iterable[Path]) -> str:
    """Returns what ingestion says where it appends nothing. `contradictions`: one a log; `files`: those with a record
    at the lowest offset of the first log."""
    first, total = contradictions[0], sum(c.offsets for c in contradictions)
    where = f"partition {first.partition}, offset {first.first_offset}"
    logs = f" in {counted(len(contradictions), 'partition')}" if len(contradictions) > 1 else ""
    others = f" ({total} such offsets{logs} in all)" if total > 1 else ""
    what = f"{OTHERS[first.other]}: {first.difference}{others}; nothing was appended"
    return (
        f"{', '.join(str(file) for file in files)}: {where}: {what}. "
        "An offset has one record: was the topic made anew, so that its offsets begin again, or is this another "
        'topic\'s file? See "Two different records at one offset" in docs/operations.md'
    )
