"""The rules that every round must keep, and the measures of a check that prove them in each log. Pure.

1. Each measure of RULES is 0 in a log whose round is right. Any other number blocks that log alone. A round is judged
   by the rules that its kind can break.
2. A round removes nothing that readers rely on (semantics.md 1.4.2, 1.5, 1.6): `missing_winners`, `foreign_records`,
   `data_files_changed`, `head_changed` and `early_tombstones`.
3. A round leaves nothing that had to be removed: `duplicate_keys` (semantics.md 1.6), `overdue_tombstones` (1.5, 3.4),
   `invalid_left` (3.7), `resurrected` (2, hazard 2), `gone_at_source_left` (3.12) and `erased_left`.
4. A round does not decide between records that contradict each other: `contradicting_offsets` (semantics.md 3.5).
5. A round counts each record that it removes exactly once: `imbalance`.
6. Each measure of WARNINGS counts faults of the records that came in (semantics.md 2, hazard 4). A violation is
   reported and blocks nothing.

Kafka assigns an offset once. So a second record at an offset has to be a copy of the first, equal in key, value,
timestamp and headers (semantics.md 3.5). A second record that differs belongs to another log: the topic was recreated,
or the records are another topic's. The table does not show which of the two is right. So ingestion refuses the file,
and a round's check blocks the log (Contradiction). Messages name no key and no value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from cleantail.config.topic_table import HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, VALUE
from cleantail.human import counted
from cleantail.log.partition_state import Horizon

COMPARED = (KEY, VALUE, TIMESTAMP, HEADERS)
"""The columns in which a copy equals its record.

The timestamp's type belongs to the topic, not to the record. No headers and an empty list of headers are equal.
"""
MEASURE = "contradicting_offsets"
"""The rule that offsets with two different records break."""
CANDIDATE, HIDDEN, LIVE = 0, 1, 2
"""The part of a record in the comparison.

A candidate is compared with every other record of its offset. Two records that a delete file hides, or that are live in
the table, may differ.
"""
OTHERS = {
    CANDIDATE: "two different records",
    HIDDEN: "the table had another record there, which a delete file hides but its data file still has",
    LIVE: "the table has another record there",
}
"""The highest part among the records of an offset -> where a refusal locates the other record."""
RULES = {
    "duplicate_keys": "keys are unique below the first dirty offset",
    "missing_winners": "every key of the input still has its winner",
    "foreign_records": "surviving offsets are a subset of the input's",
    "data_files_changed": "order and values are untouched: no data file was written or replaced",
    "head_changed": "no record at or above the first dirty offset changed",
    "early_tombstones": "no tombstone was deleted before its horizon",
    "overdue_tombstones": "no tombstone is left past its horizon",
    "invalid_left": "no record without a key is left below the first dirty offset",
    "resurrected": "no record older than a remembered deletion is left",
    "contradicting_offsets": "no offset has two different records: a copy is equal in key, value, timestamp, headers",
    "gone_at_source_left": "a reconciliation leaves no key that was deleted at the source",
    "erased_left": "an erasure leaves no record of an erased key",
    "imbalance": "records in - records removed, each counted under one reason = records out",
}
"""Measure -> the rule whose violations it counts."""
WARNINGS = {
    "malformed_versions": "version headers have 8 bytes; others count as missing",
    "future_timestamps": "no timestamp is beyond message.timestamp.after.max.ms; others count as no version",
}
"""Measure -> the rule for new records (semantics.md 2)."""


def rule_text(measure: str) -> str:
    """Return the rule whose violations a measure counts."""
    return RULES.get(measure) or WARNINGS[measure]


def severity_of(measure: str) -> str:
    """Return Great Expectations' severity: `critical` blocks the log, `warning` is only reported."""
    return "critical" if measure in RULES else "warning"


@dataclass(frozen=True, slots=True)
class LogMeasure:
    """The measures of one log: `_in` before the round, `_out` on the branch that it wrote.

    1. `records_` and `tombstones_` count all records of the log, also those above the round's end. Tombstones are
       counted as far as the round had to read. `deleted` is reason -> records that the round removes.
    2. Kafka's counts of a round (semantics.md 1.7): `records_read` and `records_kept` are the records in [log start,
       end) before and after. `map_records` are those in [first dirty, end), and `map_keys` their distinct keys. None if
       they were not counted.
    3. Violations of the rule of that name. Too few records break a rule as too many do, so `violations` has no sign.
    4. Dirty records whose version does not count (semantics.md 2), and the lowest offset with two different records, in
       words.
    5. The log's next state, written in the commit that changes the data (cleantail.log.partition_state.PartitionState).
    """

    partition: int
    # 1. all records, and removed ones
    records_in: int = 0
    records_out: int = 0
    tombstones_in: int = 0
    tombstones_out: int = 0
    deleted: Mapping[str, int] = field(default_factory=dict)
    # 2. the records that the round read, as Kafka counts them
    records_read: int | None = None
    records_kept: int | None = None
    map_records: int | None = None
    map_keys: int | None = None
    # 3. violations of the rules
    duplicate_keys: int = 0
    missing_winners: int = 0
    foreign_records: int = 0
    data_files_changed: int = 0
    head_changed: int = 0
    early_tombstones: int = 0
    overdue_tombstones: int = 0
    invalid_left: int = 0
    resurrected: int = 0
    contradicting_offsets: int = 0
    gone_at_source_left: int = 0
    erased_left: int = 0
    imbalance: int = 0
    # 4. problems of new records
    malformed_versions: int = 0
    future_timestamps: int = 0
    first_contradiction: str = ""
    # 5. the log's next state
    horizons: tuple[Horizon, ...] = ()
    head_tombstones: int = 0
    guards: int = 0
    proven_ms: int | None = None

    @property
    def removed(self) -> int:
        """Return how many records the round removes from the log."""
        return sum(self.deleted.values())

    def violations(self, rules: Iterable[str]) -> dict[str, int]:
        """Return rule -> how often the log breaks it, at least 0."""
        return {rule: abs(getattr(self, rule)) for rule in rules}


@dataclass(frozen=True, slots=True)
class Contradiction:
    """The offsets of one log that have two different records.

    `offsets` is their number, `first_offset` the lowest, and `differing` the columns of COMPARED that differ there.
    `other` is the highest part among the records at that offset.
    """

    partition: int
    offsets: int
    first_offset: int
    differing: tuple[str, ...]
    other: int = CANDIDATE

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Contradiction:
        """Read a row of contradictions.first_by_log."""
        first = row["first"]
        differing = tuple(name for name in COMPARED if first[name])
        return cls(row[PARTITION], row["offsets"], first[OFFSET], differing, first["part"])

    @property
    def difference(self) -> str:
        """Return `key differs`, or `key, value and headers differ`."""
        *first_columns, last_column = self.differing
        subject = f"{', '.join(first_columns)} and {last_column}" if first_columns else last_column
        return f"{subject} {'differ' if first_columns or last_column == HEADERS else 'differs'}"

    @property
    def text(self) -> str:
        """Return the finding: the number of offsets, and the problem at the first."""
        number = "1 offset has" if self.offsets == 1 else f"{self.offsets} offsets have"
        return f"{number} two different records, the lowest is {self.first_offset}: {self.difference}"

    def as_json(self) -> dict[str, JsonValue]:
        """Return the finding for `cleantail check`. It contains no key or value of a record."""
        return {PARTITION: self.partition, "offsets": self.offsets, "text": self.text}


def refusal(contradictions: Sequence[Contradiction], files: Iterable[Path]) -> str:
    """Return why ingestion appends nothing.

    `contradictions`: one for each log. `files`: those with a record at the lowest offset of the first log.
    """
    first, total = contradictions[0], sum(c.offsets for c in contradictions)
    position = f"partition {first.partition}, offset {first.first_offset}"
    logs = f" in {counted(len(contradictions), 'partition')}" if len(contradictions) > 1 else ""
    count_text = f" ({total} such offsets{logs} in all)" if total > 1 else ""
    fact = f"{OTHERS[first.other]}: {first.difference}{count_text}; nothing was appended"
    return (
        f"{', '.join(str(file) for file in files)}: {position}: {fact}. "
        "An offset has one record. Was the topic recreated, so that its offsets begin again, or is this another "
        'topic\'s file? See "Two different records at one offset" in docs/operations.md'
    )
