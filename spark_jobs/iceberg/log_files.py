"""Read the data files of logs and their deletes in tasks: metadata, and a few columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyroaring import BitMap64

from cleantail.config.topic_table import KEY, OFFSET, TOMBSTONE, VALUE
from cleantail.errors import TableError
from cleantail.lake.manifest_entries import open_parquet
from cleantail.lake.metadata_guards import most_delete_bytes
from cleantail.lake.position_deletes import miscounted, positions_of_file, read_vector, vector_name
from cleantail.log.adopted_table import LAST_UPDATED, LINEAGE_IDS, ROW_ID, Lineage, record_offsets
from spark_jobs.iceberg.file_columns import (
    Constants,
    Layout,
    Projection,
    has_offsets,
    note_kind,
    parts_in,
    topic_arrays,
)
from spark_jobs.iceberg.jvm.file_facts import DeletedPositions

BATCH_RECORDS = 1 << 17
CERTAIN_BYTES = 1 << 20
"""Maximum size of values that are always read. For larger values the column `tombstone` may be read instead."""

Deletes = tuple[DeletedPositions, ...]
"""The delete files of one registration of a data file."""


@dataclass(frozen=True, slots=True)
class FileDeletes:
    """The deletes of a data file: `before` and `again` as in LogFile."""

    before: Deletes
    again: tuple[Deletes, ...]


@dataclass(frozen=True, slots=True)
class LogFile:
    """A Parquet file with records of one log, or of several (`log` is None), and its facts in Iceberg's metadata.

    Bounds of offsets are inclusive. Bounds of keys are cut short: the lower one is at most the lowest key, the upper
    one at least the highest. A bound is None if the metadata have none.

    `arrived`: its data sequence number. `first_row_id`: the row id of its first record, or None.
    `updated`: its file sequence number if offsets are made of row lineage, else 0.
    `before` and `after`: its delete files in base and branch. `lost`: the branch no longer has the file.
    `marked`: the column `tombstone` has a value in every record.
    `again`: the delete files of each further registration, if the table names the file more than once. Then `before`
    are those of the last registration, since they apply to all, and `arrived` is that of the first.
    `key_bytes`: compressed size of its keys.
    `constants`: values of the file's partition for columns that the file may lack.
    `piece` of `pieces`: the share of its row groups that this object stands for.
    """

    hash: int
    path: str
    records: int
    log: int | None
    lower_offset: int | None
    upper_offset: int | None
    low_key: bytes | None
    high_key: bytes | None
    null_keys: int | None
    null_values: int | None
    marked: bool
    before: Deletes
    after: Deletes = ()
    lost: bool = False
    arrived: int = 0
    first_row_id: int | None = None
    updated: int = 0
    again: tuple[Deletes, ...] = ()
    key_bytes: int = 0
    row_groups: int = 1
    constants: Constants = ()
    piece: int = 0
    pieces: int = 1
    spec_id: int = 0

    @classmethod
    def without_log(cls, path: str, records: int, **facts: Any) -> Self:
        """Return a file whose records are read regardless of their log: it has no bounds and no hash."""
        nothing = dict.fromkeys(
            ("log", "lower_offset", "upper_offset", "low_key", "high_key", "null_keys", "null_values")
        )
        return cls(hash=0, path=path, records=records, marked=False, **{**nothing, "before": (), **facts})

    def split(self, records: int) -> list[LogFile]:
        """Return pieces of about this number of records, which different tasks can read."""
        pieces = min(self.row_groups, -(-self.records // records))
        return [replace(self, piece=piece, pieces=pieces) for piece in range(pieces)] if pieces > 1 else [self]

    def may_hold(self, low: int, end: int) -> bool:
        inside = self.lower_offset is None or self.lower_offset < end
        return low < end and inside and (self.upper_offset is None or self.upper_offset >= low)

    def may_hold_all(self, offsets: pa.Array) -> bool:
        """Return whether these offsets are all within the file's bounds."""
        if not len(offsets):
            return True
        ends = pc.min_max(offsets)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        below = self.lower_offset is None or self.lower_offset <= low
        return below and (self.upper_offset is None or high <= self.upper_offset)

    def lies_in(self, low: int, end: int) -> bool:
        """Return whether the file's offsets are all in [low, end), by its bounds. False if it has none."""
        return (
            self.lower_offset is not None
            and self.upper_offset is not None
            and low <= self.lower_offset
            and self.upper_offset < end
        )

    def may_hold_keys(self, low: bytes | None, high: bytes | None) -> bool:
        """Return whether the file can have a key in [low, high]. Both are None if the range is empty."""
        if low is None or high is None:
            return False
        return (self.low_key is None or self.low_key <= high) and (self.high_key is None or self.high_key >= low)


def with_branch(base: Iterable[LogFile], branch: Mapping[str, FileDeletes]) -> list[LogFile]:
    """Return the files of the base, each with its deletes on the branch. `branch`: path -> deletes."""
    return [
        replace(file, after=branch[file.path].before) if file.path in branch else replace(file, lost=True)
        for file in base
    ]


def read_deletes_in_task(io: FileIO, deletes: Sequence[DeletedPositions], file: LogFile) -> BitMap64:
    """Return the deleted positions of a file. Raises TableError if their number differs from the metadata's, or if a
    position is behind the file's end."""
    positions = BitMap64()
    for each in deletes:
        found = _positions(io, each, file)
        # position deletes may name a record twice
        is_wrong = len(found) > each.count if each.start is None else len(found) != each.count
        if is_wrong or (found and found.max() >= file.records):
            is_vector = each.start is not None
            where = vector_name(each.path, each.start or 0) if is_vector else f"position delete file {each.path}"
            raise TableError(miscounted(where, len(found), each.count, file.records))
        positions |= found
    return positions


def _positions(io: FileIO, deletes: DeletedPositions, file: LogFile) -> BitMap64:
    if deletes.start is not None:
        return read_vector(io, deletes.path, deletes.start, deletes.length)
    with io.new_input(deletes.path).open() as stream:
        return positions_of_file(stream, file.path, deletes.path, most_delete_bytes(io), file.records)


def all_of(records: int) -> BitMap64:
    return BitMap64(range(records))


def alive(records: int, deleted: BitMap64) -> npt.NDArray[np.bool_]:
    mask = np.ones(records, dtype=np.bool_)
    mask[np.asarray(deleted.to_array(), dtype=np.int64)] = False
    return mask


def column_batches(
    io: FileIO, file: LogFile, layout: Layout, columns: Sequence[str]
) -> Iterator[tuple[int, dict[str, pa.Array]]]:
    """Yield batches of the file's piece: (position of the first record, column -> array in a topic table's type).

    Includes deleted records, and columns that the file lacks (cleantail.lake.records.projection).
    Row lineage gives offsets that no column holds. Raises TableError as open_parquet does.
    """
    with io.new_input(file.path).open() as stream:
        parquet = open_parquet(stream, file.path, file.records)
        note_kind(parquet, file, layout)
        at, groups = _row_groups(parquet.metadata, file)
        by_value = TOMBSTONE in columns and not _marks_hold(parquet, layout, groups)
        if by_value:
            columns = [VALUE, *(c for c in columns if c not in (TOMBSTONE, VALUE))]
        parts = parts_in(layout, KEY) if KEY in columns else []
        makes_offsets = OFFSET in columns and not has_offsets(layout)
        lineage = LINEAGE_IDS if makes_offsets else ()
        projection = Projection(parquet.schema_arrow, layout, [*columns, *parts, *lineage], file.constants, file.path)
        for batch in parquet.iter_batches(BATCH_RECORDS, row_groups=groups, columns=projection.read, use_threads=False):
            arrays = topic_arrays(projection.arrays(batch), layout, file.path)
            if by_value:
                arrays[TOMBSTONE] = pc.is_null(arrays[VALUE])
            if makes_offsets:
                arrays = _with_offsets(arrays, file, at, batch.num_rows)
            yield at, arrays
            at += batch.num_rows


def _marks_hold(parquet: pq.ParquetFile, layout: Layout, groups: list[int]) -> bool:
    """Return whether the column `tombstone` can replace the values of these row groups, which then are not read.

    In an adopted table the column decides. In a topic's own table the value decides, because another engine may update
    the value alone. So the column is used only for large values, and only if it marks as many records as have no value.
    """
    if TOMBSTONE not in layout or layout[TOMBSTONE].marks is not None:
        return True
    footer, nulls, size = parquet.metadata, 0, 0
    names = [footer.schema.column(at).path for at in range(footer.num_columns)]
    if VALUE not in names or TOMBSTONE not in names:
        return False
    for number in groups:
        values = footer.row_group(number).column(names.index(VALUE))
        if not (values.is_stats_set and values.statistics.has_null_count):
            return False
        nulls += values.statistics.null_count
        size += values.total_compressed_size
    if size <= CERTAIN_BYTES:
        return False
    marks = (parquet.read_row_group(n, [TOMBSTONE], use_threads=False).column(TOMBSTONE) for n in groups)
    return sum(pc.sum(some).as_py() or 0 for some in marks) == nulls


def _with_offsets(arrays: dict[str, pa.Array], file: LogFile, at: int, records: int) -> dict[str, pa.Array]:
    """Return the columns of a batch, with offsets of row lineage."""
    own = [arrays.pop(name, None) for name in (ROW_ID, LAST_UPDATED)]
    lineage = Lineage(file.first_row_id, file.updated)
    offsets = record_offsets(range(at, at + records), lineage, file.path, *own)
    if not file.may_hold_all(offsets):
        raise TableError(f"{file.path} has other row ids than its metadata")
    return arrays | {OFFSET: offsets}


def _row_groups(footer: pq.FileMetaData, file: LogFile) -> tuple[int, list[int]]:
    """Return the position of the first record of the file's piece, and the row groups that begin in the piece."""
    first, at, groups = 0, 0, list[int]()
    for number in range(footer.num_row_groups):
        if at * file.pieces // max(file.records, 1) == file.piece:
            first = first if groups else at
            groups.append(number)
        at += footer.row_group(number).num_rows
    return first, groups
