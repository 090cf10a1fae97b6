"""New Parquet files that a task writes: row groups of bounded size, rolled at the table's target size.

A rewritten file has the table's columns, with the table's field ids and the types of the original files.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, pyarrow_to_schema
from pyiceberg.schema import Schema

from cleantail.config.topic_table import VALUE
from spark_jobs.iceberg.file_columns import FIELD_ID

ROW_ID, LAST_UPDATED = "_row_id", "_last_updated_sequence_number"
PLAIN_TYPES = {
    *(pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32(), pa.time64("us")),
    *(pa.timestamp("us"), pa.timestamp("us", "UTC")),
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary()),
}
"""Types as pyarrow reads them in a file of Iceberg's own writers."""
LINEAGE_IDS = {ROW_ID: 2_147_483_540, LAST_UPDATED: 2_147_483_539}
"""Columns of row lineage, and the field ids that Iceberg's specification reserves for them."""


class RefusedError(Exception):
    """A task cannot rewrite files and keep their exact content, so Spark rewrites them. The message has the reason."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table's columns, as Iceberg's JSON of the schema. `lineage`: records have row ids (format version 3).
    `computed`: name of the column that marks null values, which a file may lack. Empty if the table has none."""

    json: str
    format_version: int
    computed: str = ""

    @property
    def lineage(self) -> bool:
        return self.format_version >= 3

    def written(self, of_file: pa.Schema, path: str) -> pa.Schema:
        """Return the schema for a rewrite of a file with these columns: the table's columns, in its order, all
        optional.

        Raises RefusedError for a file without field ids, or with other columns, names or types than the table. Such a
        file needs Iceberg's schema evolution, which only Spark's reader has.
        """
        table = Schema.model_validate_json(self.json)
        data_columns = pa.schema([field for field in of_file if _id_of(field) not in LINEAGE_IDS.values()])
        _require_types_of_iceberg(data_columns, path)
        _require_same(self._described(data_columns, path), _columns(table), self.computed, path)
        by_id = {_id_of(field): _optional(field) for field in data_columns}
        fields = [
            by_id.get(column.field_id) or _field(column.name, pa.bool_(), column.field_id) for column in table.fields
        ]
        lineage = [_field(name, pa.int64(), number) for name, number in LINEAGE_IDS.items()] if self.lineage else []
        return pa.schema([*fields, *lineage])

    def _described(self, schema: pa.Schema, path: str) -> dict[int, tuple[str | None, str]]:
        try:
            return _columns(pyarrow_to_schema(schema, format_version=self.format_version))  # type: ignore[arg-type]
        except (UnsupportedPyArrowTypeException, ValueError, TypeError) as e:
            raise RefusedError(f"{path}: {e}") from None


def _columns(schema: Schema) -> dict[int, tuple[str | None, str]]:
    """Return field id -> (full name, type), including fields of structs."""
    kinds = {number: schema.find_type(number) for number in schema.field_ids}
    return {
        number: (schema.find_column_name(number), str(kind) if kind.is_primitive else type(kind).__name__)
        for number, kind in kinds.items()
    }


def _require_same(
    of_file: dict[int, tuple[str | None, str]], of_table: dict[int, tuple[str | None, str]], computed: str, path: str
) -> None:
    for number in sorted(of_file.keys() | of_table.keys()):
        have, want = of_file.get(number), of_table.get(number)
        if have != want and not (have is None and want is not None and want[0] == computed):
            raise RefusedError(f"{path} has {have or 'no column'}, and the table has {want or 'none'}")


def _require_types_of_iceberg(fields: Iterable[pa.Field], path: str) -> None:
    """Raise RefusedError for a type that Iceberg's writers do not write, such as times in milliseconds."""
    for field in fields:
        if pa.types.is_nested(field.type):
            _require_types_of_iceberg([field.type.field(i) for i in range(field.type.num_fields)], path)
        elif field.type not in PLAIN_TYPES and not (
            pa.types.is_decimal128(field.type) or pa.types.is_fixed_size_binary(field.type)
        ):
            raise RefusedError(f"{path} has a column {field.name} of the type {field.type}")


def _id_of(field: pa.Field) -> int:
    return int((field.metadata or {}).get(FIELD_ID, -1))


def _field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={FIELD_ID: str(number).encode()})


def _optional(field: pa.Field) -> pa.Field:
    """Return the field with everything in it optional, so that all files get the same schema."""
    only_id = {FIELD_ID: (field.metadata or {})[FIELD_ID]}
    return pa.field(field.name, _with_optional_fields(field.type), nullable=True, metadata=only_id)


def _with_optional_fields(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_optional(kind.field(i)) for i in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return pa.list_(_optional(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(_optional(kind.value_field))
    return kind


def as_written(
    batch: pa.RecordBatch, schema: TableSchema, written: pa.Schema, lineage: Mapping[str, pa.Array]
) -> pa.RecordBatch:
    """Return records of a file in the schema `written`. `lineage`: the file's values by column, for records without
    their own. Raises RefusedError if a column cannot be converted."""
    by_id = {_id_of(field): column for field, column in zip(batch.schema, batch.columns, strict=True)}
    arrays = []
    for field in written:
        array: Any = by_id.get(_id_of(field))
        if field.name == schema.computed:
            array = pc.is_null(batch.column(VALUE))
        elif _id_of(field) in LINEAGE_IDS.values():
            array = lineage[field.name] if array is None else pc.coalesce(array, lineage[field.name])
        try:
            arrays.append(array if array.type == field.type else array.cast(field.type))
        except pa.ArrowException as e:
            raise RefusedError(f"column {field.name}: {e}") from None
    return pa.RecordBatch.from_arrays(arrays, schema=written)


BATCH_BYTES = 4 << 20
"""Size of the encoded records in a batch. Decoded records may be larger."""


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """The table's settings for its Parquet files. `level` None: the codec's default. `row_group_bytes`: maximum size of
    a row group before it is encoded."""

    codec: str
    level: int | None
    target_bytes: int
    row_group_bytes: int
    page_bytes: int
    dictionary_bytes: int

    @property
    def group_bytes(self) -> int:
        """Return the size of a row group: at most a quarter of a file, so that a file can end near its target."""
        return min(self.row_group_bytes, max(self.target_bytes // 4, 1))

    @property
    def batch_bytes(self) -> int:
        return min(BATCH_BYTES, self.group_bytes)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that is written, but not committed. `footer`: Parquet's, with its row groups and columns."""

    path: str
    size_bytes: int
    footer: pq.FileMetaData


class NewFiles:
    """Write batches into files of the table's target size. `path`: the beginning of their names. Each attempt at a task
    has its own file names, so one that Spark has abandoned does no harm."""

    def __init__(self, io: FileIO, path: str, settings: WriteSettings) -> None:
        self._io, self._settings = io, settings
        self._stem = f"{path}-{uuid.uuid4()}"
        self._schema: pa.Schema | None = None
        self._dictionaries: list[str] = []
        self._pending: list[pa.RecordBatch] = []
        self.pending_bytes = 0
        self._open: tuple[Any, Any, list[Any]] | None = None
        self._begun: list[str] = []
        self._written: list[WrittenFile] = []

    def begin(self, schema: pa.Schema, footer: Any) -> None:
        """Begin the records of a file with this footer. Raises RefusedError if earlier files have other columns."""
        if self._schema is None:
            groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
            columns = [group.column(i) for group in groups for i in range(group.num_columns)]
            dictionaries = {column.path_in_schema for column in columns if column.has_dictionary_page}
            self.begin_new(schema, [*sorted(dictionaries), LAST_UPDATED])
        if not schema.equals(self._schema):
            raise RefusedError("the files have columns of different types")

    def begin_new(self, schema: pa.Schema, dictionaries: list[str]) -> None:
        """Begin records that have no file yet. `dictionaries`: the columns with a dictionary."""
        self._schema, self._dictionaries = schema, dictionaries

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records. Writes a row group when it is large enough."""
        self._pending.append(batch)
        self.pending_bytes += batch.nbytes
        if self.pending_bytes >= self._settings.group_bytes:
            self.flush()

    def close(self) -> tuple[WrittenFile, ...]:
        self.flush()
        self._close_file()
        return tuple(self._written)

    def discard(self) -> None:
        with contextlib.suppress(Exception):
            self._pending = []
            self._close_file()
        for path in self._begun:
            with contextlib.suppress(Exception):
                self._io.delete(path)

    def flush(self) -> None:
        """Write the pending records as a row group."""
        group = pa.Table.from_batches(self._pending) if self._pending else None
        self._pending, self.pending_bytes = [], 0
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
