"""Says what every round must have kept, by the measure that counts violations (cleantail.log.log_measure). Pure.

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


def rule_text(measure: str) -> str:
    """Returns the rule whose violations a measure counts."""
    return RULES.get(measure) or WARNINGS[measure]


def severity_of(measure: str) -> str:
    """Returns Great Expectations' word: `critical` holds the log back, `warning` is only reported."""
    return "critical" if measure in RULES else "warning"
