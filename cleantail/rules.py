"""What every round must have kept, by the measure that counts violations (semantics.md 1.4 to 1.6)."""

RULES = {
    "duplicate_keys": "keys are unique below the clean point",
    "missing_winners": "every key of the input still has its winner",
    "foreign_records": "surviving offsets are a subset of the input's",
    "data_files_changed": "order and values are untouched: no data file was written or replaced",
    "head_changed": "no record at or above the clean point changed",
    "early_tombstones": "no tombstone left before its horizon",
    "overdue_tombstones": "no tombstone is left past its horizon",
    "invalid_left": "no record without a key is left below the clean point",
    "imbalance": "row balance = in - superseded - expired - invalid - past retention",
}
"""Measure -> the rule that it counts violations of; each must be 0 in every log."""
