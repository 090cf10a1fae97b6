"""New Parquet files that a task writes: row groups of bounded size, rolled at the table's target size."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from spark_jobs.engine.rewrites.written_schema import LAST_UPDATED, RefusedError

BATCH_BYTES = 4 << 20
"""Of encoded records that are read at a time; decoded they may be more."""


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """Says how the table asks its Parquet files to be written. `level` None: the codec's own. `row_group_bytes`: at
    most so much of a row group, before it is encoded."""

    codec: str
    level: int | None
    target_bytes: int
    row_group_bytes: int
    page_bytes: int
    dictionary_bytes: int

    @property
    def group_bytes(self) -> int:
        """Returns the size of a row group: a quarter of a file at most, so that a file can end near its target."""
        return min(self.row_group_bytes, max(self.target_bytes // 4, 1))

    @property
    def batch_bytes(self) -> int:
        """Returns how much is read at a time."""
        return min(BATCH_BYTES, self.group_bytes)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """Describes a file that is written, and in no table yet. `footer`: Parquet's, which tells of its row groups and
    columns."""

    path: str
    size_bytes: int
    footer: pq.FileMetaData


class NewFiles:
    """Writes batches into files of the table's target size. `path`: what their names begin with.

    Every attempt at a task has names of its own: one that Spark took for dead, and that goes on writing, spoils
    nothing.
    """

    def __init__(self, io: FileIO, path: str, settings: WriteSettings) -> None:
        self._io, self._settings = io, settings
        self._stem = f"{path}-{uuid.uuid4()}"
        self._schema: pa.Schema | None = None
        self._dictionaries: list[str] = []
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._open: tuple[Any, Any, list[Any]] | None = None
        self._begun: list[str] = []
        self._written: list[WrittenFile] = []

    def begin(self, schema: pa.Schema, footer: Any) -> None:
        """Begins the records of a file with this footer. Raises RefusedError where its columns differ from those of the
        files before it."""
        if self._schema is None:
            self.begin_new(schema, [*_with_dictionary(footer), LAST_UPDATED])
        if not schema.equals(self._schema):
            raise RefusedError("the files have columns of different types")

    def begin_new(self, schema: pa.Schema, dictionaries: list[str]) -> None:
        """Begins records that were in no file yet. `dictionaries`: the columns that get one."""
        self._schema, self._dictionaries = schema, dictionaries

    def add(self, batch: pa.RecordBatch) -> None:
        """Takes records; a row group is written where it has become large enough."""
        self._pending.append(batch)
        self._pending_bytes += batch.nbytes
        if self._pending_bytes >= self._settings.group_bytes:
            self._write_group()

    @property
    def pending_bytes(self) -> int:
        """Returns what waits for its row group to be large enough."""
        return self._pending_bytes

    def flush(self) -> None:
        """Writes what waits as a row group."""
        self._write_group()

    def close(self) -> tuple[WrittenFile, ...]:
        """Writes what is left, and returns the files."""
        self._write_group()
        self._close_file()
        return tuple(self._written)

    def discard(self) -> None:
        """Deletes the files, as far as that can be done."""
        with contextlib.suppress(Exception):
            self._pending = []
            self._close_file()
        for path in self._begun:
            with contextlib.suppress(Exception):
                self._io.delete(path)

    def _write_group(self) -> None:
        group = pa.Table.from_batches(self._pending) if self._pending else None
        self._pending, self._pending_bytes = [], 0
        if group is None or not group.num_rows:
            return
        writer, stream, _ = self._open or self._open_file()
        before = stream.tell()
        writer.write_table(group, row_group_size=group.num_rows)
        if stream.tell() + (stream.tell() - before) > self._settings.target_bytes:
            self._close_file()

    def _open_file(self) -> tuple[Any, Any, list[Any]]:
        path, footers, settings = f"{self._stem}-{len(self._begun):05}.parquet", list[Any](), self._settings
        self._begun.append(path)
        try:
            stream = self._io.new_output(path).create()
        except (OSError, pa.ArrowException) as e:
            raise RefusedError(f"Python cannot write into the table's folder: {type(e).__name__}") from None
        writer = pq.ParquetWriter(
            stream,
            self._schema,
            compression=settings.codec,
            compression_level=settings.level,
            use_dictionary=self._dictionaries,
            data_page_size=settings.page_bytes,
            dictionary_pagesize_limit=settings.dictionary_bytes,
            store_schema=False,
            store_decimal_as_integer=True,
            write_page_index=True,
            metadata_collector=footers,
        )
        self._open = writer, stream, footers
        return self._open

    def _close_file(self) -> None:
        if self._open is None:
            return
        (writer, stream, footers), self._open = self._open, None
        try:
            writer.close()
            size = stream.tell()
        finally:
            stream.close()
        [footer] = footers
        self._written.append(WrittenFile(self._begun[-1], size, footer))


def _with_dictionary(footer: Any) -> list[str]:
    """Returns the columns that the file has with a dictionary: for others one would be tried in vain."""
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    columns = (group.column(i) for group in groups for i in range(group.num_columns))
    return sorted({column.path_in_schema for column in columns if column.has_dictionary_page})
