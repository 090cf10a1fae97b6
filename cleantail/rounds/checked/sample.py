"""Where the records are that a person may want to see of a round: snapshots and offsets, out of the evidence. Pure.

The evidence outlives the records, so it says where they are and never what they hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Going:
    """A record that a round removes, and the offset of the one of its key that stays in its log: None where none is."""

    partition: int
    offset: int
    kept_offset: int | None

    def as_json(self) -> dict[str, int | None]:
        return {"partition": self.partition, "offset": self.offset, "kept_offset": self.kept_offset}


@dataclass(frozen=True, slots=True)
class Places:
    """Of one log in one round. `base_snapshot_id`: what the round has read, with the records that it removes;
    `head_snapshot_id`: what it would publish. 0 where nobody has written it down."""

    base_snapshot_id: int = 0
    head_snapshot_id: int = 0
    sample: tuple[Going, ...] = ()


NOWHERE = Places()


def places_of(row: Mapping[str, Any]) -> Places:
    """Of a row of the evidence; earlier versions have written no sample."""
    pairs = json.loads(row.get("sample") or "[]")
    sample = tuple(Going(row["partition"], offset, kept_offset) for offset, kept_offset in pairs)
    return Places(row.get("base_snapshot_id") or 0, row.get("head_snapshot_id") or 0, sample)


def sample_column(sample: list[dict[str, Any]], partition: int) -> str:
    """What places_of reads: JSON, [offset, kept offset] of each sampled record of the log."""
    return json.dumps([[s["offset"], s["kept_offset"]] for s in sample if s["partition"] == partition])
