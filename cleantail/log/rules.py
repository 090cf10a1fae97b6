"""Says what every round must have kept, by the measure that counts violations (cleantail.log.rules). Pure.

1. Each measure of RULES is 0 in a log whose round is right; one that is not holds that log back alone. A round is
   judged by the rules that its kind can break.
2. A round takes nothing that readers count on (semantics.md 1.4.2, 1.5, 1.6): `missing_winners`, `foreign_records`,
   `data_files_changed`, `head_changed` and `early_tombstones`.
3. A round leaves nothing that was to go: `duplicate_keys` (semantics.md 1.6), `overdue_tombstones` (1.5, 3.4),
   `invalid_left` (3.7), `resurrected` (2, hazard 2) and `gone_at_source_left` (3.12).
4. A round does not decide between records that contradict each other: `contradicting_offsets` (semantics.md 3.5).
5. A round counts all that it removes, and once: `imbalance`.
6. Each measure of WARNINGS is about the records that came in (semantics.md 2, hazard 4): a violation is reported and
   holds nothing back.
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
RULES = {
    "duplicate_keys": "keys are unique below the clean point",
    "missing_winners": "every key of the input still has its winner",
    "foreign_records": "surviving offsets are a subset of the input's",
    "data_files_changed": "order and values are untouched: no data file was written or replaced",
    "head_changed": "no record at or above the clean point changed",
    "early_tombstones": "no tombstone left before its horizon",
    "overdue_tombstones": "no tombstone is left past its horizon",
    "invalid_left": "no record without a key is left below the clean point",
    "resurrected": "no record older than a remembered deletion is left",
    "contradicting_offsets": "no offset has two different records: a copy is equal in key, value, timestamp, headers",
    "gone_at_source_left": "no key that is gone at the source is left by a reconciliation",
    "imbalance": "records in - records removed, each counted under one reason = records out",
}
"""Measure -> the rule whose violations it counts."""
WARNINGS = {
    "malformed_versions": "version headers have 8 bytes; others count as missing",
    "future_timestamps": "no timestamp is beyond message.timestamp.after.max.ms; others count as no version",
}
"""Measure -> what new records should keep to (semantics.md 2)."""


@dataclass(frozen=True, slots=True)
class LogMeasure:
    """Holds the measures of one log: `_in` counts what the round read, `_out` what is on the branch that it wrote. The
    numbers are those of the module docstring."""

    partition: int
    # 1. all records, and those that go
    records_in: int = 0
    records_out: int = 0
    tombstones_in: int = 0
    tombstones_out: int = 0
    deleted: Mapping[str, int] = field(default_factory=dict)
    # 2. the records that the round looked at, as Kafka counts them
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
    imbalance: int = 0
    # 4. what is wrong with records that came in
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
        """Returns how many records the round removes from the log, whatever the reason."""
        return sum(self.deleted.values())

    def violations(self, rules: Iterable[str]) -> dict[str, int]:
        """Returns rule -> how often the log breaks it; none of these numbers is below 0."""
        return {rule: abs(getattr(self, rule)) for rule in rules}


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


def rule_text(measure: str) -> str:
    """Returns the rule whose violations a measure counts."""
    return RULES.get(measure) or WARNINGS[measure]


def severity_of(measure: str) -> str:
    """Returns Great Expectations' word: `critical` holds the log back, `warning` is only reported."""
    return "critical" if measure in RULES else "warning"
