"""Recognize the commit of a checked round on `main`, and make its result and its counts. Pure.

The counts are Kafka's CleanerStats of the last compaction, in a table property, for the metrics alone. The commit that
publishes the round sets this property, so that the counts outlive every process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cleantail.codec import Codec
from cleantail.log.partition_state import PartitionState
from cleantail.log.rules import LogMeasure
from cleantail.log.task_shares import buffer_percent
from cleantail.rounds.checked_round import EXPIRED, CheckedRound, RoundResult, StagedUnit
from cleantail.rounds.commit_summaries import HEADS, OPERATION, ROUND

PROPERTY_COMPACTION = "cleantail.last.compaction"
COUNTS = ("records_read", "records_kept", "map_records", "map_keys")
"""Measures of a log by check_quality: records in [log start, end) before and after, records in [first dirty, end), and
their distinct keys."""


@dataclass(frozen=True, slots=True)
class LastCompaction:
    """The last compaction: `clean_ms` of the slowest work unit and `buffer_percent` of the fullest map. The rest are
    sums over the logs that were compacted and checked, published or not.

    Bytes are bytes of data files x share of the records (semantics.md 3.1). A compaction copies no records, so
    "written" counts kept records. "map" counts the dirty part, whose keys are in the offset map.
    """

    clean_ms: int
    buffer_percent: float
    bytes_read: int
    bytes_written: int
    messages_read: int
    messages_written: int
    map_bytes_read: int
    map_messages_read: int
    invalid_messages_read: int

    @property
    def recopy_percent(self) -> float:
        """Return kept bytes in percent of read bytes, 0 without read bytes."""
        return 100 * self.bytes_written / self.bytes_read if self.bytes_read else 0.0

    @classmethod
    def of_round(cls, units: Sequence[StagedUnit], measures: Iterable[LogMeasure]) -> LastCompaction | None:
        """Return the counts of a round. None if only retention was due, which is not the cleaner's work in Kafka, or if
        counts are missing."""
        works = {w.partition: w for unit in units for w in unit.partitions if w.first_dirty_offset < w.end_offset}
        logs = [m for m in measures if m.partition in works]
        slots = [unit.map_slots for unit in units if unit.map_slots is not None]
        if not logs or len(slots) < len(units) or any(m.map_keys is None for m in logs):
            return None
        read = sum(w.read_bytes for w in works.values())
        hidden = sum(unit.counts.hidden_bytes.get(p, 0) for unit in units for p in works)
        return cls(
            clean_ms=max(unit.clean_ms or 0 for unit in units),
            buffer_percent=buffer_percent(max(m.map_keys or 0 for m in logs), max(slots)),
            bytes_read=read,
            bytes_written=max(read - hidden, 0),
            messages_read=sum(m.records_read or 0 for m in logs),
            messages_written=sum(m.records_kept or 0 for m in logs),
            map_bytes_read=sum(w.dirty_bytes for w in works.values()),
            map_messages_read=sum(m.map_records or 0 for m in logs),
            invalid_messages_read=sum(m.deleted.get("invalid", 0) for m in logs),
        )


LAST_COMPACTION_JSON: Codec[LastCompaction] = Codec(LastCompaction)


def identity_of(checked: CheckedRound) -> dict[str, str]:
    """Return the entries of a snapshot's summary that identify a round."""
    return {OPERATION: checked.kind, ROUND: checked.round, HEADS: ",".join(map(str, checked.heads))}


def publication_of(checked: CheckedRound, snapshot_id: int, states: Mapping[int, PartitionState]) -> RoundResult:
    """Return the result of a published round. `states` has all logs of the topic."""
    green = set(checked.green)
    works = [work for _, work in checked.works() if work.partition in green]
    resting = {partition for partition, state in states.items() if state.quarantine}
    left_behind = (reader for unit in checked.units for reader in unit.left_behind)
    expired = (m.deleted.get(EXPIRED, 0) for m in checked.measures if m.partition in green)
    return RoundResult.of_check(
        checked,
        published=tuple(checked.green),
        snapshot_id=snapshot_id,
        checkpoints={p: state.checkpoint for p, state in sorted(states.items()) if state.checkpoint is not None},
        retained=tuple(work.partition for work in works if work.only_retention and work.partition in resting),
        ends={work.partition: work.end_offset for work in works},
        left_behind=tuple(reader for reader in left_behind if reader.partition in green),
        expired=sum(expired),
    )


def quarantine_of(checked: CheckedRound, properties: Mapping[str, str]) -> RoundResult | None:
    """Return the result of a compaction if no log passed and its failed logs are in quarantine, else None.

    `properties`: properties of the table. The commit that writes the quarantine also writes the measures of this
    compaction.
    """
    last = LastCompaction.of_round(checked.units, checked.measures)
    is_last = last is not None and properties.get(PROPERTY_COMPACTION) == LAST_COMPACTION_JSON.text(last)
    return RoundResult.of_check(checked) if is_last and not checked.green else None
