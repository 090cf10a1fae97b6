"""Offsets of an adopted table that has none: made of Iceberg's row lineage (format version 3). Pure.

The specification gives each record an id, and the sequence number of the commit that wrote or changed it last. Readers
inherit both from the metadata of the data file, or find them in the file where a rewrite has kept them. So:

1. A record's offset is its sequence number, then its row id, as the bits of one whole number. No two records have the
   same, and what is committed later is higher.
2. A rewrite that keeps the lineage, as the specification asks, keeps the offsets, wherever the records lie then. One
   that does not makes new records of them: they are above the clean point, and a round looks at them again.
3. Offsets have gaps. The limits are 16.7 million commits and 549 billion row ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleantail.errors import TableError

if TYPE_CHECKING:
    import pyarrow as pa

ROW_ID, LAST_UPDATED = "_row_id", "_last_updated_sequence_number"
"""Names of the columns of row lineage, in Spark and in rewritten files."""
LINEAGE_IDS = {ROW_ID: 2_147_483_540, LAST_UPDATED: 2_147_483_539}
"""The field ids that Iceberg's specification reserves for them."""
ROW_ID_BITS = 39
MOST_COMMITS = (1 << 63 - ROW_ID_BITS) - 2
"""The highest sequence number: an offset is below the highest number that Kafka has for one."""
OFFSET_SQL = f"(shiftleft(`{LAST_UPDATED}`, {ROW_ID_BITS}) | `{ROW_ID}`)"
"""The offset as Spark SQL over a table of format version 3."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """What the records of a data file inherit: the row id of its first record (None where no commit has assigned one),
    and the sequence number of the commit that added the file."""

    first_row_id: int | None
    updated: int

    def or_earlier(self, other: Lineage | None) -> Lineage:
        """Returns the earlier of two registrations of one file."""
        if other is None:
            return self
        ids = [each.first_row_id for each in (self, other) if each.first_row_id is not None]
        return Lineage(min(ids, default=None), min(self.updated, other.updated))


@dataclass(frozen=True, slots=True)
class Span:
    """The lowest and the highest number that a column of lineage has in a file, and whether some records have none."""

    low: int
    high: int
    has_nulls: bool


Spans = tuple[Span | None, Span | None]
"""What a file has itself of row ids and of sequence numbers; None for a column that it has not."""


def spans_of_metrics(nulls: Mapping[int, int], lower: Mapping[int, bytes], upper: Mapping[int, bytes]) -> Spans | None:
    """Returns the spans by what a manifest says of a file's columns, by field id; None where it has nothing of those of
    lineage. That does not say that the file has none: writers may leave their metrics out."""
    ids = LINEAGE_IDS[ROW_ID], LINEAGE_IDS[LAST_UPDATED]
    if not all(number in nulls and number in lower and number in upper for number in ids):
        return None
    row_ids, updated = (Span(_long(lower[n]), _long(upper[n]), bool(nulls[n])) for n in ids)
    return row_ids, updated


def _long(bound: bytes) -> int:
    """Returns the number of a bound in Iceberg's single-value serialization: the lowest byte is the first."""
    return int.from_bytes(bound, "little", signed=True)


def require_row_ids(lineage: Lineage | None, path: str) -> Lineage:
    """Returns the lineage. Raises TableError where the file's records have no row ids."""
    if lineage is None or lineage.first_row_id is None:
        raise TableError(
            f"{path} has no row ids, and its records have no other offset. They are of Iceberg's format version 3, and "
            "assigned by the first commit of it: `cleantail adopt TABLE --upgrade` makes one"
        )
    return lineage


def offset_of(updated: int, row_id: int, path: str) -> int:
    """Returns the offset of a record. Raises TableError beyond the limits."""
    if updated > MOST_COMMITS or row_id >> ROW_ID_BITS:
        raise TableError(
            f"{path} has sequence number {updated} and row id {row_id}: without a column of offsets they can be at "
            f"most {MOST_COMMITS} and {(1 << ROW_ID_BITS) - 1}. Copy the records into a new table"
        )
    return updated << ROW_ID_BITS | row_id


def offset_range(records: int, lineage: Lineage, path: str, spans: Spans = (None, None)) -> tuple[int, int]:
    """Returns bounds of a file's offsets, both inclusive. Raises TableError beyond the limits, and without row ids."""
    row_ids, updated = spans
    first = require_row_ids(lineage, path).first_row_id or 0
    ids = _widened(row_ids, first, first + max(records - 1, 0))
    changes = _widened(updated, lineage.updated, lineage.updated)
    return offset_of(changes[0], ids[0], path), offset_of(changes[1], ids[1], path)


def _widened(span: Span | None, low: int, high: int) -> tuple[int, int]:
    """Returns the range of what records have themselves, and of what those inherit that have nothing."""
    if span is None:
        return low, high
    return (min(span.low, low), max(span.high, high)) if span.has_nulls else (span.low, span.high)


def record_offsets(
    positions: range, lineage: Lineage, path: str, row_ids: pa.Array | None = None, updated: pa.Array | None = None
) -> pa.Array:
    """Returns the offsets of a file's records at these positions. `row_ids`, `updated`: the columns that the file has
    itself. Raises TableError as offset_range does."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    first = require_row_ids(lineage, path).first_row_id or 0
    inherited = pa.array(np.arange(first + positions.start, first + positions.stop, dtype=np.int64))
    ids = inherited if row_ids is None else pc.coalesce(row_ids, inherited)
    changes = pa.array(np.full(len(positions), lineage.updated, np.int64))
    changes = changes if updated is None else pc.coalesce(updated, changes)
    if not len(positions):
        return ids
    offset_of(pc.max(changes).as_py(), pc.max(ids).as_py(), path)
    offsets: pa.Array = pc.bit_wise_or(pc.shift_left(changes, ROW_ID_BITS), ids)
    return offsets
