"""The data files of one log and what is deleted of them, as a task reads them: keys and offsets, never values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyroaring import BitMap64

from cleantail.errors import TableError
from cleantail.human import counted
from spark_jobs.iceberg.deletion_vectors import positions_of

BATCH_RECORDS = 1 << 17
FIELD_ID = b"PARQUET:field_id"
"""Where pyarrow keeps a column's Iceberg id."""


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """Where the deletion vector of a file lies, and how many positions its metadata say that it has."""

    path: str
    start: int
    length: int
    count: int


@dataclass(frozen=True, slots=True)
class LogFile:
    """A Parquet file of one log, with the bounds that Iceberg's metadata have of it.

    Bounds of offsets are inclusive. Bounds of keys are cut short: the lower one is at most the lowest key, the upper
    one at least the highest; None where the metadata have none. `before` and `after` are the delete files in base and
    branch. `lost` is true where the branch no longer has the file.
    """

    hash: int
    path: str
    records: int
    lower_offset: int | None
    upper_offset: int | None
    low_key: bytes | None
    high_key: bytes | None
    null_keys: int | None
    before: DeletionVector | None
    after: DeletionVector | None = None
    lost: bool = False

    def may_hold(self, low: int, end: int) -> bool:
        """Returns whether the file can have an offset in [low, end)."""
        inside = self.lower_offset is None or self.lower_offset < end
        return inside and (self.upper_offset is None or self.upper_offset >= low)

    def lies_in(self, low: int, end: int) -> bool:
        """Returns whether the file's offsets are all in [low, end), by its bounds; false where it has none."""
        return (
            self.lower_offset is not None
            and self.upper_offset is not None
            and low <= self.lower_offset
            and self.upper_offset < end
        )

    def may_hold_keys(self, low: bytes | None, high: bytes | None) -> bool:
        """Returns whether the file can have a key in [low, high]; both None where there is no key at all."""
        if low is None or high is None:
            return False
        return (self.low_key is None or self.low_key <= high) and (self.high_key is None or self.high_key >= low)


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """Iceberg's field ids of the two columns that are read."""

    offset: int
    key: int


class UnknownLayoutError(Exception):
    """A file that only Iceberg's own reader knows how to read: its columns carry no field ids."""


def in_offset_order(files: Iterable[LogFile]) -> list[LogFile]:
    return sorted(files, key=lambda f: (f.lower_offset or 0, f.path))


FilesByLog = Mapping[int, Sequence[LogFile]]


def with_branch(base: FilesByLog, branch: FilesByLog) -> FilesByLog:
    """Returns the files of the base, each with what is deleted of it on the branch."""
    after = {file.path: file.before for files in branch.values() for file in files}
    return {
        log: [replace(file, after=after.get(file.path), lost=file.path not in after) for file in files]
        for log, files in base.items()
    }


def read_deletes(io: FileIO, deletes: DeletionVector | None, records: int) -> BitMap64:
    """Returns the deleted positions of a file of `records` records; none where `deletes` is None. Raises TableError
    when they are not as many as its metadata say, or behind the file's end."""
    if deletes is None:
        return BitMap64()
    with io.new_input(deletes.path).open() as stream:
        stream.seek(deletes.start)
        positions = positions_of(stream.read(deletes.length), deletes.path)
    if len(positions) != deletes.count or (positions and positions.max() >= records):
        raise TableError(
            f"the deletion vector in {deletes.path} at {deletes.start} has {len(positions)} positions, "
            f"its metadata say {deletes.count} of a file of {counted(records, 'record')}"
        )
    return positions


def all_of(records: int) -> BitMap64:
    """Returns every position of a file of so many records."""
    return BitMap64(np.arange(records, dtype=np.uint64))


def alive(records: int, deleted: BitMap64) -> npt.NDArray[np.bool_]:
    """Returns one boolean for each record of the file: whether it is not deleted."""
    mask = np.ones(records, dtype=np.bool_)
    mask[np.asarray(deleted.to_array(), dtype=np.int64)] = False
    return mask


def record_batches(
    io: FileIO, file: LogFile, columns: KeyColumns, keep: npt.NDArray[np.bool_], more: Mapping[str, pa.Array]
) -> Iterator[pa.RecordBatch]:
    """Yields (offset, key, pos, …more) of the records that `keep` has; `more` are columns of the whole file.

    Raises UnknownLayoutError, and TableError when the file has not as many records as its metadata say.
    """
    at = 0
    with io.new_input(file.path).open() as stream:
        parquet = pq.ParquetFile(stream)
        if parquet.metadata.num_rows != len(keep):
            raise TableError(
                f"{file.path} has {counted(parquet.metadata.num_rows, 'record')}, its metadata say {len(keep)}"
            )
        names = _names(parquet.schema_arrow, columns)
        for batch in parquet.iter_batches(BATCH_RECORDS, columns=names, use_threads=False):
            end = at + batch.num_rows
            read = [batch.column(name) for name in names]
            added = [
                pa.array(np.arange(at, end, dtype=np.int64)),
                *(each.slice(at, end - at) for each in more.values()),
            ]
            rows = pa.RecordBatch.from_arrays([*read, *added], names=["offset", "key", "pos", *more])
            yield rows if keep[at:end].all() else rows.filter(pa.array(keep[at:end]))
            at = end


def _names(schema: pa.Schema, columns: KeyColumns) -> list[str]:
    ids = {int((field.metadata or {}).get(FIELD_ID, -1)): field.name for field in schema}
    if columns.offset not in ids or columns.key not in ids:
        raise UnknownLayoutError
    return [ids[columns.offset], ids[columns.key]]
