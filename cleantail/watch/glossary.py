"""Words in texts for users that Kafka, Iceberg and Airflow do not use. The UI and docs/glossary.md show them."""

from __future__ import annotations

GLOSSARY = {
    "run": "A DAG run, or a command. It may have no round, or several.",
    "round": "One compaction, expiry or reconciliation of a topic. It is made on a branch, checked, then published.",
    "station": "A step of a run, such as evaluate, compact, check or publish.",
    "log": "One partition of one topic.",
    "first dirty offset": "A log is clean below this offset. It is stored as the checkpoint, as in Kafka's cleaner.",
    "first uncleanable offset": "From here on a round changes nothing: records too young, or in the active segment.",
    "dirty ratio": "Cleanable bytes, as a share of the clean and the cleanable bytes of a log. As in Kafka.",
    "winner": "The record of a key that compaction keeps: by default the one with the highest offset.",
    "horizon": "When a tombstone may be removed: delete.retention.ms after the first round that kept it.",
    "expiry": "The round that removes tombstones past their horizon.",
    "reconciliation": "The round that removes keys which were deleted in Kafka but are alive in the table.",
    "reader": "A registered consumer of the table. Tombstones wait until it has read them.",
    "guard": "A tombstone past its horizon that stays, because it still beats a record that no round has cleaned.",
    "blocked": "A partition is not published after a failed check or a rejection. Other partitions are.",
    "resolved": "The problem that an alert reported is over.",
    "evidence": "The table that records what every round checked, removed and published.",
    "reclaim": "The rewrite of files with many deleted records, and the removal of old snapshots and orphan files.",
    "file mark": "A table property for each ingested file, so that no file is ingested twice.",
    "group, pack": "Topics that share a DAG; those of them that share a Spark application in a run.",
}
"""Word -> its meaning, in at most 20 lines."""
