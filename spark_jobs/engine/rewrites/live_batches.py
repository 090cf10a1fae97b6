"""The live records of a data file, batch by batch, as a rewritten file has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from cleantail.config.topic_table import OFFSET
from cleantail.errors import TableError
from cleantail.human import counted
from spark_jobs.engine.rewrites.written_schema import LAST_UPDATED, ROW_ID, RefusedError
from spark_jobs.iceberg.file_columns import Layout, Projection
from spark_jobs.iceberg.log_files import LogFile

Booleans = npt.NDArray[np.bool_]
Longs = npt.NDArray[np.int64]
BATCH_RECORDS, PACKED_RECORDS = 1 << 17, 1 << 13
STREAM_BYTES = 8 << 20
"""Each column is read in pieces of this size, so that a row group is never in memory as a whole."""


@dataclass(frozen=True, slots=True)
class Source:
    """Describes a file that is rewritten. `updated`: its file sequence number, which records have as that of their last
    change until they carry another."""

    file: LogFile
    updated: int

    def lineage(self, positions: Longs) -> dict[str, pa.Array]:
        """Returns what the file says of the records at these positions: row ids, and the sequence number of their last
        change. A file from before format version 3 has neither; they get new ones then, as anything that is written."""
        if self.file.first_row_id is None:
            return dict.fromkeys((ROW_ID, LAST_UPDATED), pa.nulls(len(positions), pa.int64()))
        updated = np.full(len(positions), self.updated, np.int64)
        return {ROW_ID: pa.array(positions + self.file.first_row_id), LAST_UPDATED: pa.array(updated)}


class OffsetOrder:
    """Watches that offsets never go down, from batch to batch and from file to file."""

    def __init__(self) -> None:
        self._last = -1

    def require(self, offsets: Longs, path: str) -> None:
        """Raises RefusedError where they do."""
        if not len(offsets):
            return
        if offsets[0] < self._last or bool((offsets[1:] < offsets[:-1]).any()):
            raise RefusedError(f"{path} is not in the order of offsets, or overlaps with the file before it")
        self._last = int(offsets[-1])


@contextmanager
def opened(io: FileIO, file: LogFile) -> Iterator[Any]:
    """Opens the file with pyarrow. Raises TableError when it has not as many records as its metadata say."""
    with io.new_input(file.path).open() as stream:
        parquet = pq.ParquetFile(stream, buffer_size=STREAM_BYTES)
        if parquet.metadata.num_rows != file.records:
            raise TableError(
                f"{file.path} has {counted(parquet.metadata.num_rows, 'record')}, its metadata say {file.records}"
            )
        yield parquet


def live_batches(
    parquet: Any, live: Booleans, batch_bytes: int, columns: Sequence[str] | None = None
) -> Iterator[tuple[Longs, pa.RecordBatch]]:
    """Yields (positions, records) of the live records of a file. A row group of which nothing lives is not read.
    `batch_bytes`: read at a time, by what the footer says they are without compression. Of values that a dictionary
    packs the footer does not tell the size: there are few records in such a batch. `columns`: those that are read, all
    where None."""
    at, footer = 0, parquet.metadata
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        if live[at : at + group.num_rows].any():
            fitting = batch_bytes * group.num_rows // max(group.total_byte_size, 1)
            records = min(max(fitting, 1), PACKED_RECORDS if _packs_values(group) else BATCH_RECORDS)
            for batch in parquet.iter_batches(records, row_groups=[number], columns=columns, use_threads=False):
                chosen = live[at : at + batch.num_rows]
                yield at + np.flatnonzero(chosen), batch if chosen.all() else batch.filter(pa.array(chosen))
                at += batch.num_rows
        else:
            at += group.num_rows


def _packs_values(group: Any) -> bool:
    """Returns whether a row group has a dictionary for texts or bytes."""
    columns = (group.column(number) for number in range(group.num_columns))
    return any(c.physical_type == "BYTE_ARRAY" and c.has_dictionary_page for c in columns)


def offsets_of(batch: pa.RecordBatch, layout: Layout, path: str) -> Longs:
    """Returns the offsets of the records. Raises RefusedError where they have none."""
    array = Projection(batch.schema, layout, (OFFSET,), (), path).arrays(batch).get(OFFSET)
    if array is None or array.null_count == len(array) > 0:
        raise RefusedError(f"{path} has no column for the offset, by the table's field ids")
    if array.null_count:
        raise RefusedError(f"{path} has {counted(array.null_count, 'record')} without an offset")
    offsets: Longs = array.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return offsets
