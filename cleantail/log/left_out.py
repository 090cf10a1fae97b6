"""What ingestions have left out, because the table cannot hold it (cleantail.config.unholdable). Pure.

The commit that goes on behind such records says so in a table property. Status, alerts and evidence read it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from cleantail.codec import Codec
from cleantail.config.unholdable import POLICY, TEXTS, Reason
from cleantail.human import counted

PROPERTY_LEFT_OUT = "cleantail.unholdable"
"""Table property: what was left out, as JSON, oldest first."""
LEFT_OUT_KEPT = 200
"""The number of the newest entries that the property keeps; the evidence has all of them."""
DELETED_REASON = "unholdable"
"""The reason under which the evidence and the metrics count them."""


@dataclass(frozen=True, slots=True, order=True)
class LeftOut:
    """Describes records of a partition, between two offsets, that a table cannot hold for one reason.

    `policy` is what became of them, `at_ms` when they were read (Unix ms).
    """

    partition: int
    first_offset: int
    last_offset: int
    records: int
    reason: Reason
    policy: Literal["quarantine", "drop"]
    at_ms: int

    @property
    def text(self) -> str:
        """Returns what was left out, for a sentence."""
        became = "moved to the side table" if self.policy == "quarantine" else "dropped"
        offsets = f"offset {self.first_offset}"
        if self.last_offset > self.first_offset:
            offsets = f"offsets {self.first_offset} to {self.last_offset}"
        return (
            f"partition {self.partition}: {counted(self.records, 'record')} that the table cannot hold ({offsets}: "
            f"{TEXTS[self.reason]}), {became}"
        )

    @property
    def subject(self) -> str:
        """Returns what an alert says that it is about."""
        return f"partition {self.partition}"

    @property
    def occurrence(self) -> str:
        """Returns what tells these from the next of their partition."""
        return f"{self.reason} to {self.last_offset}"

    @property
    def config(self) -> str:
        """Returns what let the ingestion go on."""
        return f"{POLICY}: {self.policy}"


_LEFT_OUT_JSON: Codec[tuple[LeftOut, ...]] = Codec(tuple[LeftOut, ...])


def left_out_of(properties: Mapping[str, str], table: str) -> tuple[LeftOut, ...]:
    """Returns what a table's properties say was left out, oldest first. Raises TableError."""
    text = properties.get(PROPERTY_LEFT_OUT)
    return _LEFT_OUT_JSON.value(text, f"{table}: property {PROPERTY_LEFT_OUT}") if text else ()


def with_left_out(properties: Mapping[str, str], table: str, new: Iterable[LeftOut]) -> dict[str, str]:
    """Returns the property as it is after an ingestion, which may leave out again what a rollback has undone; nothing
    if it has left out nothing."""
    new = tuple(new)
    if not new:
        return {}
    again = {(e.partition, e.first_offset, e.last_offset, e.reason) for e in new}
    before = left_out_of(properties, table)
    kept = [e for e in before if (e.partition, e.first_offset, e.last_offset, e.reason) not in again]
    return {PROPERTY_LEFT_OUT: _LEFT_OUT_JSON.text((*kept, *new)[-LEFT_OUT_KEPT:])}
