"""Project the columns of a data file to the table's columns, by Iceberg's specification (Column Projection).

A file may be older than the table's schema. Files of other writers may lack field ids, or columns whose values are in
their path. A field is found by its id. In a file without any ids, it is found by the names that the table's name
mapping (`schema.name-mapping.default`) has for the id. If the file lacks a field, the value is the first of these:

1. the value of the file's identity partition. In a file without ids, it comes before the name mapping, as in Spark;
2. the field's `initial-default`;
3. null.

A field of a struct is null if the struct is null, regardless of its default. It is also null if the file lacks the
struct, unless the struct itself has a default. Values have the table's type: narrower types of the file are promoted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from cleantail.errors import TableError

if TYPE_CHECKING:
    import pyarrow as pa

FIELD_ID = b"PARQUET:field_id"
"""Key of a column's Iceberg id in pyarrow's metadata."""
NAME_MAPPING = "schema.name-mapping.default"
Constants = tuple[tuple[int, Any], ...]
"""Field id -> value of the file's identity partition, in Iceberg's JSON form or in PyIceberg's form."""
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a table, or a part of one.

    `names`: possible names in a file without ids, None if the table has no name mapping. `kind`: Iceberg's name of the
    type. `fields`: the fields of a struct, the element of a list, or key and value of a map. `default`: the initial
    default, in Iceberg's JSON form.
    """

    id: int
    name: str
    names: tuple[str, ...] | None
    kind: str
    default: Any = None
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnPath:
    """A column, by the fields on the path to it, from the outermost struct inward.

    `marks`: the values that mark a delete, for a column that marks deletes.
    """

    steps: tuple[Field, ...]
    marks: tuple[str, ...] | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(step.id for step in self.steps)

    @property
    def leaf(self) -> Field:
        return self.steps[-1]

    @property
    def kind(self) -> str:
        return self.leaf.kind if self.steps else ""

    def null_count(self, by_field: Mapping[int, int]) -> int | None:
        """Return the number of nulls in the column according to the metadata. None if unknown.

        Unknown for a fraction in a struct: if the struct is null, Iceberg's writers do not count its fractions.
        """
        miscounted = len(self.steps) > 1 and self.kind in ("float", "double")
        return None if miscounted else by_field.get(self.leaf.id)


Layout = Mapping[str, ColumnPath]
"""Column of a topic table -> its path. Columns that no record has are missing."""


def layout_of_schema(schema: Mapping[str, Any], name_mapping: str | None, paths: Mapping[str, str]) -> Layout:
    """Return the layout of a table with columns at these paths. A path that the schema lacks is left out.

    `schema`, `name_mapping`: as Iceberg writes them in JSON.
    """
    names = None if name_mapping is None else _names_of_mapping(name_mapping)
    fields = _fields(schema, names)
    found = {column: _steps(fields, path.split(".")) for column, path in paths.items()}
    return {column: ColumnPath(steps) for column, steps in found.items() if steps}


def _names_of_mapping(name_mapping: str) -> dict[int, tuple[str, ...]]:
    try:
        return _names_by_id(json.loads(name_mapping))
    except (ValueError, TypeError, AttributeError, RecursionError) as e:
        raise TableError(
            f"the table's property schema.name-mapping.default is not a name mapping of Iceberg ({type(e).__name__}); "
            f"nothing was read. Remove the property, or set it to a JSON list of fields"
        ) from None


def _names_by_id(mapping: Iterable[Mapping[str, Any]]) -> dict[int, tuple[str, ...]]:
    names: dict[int, tuple[str, ...]] = {}
    for entry in mapping:
        if "field-id" in entry:
            names[int(entry["field-id"])] = tuple(entry.get("names", ()))
        names |= _names_by_id(entry.get("fields", ()))
    return names


def _fields(kind: Any, names: Mapping[int, tuple[str, ...]] | None) -> tuple[Field, ...]:
    """Return the fields of a nested type in Iceberg's JSON form."""
    if isinstance(kind, str):
        return ()
    described = list(kind.get("fields", ()))
    for part in ("element", "key", "value"):
        if part in kind:
            described.append({"id": kind[f"{part}-id"], "name": part, "type": kind[part]})
    return tuple(
        Field(
            id=int(each["id"]),
            name=each["name"],
            names=None if names is None else names.get(int(each["id"]), ()),
            kind=each["type"] if isinstance(each["type"], str) else each["type"]["type"],
            default=each.get("initial-default"),
            fields=_fields(each["type"], names),
        )
        for each in described
    )


def _steps(fields: Iterable[Field], path: Sequence[str]) -> tuple[Field, ...]:
    """Return the fields on the path to a column. Empty if the column does not exist."""
    step = next((field for field in fields if field.name == path[0]), None)
    if step is None or len(path) == 1:
        return () if step is None else (step,)
    rest = _steps(step.fields if step.kind == "struct" else (), path[1:])
    return (step, *rest) if rest else ()


@dataclass(frozen=True, slots=True)
class ColumnPlace:
    """The place of a column in a file.

    `names`: names of the path's fields that the file has. `of_file`: the column's field, None if the file has only a
    part of the path. Then the column is `constant` in all records in which the last existing field is not null.
    """

    path: ColumnPath
    names: tuple[str, ...]
    has_ids: bool
    of_file: pa.Field | None = None
    constant: Any = None

    @property
    def lacks(self) -> bool:
        return self.of_file is None


class Projection:
    """The places of a layout's columns in one file, and the values of columns that the file lacks.

    `where`: the file, for errors. Raises TableError for a file without field ids in a table without a name mapping, or
    for a file with two columns for one field.
    """

    def __init__(
        self, of_file: pa.Schema, layout: Layout, columns: Iterable[str], constants: Constants, where: str
    ) -> None:
        self._where = where
        has_ids = _has_ids(list(of_file))
        paths = {column: layout[column] for column in columns if column in layout}
        if not has_ids and any(step.names is None for path in paths.values() for step in path.steps):
            raise TableError(
                f"{where} has no field ids, and the table has no name mapping: its columns cannot be identified. Set "
                f"the table property {NAME_MAPPING}, as Spark's add_files does"
            )
        self.places = {c: _place(of_file, path, has_ids, dict(constants), where) for c, path in paths.items()}
        read = (_read(of_file, place) for place in self.places.values() if place.names)
        self.read: list[str] = list(dict.fromkeys(".".join(names) for names in read))
        """Columns that pyarrow has to read from the file. `a.b` is a field of a struct."""

    @property
    def lacks_all(self) -> bool:
        """Return whether no column needs to be read from the file."""
        return not self.read

    def arrays(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return the columns of a batch that has at least the columns in `read`.

        Raises TableError, naming the column, if a type of the file cannot become the table's.
        """
        import pyarrow as pa

        arrays = {}
        for column, place in self.places.items():
            try:
                arrays[column] = _array(batch, place)
            except pa.ArrowException:
                name = ".".join(step.name for step in place.path.steps)
                raise TableError(
                    f"{self._where} has a column {name} that cannot be read as {place.path.kind}, the table's type"
                ) from None
        return arrays

    def path_in_file(self, column: str) -> str | None:
        """Return the column's name in the file, in Parquet's form. None if the file lacks it."""
        place = self.places[column]
        return None if place.lacks else ".".join(place.names)


def _has_ids(fields: Iterable[pa.Field]) -> bool:
    return any(FIELD_ID in (field.metadata or {}) or _has_ids(_inner(field.type)) for field in fields)


def _inner(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(number) for number in range(kind.num_fields)]


def _place(
    of_file: pa.Schema, path: ColumnPath, has_ids: bool, constants: Mapping[int, Any], where: str
) -> ColumnPlace:
    names: list[str] = []
    fields, field = list(of_file), None
    for number, step in enumerate(path.steps):
        by_partition = step.id in constants and not has_ids
        field = None if by_partition else _find(fields, step, has_ids, where)
        if field is None:
            return ColumnPlace(path, tuple(names), has_ids, None, _constant(path.steps[number:], constants, where))
        names.append(field.name)
        fields = _inner(field.type) if _is_struct(field.type) else []
    return ColumnPlace(path, tuple(names), has_ids, field)


def _find(fields: Iterable[pa.Field], wanted: Field, has_ids: bool, where: str = "a data file") -> pa.Field | None:
    if has_ids:
        return next((f for f in fields if int((f.metadata or {}).get(FIELD_ID, -1)) == wanted.id), None)
    found = [f for f in fields if f.name in (wanted.names or ())]
    if len(found) > 1:
        raise TableError(
            f"{where} has several columns that the table's name mapping lists for {wanted.name}: "
            f"{', '.join(f.name for f in found)}. Keep only one of them in the table property {NAME_MAPPING}"
        )
    return found[0] if found else None


def _is_struct(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_struct(kind))


def _constant(missing: Sequence[Field], constants: Mapping[int, Any], where: str) -> pa.Scalar:
    """Return the value of the last of these fields, for a file that lacks the first."""
    first, *rest = missing
    if not rest:
        return scalar(first, constants.get(first.id, first.default), where)
    if not isinstance(first.default, Mapping):
        return scalar(missing[-1], None, where)
    inner = first.default.get(str(rest[0].id), rest[0].default)
    return scalar(rest[0], inner, where) if len(rest) == 1 else _constant(rest, {}, where)


def scalar(field: Field, value: Any, where: str = "the table") -> pa.Scalar:
    """Return a partition value, or a default, in the table's type. Raises TableError if the type does not fit."""
    import pyarrow as pa

    try:
        return pa.scalar(None if value is None else _plain(field, value), arrow_type(field))
    except (pa.ArrowException, ValueError, TypeError, ArithmeticError):
        raise TableError(f"{where} has a value for {field.name} that cannot be read as {field.kind}") from None


def _plain(field: Field, value: Any) -> Any:
    """Convert a value of Iceberg's JSON or of PyIceberg for pyarrow. Times become whole numbers."""
    kind = field.kind
    if kind == "struct":
        return {each.name: None if (v := value.get(str(each.id), each.default)) is None else _plain(each, v)
                for each in field.fields}  # fmt: skip
    if kind == "date":
        value = date.fromisoformat(value) if isinstance(value, str) else value
        return value if isinstance(value, int) else (value - date(1970, 1, 1)).days
    if kind == "time":
        value = time.fromisoformat(value) if isinstance(value, str) else value
        return value if isinstance(value, int) else _micros(datetime.combine(date(1970, 1, 1), value))
    if kind.startswith("timestamp"):
        return _since_epoch(value, 1000 if kind.endswith("_ns") else 1)
    if kind.startswith("decimal"):
        return Decimal(str(value))
    if kind in ("float", "double"):
        return float(value)
    if kind == "uuid" and not isinstance(value, bytes):
        return UUID(str(value)).bytes
    return bytes.fromhex(value) if isinstance(value, str) and (kind == "binary" or kind.startswith("fixed")) else value


def _since_epoch(value: Any, units: int) -> int:
    """Return a timestamp as a whole number. `units`: units in a microsecond."""
    if isinstance(value, int):
        return value
    if isinstance(value, datetime):
        return _micros(value) * units
    whole, _, fraction = value.partition(".")
    digits = fraction[: len(fraction) - len(fraction.lstrip("0123456789"))]
    nanos = int(digits.ljust(9, "0")[:9] or 0)
    seconds = _micros(datetime.fromisoformat(whole + fraction[len(digits) :])) * units
    return seconds + (nanos if units == 1000 else nanos // 1000)


def _micros(moment: datetime) -> int:
    plain = moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
    return (plain - _EPOCH) // _MICROSECOND


def arrow_type(field: Field) -> pa.DataType:
    """Return the Arrow type of a column. Null for a type that Arrow does not have."""
    import pyarrow as pa

    kind = field.kind
    if kind == "struct":
        return pa.struct([(each.name, arrow_type(each)) for each in field.fields])
    if kind == "list":
        return pa.list_(arrow_type(field.fields[0]))
    if kind == "map":
        return pa.map_(*map(arrow_type, field.fields))
    if kind.startswith("decimal("):
        return pa.decimal128(*map(int, kind[len("decimal(") : -1].split(",")))
    if kind.startswith("fixed["):
        return pa.binary(int(kind[len("fixed[") : -1]))
    types = {
        "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
        "date": pa.date32(), "time": pa.time64("us"), "string": pa.string(), "binary": pa.binary(),
        "uuid": pa.binary(16), "timestamp": pa.timestamp("us"), "timestamptz": pa.timestamp("us", "UTC"),
        "timestamp_ns": pa.timestamp("ns"), "timestamptz_ns": pa.timestamp("ns", "UTC"),
    }  # fmt: skip
    return types.get(kind, pa.null())


def _read(of_file: pa.Schema, place: ColumnPlace) -> tuple[str, ...]:
    """Return the path to read for a column.

    If a struct in the file lacks the column, returns another field of the struct, which shows whether the struct is
    null.
    """
    if not place.lacks:
        return place.names
    names, kind = list(place.names), of_file.field(place.names[0]).type
    for name in place.names[1:]:
        kind = kind.field(name).type
    while _is_struct(kind):
        names.append(kind.field(0).name)
        kind = kind.field(0).type
    return tuple(names)


def _array(batch: pa.RecordBatch, place: ColumnPlace) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not place.names:
        return pa.repeat(place.constant, batch.num_rows)
    first, *inner = place.names
    array = batch.column(first)
    for name in inner:
        array = pc.struct_field(array, name)
    if place.of_file is not None:
        return adapted(array, place.path.leaf, place.of_file, place.has_ids)
    return pc.if_else(array.is_valid(), place.constant, pa.scalar(None, place.constant.type))


def adapted(array: pa.Array, field: Field, of_file: pa.Field, has_ids: bool) -> pa.Array:
    """Convert an array of a file to the table's type.

    Finds fields of structs by ids or names. Narrower types become wider. Raises pyarrow.ArrowException if the
    conversion is impossible.
    """
    import pyarrow as pa

    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if pa.types.is_dictionary(kind):
        return array.cast(kind.value_type)
    if field.fields:
        return _adapted_nested(array, field, of_file, has_ids)
    wanted = arrow_type(field)
    if pa.types.is_timestamp(wanted) and (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        return array if kind == wanted else array.cast(wanted)
    widens = (
        (pa.types.is_integer(kind) and field.kind == "long")
        or (pa.types.is_floating(kind) and field.kind == "double")
        or (pa.types.is_decimal(kind) and pa.types.is_decimal(wanted))
    )
    return array.cast(wanted) if widens and kind != wanted else array


def _adapted_nested(array: pa.Array, field: Field, of_file: pa.Field, has_ids: bool) -> pa.Array:
    import pyarrow as pa

    kind = array.type
    if array.offset and not _is_struct(kind):
        array = pa.concat_arrays([array])
    if field.kind == "list" and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        values = adapted(array.values, field.fields[0], of_file.type.value_field, has_ids)
        return type(array).from_arrays(array.offsets, values, mask=array.is_null() if array.null_count else None)
    if field.kind == "map" and pa.types.is_map(kind):
        key, item = field.fields
        keys = adapted(array.keys, key, of_file.type.key_field, has_ids)
        items = adapted(array.items, item, of_file.type.item_field, has_ids)
        return pa.MapArray.from_arrays(array.offsets, keys, items, mask=array.is_null() if array.null_count else None)
    if field.kind != "struct" or not _is_struct(kind):
        return array
    children = []
    for each in field.fields:
        inner = _find(_inner(of_file.type), each, has_ids)
        if inner is None:
            children.append(pa.repeat(_constant([each], {}, "the file"), len(array)))
        else:
            at = of_file.type.get_field_index(inner.name)
            children.append(adapted(array.field(at), each, inner, has_ids))
    names = [each.name for each in field.fields]
    return pa.StructArray.from_arrays(children, names=names, mask=array.is_null())
