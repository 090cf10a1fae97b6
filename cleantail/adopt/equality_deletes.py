"""Which records an equality delete removes, by Iceberg's specification, and how tasks share the search for them. Pure.

A sink in upsert mode (Flink's, Connect's, Debezium's) writes the keys of the records that it replaces, without their
positions. Such a delete file removes a record if all of this holds:

1. The record's data file has a lower data sequence number. Records of the delete's own commit stay.
2. The data file has the same spec and partition. A delete file whose spec has no partitions applies to all data files.
3. The record equals a row of the delete file in every column of its equality field ids. Null equals null.

Bounds of columns can show, without a read, that no record is equal (`may_match`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cleantail.codec import Codec

WHOLE_KINDS = ("int", "long", "date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")
"""Types whose bounds are little-endian whole numbers. Shorter bounds were written before a type promotion."""
TEXT_KINDS = ("string", "binary")
"""Types whose bounds are ordered bytes. Bounds may be truncated; a truncated upper bound is rounded up."""
EVERYWHERE = -1
"""The scope of a delete file whose spec has no partitions."""


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Bounds of a column in a file, serialized by the specification, and its number of nulls; None if unknown."""

    low: bytes | None = None
    high: bytes | None = None
    nulls: int | None = None


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file, or an equality delete file that compares the columns `field_ids`.

    `scope` numbers its spec and partition. `bounds` and `constants` are by field id, of compared columns; `constants`
    are the values that the partition of a data file gives them.
    """

    path: str
    scope: int
    sequence_number: int
    records: int
    field_ids: tuple[int, ...] = ()
    bounds: Mapping[int, ColumnBounds] = field(default_factory=dict)
    constants: tuple[tuple[int, Any], ...] = ()


def applies(delete: TableFile, file: TableFile) -> bool:
    """Return whether an equality delete applies to a data file (rules 1 and 2)."""
    return delete.sequence_number > file.sequence_number and delete.scope in (file.scope, EVERYWHERE)


def may_match(delete: TableFile, file: TableFile, kinds: Mapping[int, str]) -> bool:
    """Return whether the bounds of all compared columns allow an equal row. `kinds`: field id -> Iceberg type."""
    return all(
        _may_equal(delete.bounds.get(number), file.bounds.get(number), kinds[number]) for number in delete.field_ids
    )


def _may_equal(one: ColumnBounds | None, other: ColumnBounds | None, kind: str) -> bool:
    if one is None or other is None or one.nulls is None or other.nulls is None or (one.nulls and other.nulls):
        return True
    ends = (one.low, one.high, other.low, other.high)
    if None in ends or kind not in (*WHOLE_KINDS, *TEXT_KINDS):
        return True
    low, high, other_low, other_high = (_sortable(end or b"", kind) for end in ends)
    return low <= other_high and other_low <= high


def _sortable(bound: bytes, kind: str) -> tuple[int, bytes]:
    return (int.from_bytes(bound, "little", signed=True), b"") if kind in WHOLE_KINDS else (0, bound)


@dataclass(frozen=True, slots=True)
class Search:
    """What one task reads: indexes of data files, and of the equality delete files that apply to any of them."""

    files: tuple[int, ...]
    deletes: tuple[int, ...]


MOST_PAIRS = 2_000_000
"""Up to this number of pairs (data file, delete file), the plan compares their bounds. For more pairs, reading the
files costs less."""


def searches(
    files: Sequence[TableFile], deletes: Sequence[TableFile], kinds: Mapping[int, str], share: int
) -> list[Search]:
    """Return the tasks. Each task reads data files of about `share` records, and their delete files once.

    A data file to which no delete can apply is in no task.
    """
    of_scope: dict[int, list[int]] = {}
    for number, delete in enumerate(deletes):
        of_scope.setdefault(delete.scope, []).append(number)
    everywhere = of_scope.get(EVERYWHERE, [])
    candidates = {n: of_scope.get(file.scope, []) + everywhere for n, file in enumerate(files)}
    by_bounds = sum(map(len, candidates.values())) <= MOST_PAIRS
    deletes_by_file: dict[int, list[int]] = {}
    for number, of_file in candidates.items():
        fitting = [
            d
            for d in of_file
            if applies(deletes[d], files[number]) and (not by_bounds or may_match(deletes[d], files[number], kinds))
        ]
        if fitting:
            deletes_by_file[number] = fitting
    return [
        Search(tuple(pack), tuple(sorted({d for n in pack for d in deletes_by_file[n]})))
        for pack in _packs(files, deletes_by_file, share)
    ]


def _packs(files: Sequence[TableFile], numbers: Iterable[int], share: int) -> list[list[int]]:
    """Group files in the order of scopes: files of one scope have the same delete files."""
    packs, room = list[list[int]](), 0
    for number in sorted(numbers, key=lambda n: (files[n].scope, files[n].sequence_number, files[n].path)):
        if not packs or files[number].records > room:
            packs.append([])
            room = share
        packs[-1].append(number)
        room -= files[number].records
    return packs


@dataclass(frozen=True, slots=True)
class Converted:
    """What a conversion did, or would do: delete files that it replaces, and data files that get deletes of their own.

    `hidden_records`: records that the deletes hide, by Cleantail's count and Spark's. `live_records`: records that a
    reader sees, before and after.
    """

    equality_deletes: int = 0
    shared_position_deletes: int = 0
    hidden_records: int = 0
    data_files: int = 0
    live_records: int = 0
    snapshot_id: int | None = None
    ok: bool = True


CONVERTED_JSON: Codec[Converted] = Codec(Converted)
