"""Two different records at one (partition, offset): what is said of them, which is never a key or a value.

1. Kafka gives an offset once. So a second record at an offset has to be a copy of the first: equal in key, value,
   timestamp and headers (semantics.md 3.5). No headers and an empty list of headers are equal.
2. A second record that differs is of another log: the topic was made anew and counts from 0 again, or the records are
   another topic's.
3. Nobody can tell from the table which of the two is right, so nothing is decided. Ingestion refuses the file, and a
   round's check holds the log back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from cleantail.config.topic_table import HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, VALUE
from cleantail.human import counted

COMPARED = (KEY, VALUE, TIMESTAMP, HEADERS)
"""The columns in which a copy equals its record. The type of the timestamp belongs to the topic, not to the record."""
MEASURE = "contradicting_offsets"
"""The rule (cleantail.log.rules) that such offsets break."""

CANDIDATE, HIDDEN, LIVE = 0, 1, 2
"""The part that a record plays in the comparison. A candidate is compared with every other record of its offset. A
record that is hidden by a delete file, or live in the table, is only what candidates are compared with: two of these
may differ."""
OTHERS = {
    CANDIDATE: "two different records",
    HIDDEN: "the table had another record there, which is hidden by now but still in its data file",
    LIVE: "the table has another record there",
}
"""The highest part among the records of an offset -> how a refusal says where the other record is."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Describes the offsets of one log that have two different records.

    `offsets` says how many there are, `first_offset` which is the lowest, and `differing` which of COMPARED differ
    there. `other` is the highest part among the records at the lowest offset, which says where the other record is.
    """

    partition: int
    offsets: int
    first_offset: int
    differing: tuple[str, ...]
    other: int = CANDIDATE

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Contradiction:
        """Returns the contradiction that a row of transforms.contradictions.first_by_log describes."""
        first = row["first"]
        differing = tuple(name for name in COMPARED if first[name])
        return cls(row[PARTITION], row["offsets"], first[OFFSET], differing, first["part"])

    @property
    def difference(self) -> str:
        """Returns `key differs`, or `key, value and headers differ`."""
        *first_columns, last_column = self.differing
        subject = f"{', '.join(first_columns)} and {last_column}" if first_columns else last_column
        return f"{subject} {'differ' if first_columns or last_column == HEADERS else 'differs'}"

    @property
    def text(self) -> str:
        """Returns the text of a finding: how many offsets there are, and what is wrong at the first."""
        number = "1 offset has" if self.offsets == 1 else f"{self.offsets} offsets have"
        return f"{number} two different records, the lowest is {self.first_offset}: {self.difference}"

    def as_json(self) -> dict[str, JsonValue]:
        """Returns what `cleantail check` writes: numbers, and a text that holds nothing of a record."""
        return {PARTITION: self.partition, "offsets": self.offsets, "text": self.text}


def refusal(contradictions: Sequence[Contradiction], files: Iterable[Path]) -> str:
    """Returns what ingestion says where it appends nothing.

    `contradictions` holds one for each log, and `files` the files with a record at the lowest offset of the first log.
    """
    first, total = contradictions[0], sum(c.offsets for c in contradictions)
    position = f"partition {first.partition}, offset {first.first_offset}"
    logs = f" in {counted(len(contradictions), 'partition')}" if len(contradictions) > 1 else ""
    count_text = f" ({total} such offsets{logs} in all)" if total > 1 else ""
    fact = f"{OTHERS[first.other]}: {first.difference}{count_text}; nothing was appended"
    return (
        f"{', '.join(str(file) for file in files)}: {position}: {fact}. "
        "An offset has one record: was the topic made anew, so that its offsets begin again, or is this another "
        'topic\'s file? See "Two different records at one offset" in docs/operations.md'
    )
