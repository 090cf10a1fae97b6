"""Says which records an equality delete removes, by Iceberg's specification, and how finding them is dealt out. Pure.

A sink in upsert mode (Flink's, Connect's, Debezium's) writes the keys of what it replaces, and does not look where the
old records lie. Such a delete file removes a record when all of this holds:

1. The record's data file has a lower data sequence number: what comes in one commit with the delete stays.
2. The data file is of the same partition by the same spec, or the delete file's spec has no partitions: then it is of
   all data files.
3. The record is equal to a row of the delete file in every column of its equality field ids; null equals null.

Bounds of columns tell without reading that no record can be equal (`may_match`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cleantail.codec import Codec

WHOLE_KINDS = ("int", "long", "date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")
"""Types whose bounds are whole numbers, the lowest byte first: shorter ones were written before a promotion."""
TEXT_KINDS = ("string", "binary")
"""Types whose bounds are bytes, in their order; they may be cut short, the upper one is then at least as high."""
EVERYWHERE = -1
"""The scope of a delete file whose spec has no partitions."""


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Says what metadata say of a column of a file: bounds as the specification serializes them, and how many nulls it
    has; None where they do not say."""

    low: bytes | None = None
    high: bytes | None = None
    nulls: int | None = None


@dataclass(frozen=True, slots=True)
class TableFile:
    """Describes a data file, or an equality delete file, of which `field_ids` are the columns that are compared.

    `scope` numbers its spec and partition. `bounds` are by field id, of columns that deletes compare; `constants`, too:
    what the partition of a data file says of them.
    """

    path: str
    scope: int
    sequence_number: int
    records: int
    field_ids: tuple[int, ...] = ()
    bounds: Mapping[int, ColumnBounds] = field(default_factory=dict)
    constants: tuple[tuple[int, Any], ...] = ()


def applies(delete: TableFile, file: TableFile) -> bool:
    """Returns whether an equality delete is of a data file (rules 1 and 2)."""
    return delete.sequence_number > file.sequence_number and delete.scope in (file.scope, EVERYWHERE)


def may_match(delete: TableFile, file: TableFile, kinds: Mapping[int, str]) -> bool:
    """Returns whether the files can have an equal row by the bounds of every compared column. `kinds`: Iceberg's names
    of the columns' types, by field id."""
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
    """Says what one task reads: indexes of data files, and of the equality delete files that are of any of them."""

    files: tuple[int, ...]
    deletes: tuple[int, ...]


MOST_PAIRS = 2_000_000
"""Pairs of a data file and a delete file whose bounds are compared at most: beyond it reading costs less than planning.
"""


def searches(
    files: Sequence[TableFile], deletes: Sequence[TableFile], kinds: Mapping[int, str], share: int
) -> list[Search]:
    """Returns the tasks: each goes through data files of about `share` records, and reads the delete files of those
    once. A data file of which no delete file can be is in none."""
    of_scope: dict[int, list[int]] = {}
    for number, delete in enumerate(deletes):
        of_scope.setdefault(delete.scope, []).append(number)
    candidates = {n: _deletes_of(file, of_scope) for n, file in enumerate(files)}
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


def _deletes_of(file: TableFile, of_scope: Mapping[int, Sequence[int]]) -> list[int]:
    return [*of_scope.get(file.scope, ()), *of_scope.get(EVERYWHERE, ())]


def _packs(files: Sequence[TableFile], numbers: Iterable[int], share: int) -> list[list[int]]:
    """Deals the files out in the order of scopes: those of one have the same delete files."""
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
    """Says what a conversion has done, or would do: the delete files that go, the records that they hide, counted by
    Cleantail and by Spark alike, and the data files that have delete files of their own instead. `live_records` are
    those that a reader sees, before it and after it."""

    equality_deletes: int = 0
    shared_position_deletes: int = 0
    hidden_records: int = 0
    data_files: int = 0
    live_records: int = 0
    snapshot_id: int | None = None
    ok: bool = True


CONVERTED_JSON: Codec[Converted] = Codec(Converted)
