"""A sample of the records that a round removes, as the evidence keeps it: where they are, never what they hold.

The evidence outlives the records. Who has to see them reads them from the table's snapshots by their offsets
(`cleantail.lake.records.shown_records`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cleantail.codec import Codec
from cleantail.rounds.evidence_row import EvidenceRow


@dataclass(frozen=True, slots=True)
class RemovedRecord:
    """Describes a record that a round removes, and the offset of the one of its key that stays in its log: None where
    none is."""

    partition: int
    offset: int
    kept_offset: int | None


@dataclass(frozen=True, slots=True)
class SampledLog:
    """Describes the sample of one log in one round. `base_snapshot_id`: what the round has read, with the records that
    it removes; `head_snapshot_id`: what it would publish. Both are 0 where nobody has written them down."""

    base_snapshot_id: int = 0
    head_snapshot_id: int = 0
    records: tuple[RemovedRecord, ...] = ()


NOT_SAMPLED = SampledLog()
_SAMPLE_JSON: Codec[tuple[tuple[int, int | None], ...]] = Codec(tuple[tuple[int, int | None], ...])
"""The column `sample` of the evidence: offset and kept offset of each sampled record of the row's log."""


def sampled_log(row: EvidenceRow) -> SampledLog:
    """Parses the sample of a row of the evidence; earlier versions have written none."""
    pairs = _SAMPLE_JSON.value(row.get("sample") or "[]", "column sample of the evidence")
    records = tuple(RemovedRecord(row["partition"], offset, kept_offset) for offset, kept_offset in pairs)
    return SampledLog(row.get("base_snapshot_id") or 0, row.get("head_snapshot_id") or 0, records)


def sample_column(sample: Iterable[RemovedRecord], partition: int) -> str:
    """Returns what `sampled_log` parses, of one log."""
    return _SAMPLE_JSON.text(tuple((r.offset, r.kept_offset) for r in sample if r.partition == partition))
