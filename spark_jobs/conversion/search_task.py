"""Says what a task does: it finds where the records lie that equality deletes remove, and reads shared position
deletes.

The task reads the keys of its delete files once, into its database, each with the highest sequence number with which it
was deleted, and then goes through the compared columns of its data files, and through nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io
from pyroaring import BitMap64

from cleantail.adopt.equality_deletes import EVERYWHERE, TableFile, applies
from cleantail.lake.clients.bounded_reads import most_delete_bytes
from cleantail.lake.position_deletes import shared_positions
from spark_jobs.conversion.key_columns import KeyColumn, comparable, storage_type
from spark_jobs.engine.columns.task_database import reading, task_database
from spark_jobs.iceberg.log_files import BATCH_RECORDS, LogFile, column_batches

Store = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SearchTask:
    """Holds data files with their numbers, and the equality delete files that are of any of them."""

    files: tuple[tuple[int, TableFile], ...]
    deletes: tuple[TableFile, ...]
    columns: Mapping[int, KeyColumn]
    threads: int
    memory_bytes: int
    location: str


def search(store: Store, task: SearchTask) -> dict[int, BitMap64]:
    """Returns number of a data file -> the positions of its records that the equality deletes remove; those that other
    deletes hide already may be among them."""
    io, hidden = load_file_io(dict(store), task.location), dict[int, BitMap64]()
    for field_ids in sorted({delete.field_ids for delete in task.deletes}):
        deletes = [delete for delete in task.deletes if delete.field_ids == field_ids]
        with task_database(task.threads, task.memory_bytes) as database:
            _collect(database, io, task, deletes, field_ids)
            for number, positions in _removed(database, io, task, deletes, field_ids):
                hidden.setdefault(number, BitMap64()).update(positions)
    return hidden


def _collect(
    database: Any, io: FileIO, task: SearchTask, deletes: Sequence[TableFile], field_ids: Sequence[int]
) -> None:
    """Makes the table `gone` of the database: each deleted key once for its scope."""
    names = [f"c{number}" for number in field_ids]
    with reading(database, "deletes", _schema(task, field_ids), _rows(io, task, list(enumerate(deletes)), field_ids)):
        keys = ", ".join(names)
        database.execute(
            f"CREATE TEMP TABLE gone AS SELECT {keys}, scope, max(sequence_number) AS sequence_number FROM deletes "
            f"GROUP BY {keys}, scope"
        )


def _removed(
    database: Any, io: FileIO, task: SearchTask, deletes: Sequence[TableFile], field_ids: Sequence[int]
) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    """Yields (number of a data file, positions in it), batch by batch."""
    files = [(number, file) for number, file in task.files if any(applies(delete, file) for delete in deletes)]
    same = " AND ".join(f"r.c{number} IS NOT DISTINCT FROM g.c{number}" for number in field_ids)
    joined = (
        f"SELECT r.file, r.pos FROM record r JOIN gone g ON {same} "
        f"AND g.sequence_number > r.sequence_number AND (g.scope = r.scope OR g.scope = {EVERYWHERE})"
    )
    with reading(database, "record", _schema(task, field_ids), _rows(io, task, files, field_ids)):
        for batch in database.sql(joined).to_arrow_reader(BATCH_RECORDS):
            of_file, pos = (batch.column(name).to_numpy(zero_copy_only=False) for name in ("file", "pos"))
            for number in np.unique(of_file).tolist():
                yield number, pos[of_file == number].astype(np.uint64)


def _schema(task: SearchTask, field_ids: Sequence[int]) -> pa.Schema:
    keys = [(f"c{number}", storage_type(task.columns[number].kind)) for number in field_ids]
    return pa.schema([("file", pa.int64()), ("pos", pa.int64()), ("scope", pa.int64()),
                      ("sequence_number", pa.int64()), *keys])  # fmt: skip


def _rows(
    io: FileIO, task: SearchTask, files: Sequence[tuple[int, TableFile]], field_ids: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Yields the compared columns of all rows of data files, or of delete files, with where they lie."""
    schema = _schema(task, field_ids)
    columns = {f"c{number}": task.columns[number] for number in field_ids}
    layout = {name: column.path for name, column in columns.items()}
    for number, file in files:
        for at, arrays in column_batches(io, _unlogged(file), layout, list(columns)):
            length = len(next(iter(arrays.values())))
            of_file, scope, sequence_number = (
                pa.array(np.full(length, value, np.int64)) for value in (number, file.scope, file.sequence_number)
            )
            pos = pa.array(np.arange(at, at + length, dtype=np.int64))
            keys = [comparable(arrays[name], column.kind, file.path) for name, column in columns.items()]
            yield pa.RecordBatch.from_arrays([of_file, pos, scope, sequence_number, *keys], schema=schema)


def _unlogged(file: TableFile) -> LogFile:
    """Returns the file as the readers of logs know it; of its log nothing is known."""
    nothing: dict[str, Any] = dict.fromkeys(("log", "lower_offset", "upper_offset", "low_key", "high_key", "null_keys"))
    return LogFile(hash=0, path=file.path, records=file.records, null_values=None, marked=False, before=(),
                   constants=file.constants, **nothing)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PositionsTask:
    """Files of position deletes that are of several data files each: their numbers and names."""

    deletes: tuple[tuple[int, str], ...]
    location: str


def read_positions(store: Store, task: PositionsTask) -> list[tuple[int, dict[str, BitMap64]]]:
    """Returns for each delete file data file -> its deleted positions. Raises TableError for a damaged one."""
    io = load_file_io(dict(store), task.location)
    return [(number, _positions(io, path)) for number, path in task.deletes]


def _positions(io: FileIO, path: str) -> dict[str, BitMap64]:
    with io.new_input(path).open() as stream:
        return shared_positions(stream, path, most_delete_bytes(io))
