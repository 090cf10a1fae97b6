"""One task of a rewrite: neighbouring files of a log become new ones, in offset order, without the deleted records.
Small logs share a task, which rewrites one group of files after the other.

1. The files are read batch by batch, one after the other, and of each batch the live records are kept. Nothing is
   sorted: the files have to follow each other in offset order, and each has to be in that order itself.
2. New files have the table's columns by its field ids, its codec and its sizes. Of format version 3 each record also
   carries its row id and the sequence number of its last change, as Iceberg's specification asks of a rewrite.
3. What cannot be kept in this way is refused, with a reason: nothing is left of the task then, and the files are
   rewritten by Spark (spark_jobs.round.staged_rewrites).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from pyiceberg.io import FileIO, load_file_io

from spark_jobs.engine.rewrites.live_batches import OffsetOrder, Source, live_batches, offsets_of, opened
from spark_jobs.engine.rewrites.new_files import NewFiles, WriteSettings, WrittenFile
from spark_jobs.engine.rewrites.written_schema import RefusedError, TableSchema, as_written
from spark_jobs.iceberg.file_columns import Layout
from spark_jobs.iceberg.log_files import alive, read_deletes_in_task


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Describes one task; all of it can be pickled.

    sources    the files, in offset order
    schema     the table's
    layout     where the files have the offset
    in_order   whether they have to follow each other by it; an offset of row lineage goes along, wherever a record is
    settings   of the new files
    new_path   what the names of the new files begin with
    location   any path in the store that has the files, by which its file IO is chosen
    """

    sources: tuple[Source, ...]
    schema: TableSchema
    layout: Layout
    settings: WriteSettings
    new_path: str
    location: str
    in_order: bool = True


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Holds the new files, in offset order, and how many records lived in the old ones; or why there are none,
    where the files cannot be rewritten in this way."""

    files: tuple[WrittenFile, ...] = ()
    live_records: int = 0
    refusal: str = ""


def rewrite_all(properties: Mapping[str, str], tasks: Sequence[RewriteTask]) -> list[Rewritten]:
    """Rewrites several groups of files, one after the other. After an error, or a refusal, which is then the last
    result, no further one is begun. After an error no new file is left."""
    done: list[Rewritten] = []
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
        with suppress(Exception):  # what is left is an orphan
            io.delete(file.path)


def rewrite_files(properties: Mapping[str, str], task: RewriteTask) -> Rewritten:
    """Writes the live records of the files into new ones. `properties`: of PyIceberg's FileIO. Raises TableError for a
    file that is not what its metadata say."""
    io = load_file_io(dict(properties), task.location)
    new, order = NewFiles(io, task.new_path, task.settings), OffsetOrder()
    try:
        live = sum(_rewrite(io, task, source, order, new) for source in task.sources)
        return Rewritten(new.close(), live)
    except RefusedError as e:
        new.discard()
        return Rewritten(refusal=str(e))
    except BaseException:
        new.discard()
        raise


def _rewrite(io: FileIO, task: RewriteTask, source: Source, order: OffsetOrder, new: NewFiles) -> int:
    """Returns how many records live in the file."""
    file = source.file
    live = alive(file.records, read_deletes_in_task(io, file.before, file))
    with opened(io, file) as parquet:
        written = task.schema.written(parquet.schema_arrow, file.path)
        new.begin(written, parquet.metadata)
        for positions, batch in live_batches(parquet, live, task.settings.batch_bytes):
            if task.in_order:
                order.require(offsets_of(batch, task.layout, file.path), file.path)
            new.add(as_written(batch, task.schema, written, source.lineage(positions)))
    return int(np.count_nonzero(live))
