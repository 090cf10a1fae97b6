"""The columns of a rewritten file: those of the table, by its field ids, as its files have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
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
    """Is raised where a task cannot keep files exactly as they are. Spark rewrites them; the message says why."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """Describes a table's columns, as Iceberg writes a schema in JSON. `lineage`: records carry row ids (format version
    3). `computed`: the column that says whether a record's value is null, which a file may lack; empty where the table
    has none of its own."""

    json: str
    format_version: int
    computed: str = ""

    @property
    def lineage(self) -> bool:
        return self.format_version >= 3

    def written(self, of_file: pa.Schema, path: str) -> pa.Schema:
        """Returns what is written of a file that has these columns: the table's, in its order, all of them optional.

        Raises RefusedError for a file that lacks a column or has one more, that has another name or type for one,
        or that has no field ids: such a file needs Iceberg's schema evolution, which here only Spark's reader has.
        """
        table = Schema.model_validate_json(self.json)
        data_columns = pa.schema([field for field in of_file if _id_of(field) not in LINEAGE_IDS.values()])
        _require_types_of_iceberg(data_columns, path)
        _require_same(self._described(data_columns, path), _columns(table), self.computed, path)
        by_id = {_id_of(field): _optional(field) for field in data_columns}
        fields = [by_id.get(column.field_id) or _computed(column.field_id, column.name) for column in table.fields]
        lineage = [_field(name, pa.int64(), number) for name, number in LINEAGE_IDS.items()] if self.lineage else []
        return pa.schema([*fields, *lineage])

    def _described(self, schema: pa.Schema, path: str) -> dict[int, tuple[str | None, str]]:
        try:
            return _columns(pyarrow_to_schema(schema, format_version=self.format_version))  # type: ignore[arg-type]
        except (UnsupportedPyArrowTypeException, ValueError, TypeError) as e:
            raise RefusedError(f"{path}: {e}") from None


def _columns(schema: Schema) -> dict[int, tuple[str | None, str]]:
    """Returns field id -> (full name, type), fields of structs included; whether one is required does not count."""
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
            raise RefusedError(f"{path} has {have or 'no column'} where the table has {want or 'none'}")


def _require_types_of_iceberg(fields: Iterable[pa.Field], path: str) -> None:
    """Raises RefusedError for a column of a type that Iceberg's writers do not write, such as milliseconds: its bounds
    would be taken for microseconds."""
    for field in fields:
        if pa.types.is_nested(field.type):
            _require_types_of_iceberg([field.type.field(i) for i in range(field.type.num_fields)], path)
        elif field.type not in PLAIN_TYPES and not (
            pa.types.is_decimal128(field.type) or pa.types.is_fixed_size_binary(field.type)
        ):
            raise RefusedError(f"{path} has a column {field.name} of the type {field.type}")


def _id_of(field: pa.Field) -> int:
    return int((field.metadata or {}).get(FIELD_ID, -1))


def _computed(number: int, name: str) -> pa.Field:
    return _field(name, pa.bool_(), number)


def _field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={FIELD_ID: str(number).encode()})


def _optional(field: pa.Field) -> pa.Field:
    """Returns the field with everything in it optional, so that files of writers that knew of no null are alike."""
    return pa.field(field.name, _with_optional_fields(field.type), nullable=True, metadata=_only_id(field))


def _only_id(field: pa.Field) -> dict[bytes, bytes]:
    return {FIELD_ID: (field.metadata or {})[FIELD_ID]}


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
    """Returns records of a file as they are written. `lineage`: what the file says of them by column, for records that
    do not carry it themselves. Raises RefusedError where a column cannot be what is written."""
    by_id = {_id_of(field): column for field, column in zip(batch.schema, batch.columns, strict=True)}
    arrays = []
    for field in written:
        array = by_id.get(_id_of(field))
        if field.name == schema.computed:
            array = pc.is_null(batch.column(VALUE))
        elif _id_of(field) in LINEAGE_IDS.values():
            array = lineage[field.name] if array is None else pc.coalesce(array, lineage[field.name])
        arrays.append(_cast(array, field))
    return pa.RecordBatch.from_arrays(arrays, schema=written)


def _cast(array: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return array if array.type == field.type else array.cast(field.type)
    except pa.ArrowException as e:
        raise RefusedError(f"column {field.name}: {e}") from None
