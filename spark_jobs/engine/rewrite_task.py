"""One task of a rewrite: neighbouring files of a log become new ones, in offset order, without the deleted records.

Small logs share a task, which rewrites one group of files after the other.

1. The files are read batch by batch, one after the other, and live records are kept. Nothing is sorted: the files must
   follow each other in offset order, and so must the records of each file.
2. New files have the table's columns by its field ids, its codec and its sizes. In format version 3 each record also
   carries its row id and the sequence number of its last change, as Iceberg's specification requires.
3. A task that cannot do this is refused with a reason, and leaves no files. Then Spark rewrites the files
   (spark_jobs.round.staged_rewrites).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io

from cleantail.config.topic_table import KEY, OFFSET
from cleantail.erasure.erased_keys import ErasedKeys
from cleantail.human import counted
from cleantail.lake.manifest_entries import open_parquet
from cleantail.log.winners import Booleans, Longs
from spark_jobs.engine.written_files import (
    LAST_UPDATED,
    ROW_ID,
    NewFiles,
    RefusedError,
    TableSchema,
    WriteSettings,
    WrittenFile,
    as_written,
)
from spark_jobs.iceberg.file_columns import Layout, Projection
from spark_jobs.iceberg.log_files import LogFile, column_batches, live_before

BATCH_RECORDS, PACKED_RECORDS = 1 << 17, 1 << 13
STREAM_BYTES = 8 << 20
"""Each column is read in pieces of this size, so that a row group is never in memory as a whole."""


@dataclass(frozen=True, slots=True)
class RewriteSource:
    """A file that is rewritten. `updated`: its file sequence number, which records inherit (row lineage)."""

    file: LogFile
    updated: int

    def lineage(self, positions: Longs) -> dict[str, pa.Array]:
        """Return the inherited row ids and sequence numbers of the records at these positions. Both are null for a file
        from before format version 3: the commit then assigns new ones."""
        if self.file.first_row_id is None:
            return dict.fromkeys((ROW_ID, LAST_UPDATED), pa.nulls(len(positions), pa.int64()))
        updated = np.full(len(positions), self.updated, np.int64)
        return {ROW_ID: pa.array(positions + self.file.first_row_id), LAST_UPDATED: pa.array(updated)}


class OffsetOrder:
    """Checks that offsets never decrease, from batch to batch and from file to file."""

    def __init__(self) -> None:
        self._last = -1

    def require(self, offsets: Longs, path: str) -> None:
        if not len(offsets):
            return
        if offsets[0] < self._last or bool((offsets[1:] < offsets[:-1]).any()):
            raise RefusedError(f"{path} is not in the order of offsets, or overlaps with the file before it")
        self._last = int(offsets[-1])


@contextmanager
def opened(io: FileIO, file: LogFile) -> Iterator[Any]:
    """Open the file with pyarrow. Raises TableError as open_parquet does."""
    with io.new_input(file.path).open() as stream:
        yield open_parquet(stream, file.path, file.records, STREAM_BYTES)


def live_batches(
    parquet: Any, live: Booleans, batch_bytes: int, columns: Sequence[str] | None = None
) -> Iterator[tuple[Longs, pa.RecordBatch]]:
    """Yield (positions, records) of the live records of a file. Row groups without live records are not read.

    `batch_bytes`: uncompressed size of a batch, by the footer. The footer lacks the size of values in a dictionary, so
    such batches have few records. `columns`: None for all.
    """
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
    """Return whether a row group has a dictionary for texts or bytes."""
    columns = (group.column(number) for number in range(group.num_columns))
    return any(c.physical_type == "BYTE_ARRAY" and c.has_dictionary_page for c in columns)


def offsets_of(batch: pa.RecordBatch, layout: Layout, path: str) -> Longs:
    """Return the offsets of the records. Raises RefusedError if one has none."""
    array = Projection(batch.schema, layout, (OFFSET,), (), path).arrays(batch).get(OFFSET)
    if array is None or array.null_count == len(array) > 0:
        raise RefusedError(f"{path} has no column for the offset, by the table's field ids")
    if array.null_count:
        raise RefusedError(f"{path} has {counted(array.null_count, 'record')} without an offset")
    offsets: Longs = array.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return offsets


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """One task. All of it can be pickled.

    sources    the files, in offset order
    layout     the place of the offset in the files
    settings   of the new files
    new_path   beginning of the new files' names
    location   any path in the store of the files, by which the file IO is chosen
    in_order   records must be in offset order; false if offsets are made of row lineage, which a rewrite keeps, or if
               each file is rewritten alone
    without    records of these keys are left out too; then `layout` has the place of the key
    """

    sources: tuple[RewriteSource, ...]
    schema: TableSchema
    layout: Layout
    settings: WriteSettings
    new_path: str
    location: str
    in_order: bool = True
    without: ErasedKeys | None = None


@dataclass(frozen=True, slots=True)
class RewriteOutcome:
    """The new files, in offset order, and the number of live records in the old ones; or the reason for a refusal."""

    files: tuple[WrittenFile, ...] = ()
    live_records: int = 0
    refusal: str = ""


def rewrite_all(properties: Mapping[str, str], tasks: Sequence[RewriteTask]) -> list[RewriteOutcome]:
    """Rewrite groups of files one by one. A refusal ends the list. After an error no new file is left."""
    done: list[RewriteOutcome] = []
    try:
        for task in tasks:
            done.append(rewrite_files(properties, task))
            if done[-1].refusal:
                break
    except BaseException:
        for task, rewritten in zip(tasks, done, strict=False):
            _delete(load_file_io(dict(properties), task.location), rewritten.files)
        raise
    return done


def _delete(io: FileIO, files: Sequence[WrittenFile]) -> None:
    for file in files:
        with suppress(Exception):  # a file that cannot be deleted is an orphan
            io.delete(file.path)


def rewrite_files(properties: Mapping[str, str], task: RewriteTask) -> RewriteOutcome:
    """Write the files' live records into new ones. Raises TableError if a file does not match its metadata."""
    io = load_file_io(dict(properties), task.location)
    new, order = NewFiles(io, task.new_path, task.settings), OffsetOrder()
    try:
        live = sum(_rewrite(io, task, source, order, new) for source in task.sources)
        return RewriteOutcome(new.close(), live)
    except RefusedError as e:
        new.discard()
        return RewriteOutcome(refusal=str(e))
    except BaseException:
        new.discard()
        raise


def _rewrite(io: FileIO, task: RewriteTask, source: RewriteSource, order: OffsetOrder, new: NewFiles) -> int:
    file = source.file
    live = live_before(io, file)
    for at, arrays in column_batches(io, file, task.layout, (KEY,)) if task.without is not None else ():
        assert task.without is not None, "the loop has a condition"
        live[at : at + len(arrays[KEY])] &= ~task.without.found(arrays[KEY])
    with opened(io, file) as parquet:
        written = task.schema.written(parquet.schema_arrow, file.path)
        new.begin(written, parquet.metadata)
        for positions, batch in live_batches(parquet, live, task.settings.batch_bytes):
            if task.in_order:
                order.require(offsets_of(batch, task.layout, file.path), file.path)
            new.add(as_written(batch, task.schema, written, source.lineage(positions)))
    return int(np.count_nonzero(live))
