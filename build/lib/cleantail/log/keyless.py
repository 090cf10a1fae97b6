"""Records without a key: how many of them a log holds by its files' metadata, and what becomes of them.

Compaction needs keys (semantics.md 3.7). The config `cleantail.keyless.policy` decides:

1. With `fail`, the default, a log that has a record without a key below the end of a round is held back alone. Nothing
   of it is changed, and the other logs of the topic are published.
2. With `quarantine` the round moves those records to a side table.
3. With `drop` the round drops and counts them, as Kafka does.

The metadata of a file counts the keys that were null when it was written. It does not say which of its records a delete
file hides, so the number of those that are left has a lower and an upper limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cleantail.config.settings.kafka_configs import KafkaConfigs
from cleantail.log.segments import DataFile

KEYLESS_RULE = "invalid_left"
"""The rule of cleantail.log.rules that such a log breaks."""
POLICY = "cleantail.keyless.policy"

_WILL = {"fail": "hold this partition back", "quarantine": "move them to the side table", "drop": "drop them"}


@dataclass(frozen=True, slots=True)
class KeylessRecords:
    """Says how many records without a key there are: files tell how many were written, not which of them are
    deleted."""

    at_least: int = 0
    at_most: int = 0

    def __str__(self) -> str:
        count = str(self.at_most) if self.at_least == self.at_most else f"up to {self.at_most}"
        return f"{count} {'record' if self.at_most == 1 else 'records'} without a key"


def keyless_between(files: Iterable[DataFile], start_offset: int, end_offset: int) -> KeylessRecords:
    """Returns how many records without a key there are with offsets in [start, end).

    All or none of the keyless records of a file that reaches beyond the interval may lie inside: they count for the
    upper limit only.
    """
    at_least = at_most = 0
    for file in files:
        if file.lower_offset < end_offset and file.upper_offset >= start_offset:
            inside = file.lower_offset >= start_offset and file.upper_offset < end_offset
            at_least += max(file.null_keys - file.deleted_records, 0) if inside else 0
            at_most += min(file.null_keys, file.live_records)
    return KeylessRecords(at_least, at_most)


def keyless_note(below: KeylessRecords, above: KeylessRecords, configs: KafkaConfigs) -> str:
    """Returns what will become of the records without a key, and by which knob.

    `below` are those in the part of the log that can be cleaned now, `above` those in the rest of its dirty part. The
    note is empty where there are none, and where nothing is compacted.
    """
    policy = configs.cleantail_keyless_policy
    records, round_text = (below, "the next round") if below.at_most else (above, "the round that reaches them")
    if not (records.at_most and configs.compacts):
        return ""
    return f"{round_text} {'will' if records.at_least else 'may'} {_WILL[policy]}: {records} ({POLICY}: {policy})"


def held_reason(count: int, first_offset: int) -> str:
    """Returns why a log is held back, for its quarantine: `1 record without a key, the first at offset 7; …`."""
    return f"{KeylessRecords(count, count)}, the first at offset {first_offset}; {POLICY} is fail"
