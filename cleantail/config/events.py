"""Says what an alert can be about: declared once for the configuration, the rules and the reference."""

from __future__ import annotations

from enum import StrEnum


class Event(StrEnum):
    """The word that YAML uses and messages carry."""

    CHECK_FAILED = "check_failed"
    RUN_FAILED = "run_failed"
    DEADLINE_MISSED = "deadline_missed"
    QUARANTINED = "partition_quarantined"
    HOLD_CAP = "hold_cap_reached"
    ERASURE = "erasure_overdue"
    APPROVAL = "approval_waits"
    GAP = "source_gap"
    RECONCILE = "reconcile_needed"
    REWRITTEN = "history_rewritten"


MEANING = {
    Event.CHECK_FAILED: "a check is red, and partitions are held back",
    Event.RUN_FAILED: "a task failed for another reason than a red check, crashed or was lost",
    Event.DEADLINE_MISSED: (
        "dirty records had passed max.compaction.lag.ms when a run began, and it did not clean them, or they had when "
        "the scheduled run before it was to begin"
    ),
    Event.QUARANTINED: "a partition is in quarantine",
    Event.HOLD_CAP: "tombstones went that a registered reader had not read",
    Event.APPROVAL: "a round waits for somebody's approval",
    Event.GAP: (
        "records had gone from Kafka before they were read, a source table was changed, or records came that the table "
        "cannot hold, and ingestion went on behind them; over after a day"
    ),
    Event.RECONCILE: (
        "the broker's cleaner may have removed deletions before they were read, so that deleted keys are alive here; "
        "over when a reconciliation is published"
    ),
    Event.REWRITTEN: (
        "another program took the last round or the last ingestion out of the table's history (a rollback, or CREATE "
        "OR REPLACE TABLE): logs are cleaned from their starts; over after a day"
    ),
    Event.ERASURE: "a tombstone is still there cleantail.erasure.grace.ms after it was due",
}
"""Event -> when it occurs."""
