"""Adapter: the logs in a data file of an adopted table.

A file may hold several logs, and some sinks leave bounds out of the manifest. Then the file's Parquet footer is asked,
and where that does not tell, its partition and offset columns are read. A data file never changes, so that is done once
in a process. Offsets that no column holds are bounded by row lineage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cleantail.config.columns import Columns, part_name
from cleantail.config.topic_table import KEY, OFFSET, PARTITION, TIMESTAMP, VALUE
from cleantail.errors import TableError
from cleantail.lake.columns_property import PROPERTY_COLUMNS, property_of_columns
from cleantail.lake.parquet_footers import columns_in, null_count
from cleantail.lake.records.row_lineage import NO_LINEAGES, Lineages, spans_of
from cleantail.log.ranks.row_offsets import offset_range, require_row_ids
from cleantail.log.segments import NO_TIMESTAMP_MS, split

if TYPE_CHECKING:
    from pyiceberg.table import Table

CACHED_FILES = 100_000
"""Files whose content is remembered at once."""
_parts_by_file: dict[tuple[str, str], tuple[Part, ...]] = {}


@dataclass(frozen=True, slots=True)
class Part:
    """One log's share of a file; both offset bounds are inclusive, times are Unix ms.

    `nulls`: tombstones, `null_keys`: records without a key, if known."""

    partition: int
    lower_offset: int
    upper_offset: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    records: int
    nulls: int | None = None
    null_keys: int | None = None


def parts_of(table: Table, file: Any, columns: Columns, lineages: Lineages = NO_LINEAGES) -> tuple[Part, ...]:
    """Returns the logs in an adopted table's file: from the manifest, else its footer, else its records. Raises
    TableError where records have neither offsets nor row ids."""
    if not columns.has_offsets:
        return _by_lineage(table, file, columns, lineages)
    return _by_offset(table, file, columns)


def _by_lineage(table: Table, file: Any, columns: Columns, lineages: Lineages) -> tuple[Part, ...]:
    """Returns the logs with the file's bounds of offsets, which are those of each of its logs."""
    lineage = require_row_ids(lineages.get(file.file_path), file.file_path)
    low, high = offset_range(file.record_count, lineage, file.file_path, spans_of(table, file))
    return tuple(replace(part, lower_offset=low, upper_offset=high) for part in _by_offset(table, file, columns))


def _by_offset(table: Table, file: Any, columns: Columns) -> tuple[Part, ...]:
    """Returns the logs; what they have of offsets is 0 where the table has none."""
    key = (file.file_path, str(table.properties.get(PROPERTY_COLUMNS, property_of_columns(columns))))
    if (known := _parts_by_file.get(key)) is None:
        single = _from_manifest(table, file, columns) or _from_footer(table, file, columns)
        if single and columns.parts(KEY) and single.null_keys is None:
            single = None  # which keys have no part at all only the records tell
        parts = (single,) if single else tuple(_from_records(table, file, columns))
        if len(_parts_by_file) >= CACHED_FILES:
            _parts_by_file.clear()
        _parts_by_file[key] = known = _with_marks(table, file, columns, parts) if columns.deleted else parts
    return known


def _with_marks(table: Table, file: Any, columns: Columns, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Returns the parts with how many records are marked as deletes, by reading that column: of several logs each is
    taken to have its share, as with deleted records."""
    from cleantail.lake.records.marked_records import marked_records

    shares = split(marked_records(table, file, columns), [part.records for part in parts])
    return tuple(replace(part, nulls=share) for part, share in zip(parts, shares, strict=True))


def _from_manifest(table: Table, file: Any, columns: Columns) -> Part | None:
    """Returns the one log that the manifest's bounds tell of; None where the bounds are not there, or say that there
    are several logs."""
    from pyiceberg.conversions import from_bytes
    from pyiceberg.types import PrimitiveType

    fields = {name: table.schema().find_field(path) for name, path in columns.paths.items()}

    def bounds(name: str, sides: tuple[Mapping[int, bytes] | None, ...]) -> list[Any]:
        field = fields.get(name)
        if field is None or not isinstance(field.field_type, PrimitiveType):
            return [None] * len(sides)
        values = [(side or {}).get(field.field_id) for side in sides]
        return [None if value is None else from_bytes(field.field_type, value) for value in values]

    counts = file.null_value_counts or {}
    if any(counts.get(fields[name].field_id) for name in (PARTITION, OFFSET) if name in fields):
        return None  # the records tell which they are
    sides = (file.lower_bounds, file.upper_bounds)
    nulls = {name: counts.get(field.field_id) for name, field in fields.items()}
    scale = _scale(table, columns)
    ranges = {name: bounds(name, sides) for name in (PARTITION, OFFSET, TIMESTAMP)} | _without_column(columns)
    if columns.timestamp and None in ranges[TIMESTAMP] and nulls[TIMESTAMP] != file.record_count:
        return None  # PyIceberg writes no bounds of nested columns: the footer tells the timestamps
    return _one_log(ranges, file.record_count, _of_columns(nulls, columns), scale)


def _without_column(columns: Columns) -> dict[str, list[Any]]:
    """Returns the ranges of partition and offset where no column has them (cleantail.log.ranks.row_offsets)."""
    return {name: [0, 0] for name in (PARTITION, OFFSET) if not columns.of(name)}


def _of_columns(nulls: Mapping[str, int | None], columns: Columns) -> dict[str, int | None]:
    """Returns how many keys and values are null. Of a key of several parts it is none where a part is never null, and
    is not known otherwise; with a mark of deletes no value says what a record is."""
    parts = [nulls.get(part_name(KEY, n)) for n in range(len(columns.parts(KEY)))]
    keys = (0 if 0 in parts else None) if parts else nulls.get(KEY)
    return {KEY: keys, VALUE: 0 if columns.deleted else nulls.get(VALUE)}


def _scale(table: Table, columns: Columns) -> int:
    """Returns how many of its units a timestamp column has in a millisecond."""
    path = columns.timestamp
    return 1 if path is None or str(table.schema().find_field(path).field_type) in ("long", "int") else 1000


def _one_log(ranges: Mapping[str, list[Any]], records: int, nulls: Mapping[str, int | None], scale: int) -> Part | None:
    (first, last), (lower, upper) = ranges[PARTITION], ranges[OFFSET]
    if first is None or first != last or lower is None or upper is None:
        return None
    start, end = ranges[TIMESTAMP]
    stamps = (_as_ms(start, scale), _as_ms(end, scale))
    return Part(int(first), int(lower), int(upper), *stamps, records, nulls.get(VALUE) or 0, nulls.get(KEY))


def _as_ms(stamp: int | None, scale: int) -> int:
    return NO_TIMESTAMP_MS if stamp is None else int(stamp) // scale


def _from_footer(table: Table, file: Any, columns: Columns) -> Part | None:
    """Returns the one log that the footer's statistics tell of; None where the footer has no statistics of a column, or
    they say that there are several logs."""
    import pyarrow.parquet as pq

    with table.io.new_input(file.file_path).open() as source:
        footer = pq.ParquetFile(source).metadata
    ranges: dict[str, list[Any]] = {PARTITION: [None, None], OFFSET: [None, None], TIMESTAMP: [None, None]}
    ranges |= _without_column(columns)
    nulls: dict[str, int | None] = dict.fromkeys(columns.paths, 0)
    names_by_path: dict[str, list[str]] = {}
    for name, path in columns.paths.items():
        names_by_path.setdefault(path, []).append(name)
    for statistics, name in (
        (column.statistics, name)
        for group in range(footer.num_row_groups)
        for column in columns_in(footer.row_group(group))
        for name in names_by_path.get(column.path_in_schema, ())
    ):
        if name in ranges:
            if statistics is None or not statistics.has_min_max or (name != TIMESTAMP and statistics.null_count):
                return None
            ranges[name] = _wider(ranges[name], statistics.min_raw, statistics.max_raw)
        has_count, before = statistics is not None and statistics.has_null_count, nulls[name]
        nulls[name] = before + statistics.null_count if has_count and before is not None else None
    return _one_log(ranges, footer.num_rows, _of_columns(nulls, columns), _scale(table, columns))


def _wider(range_: list[Any], low: int, high: int) -> list[Any]:
    return [low if range_[0] is None else min(range_[0], low), high if range_[1] is None else max(range_[1], high)]


def _from_records(table: Table, file: Any, columns: Columns) -> Iterator[Part]:
    """Yields one part for each log, by reading what says where records are; keys only where some are null, values
    never."""
    import pyarrow.compute as pc

    from cleantail.lake.records.log_records import stored_records

    names = [PARTITION, OFFSET, *((TIMESTAMP,) if TIMESTAMP in columns.paths else ())]
    nullable = all(null_count(table, file, path) != 0 for path in columns.of(KEY))
    keys = [(KEY, "count", pc.CountOptions(mode="only_null"))] if nullable else []
    records = stored_records(table, columns, [*names, KEY] if keys or not columns.has_offsets else names, [file])
    ends = [(name, end) for name in names[1:] for end in ("min", "max")]
    logs = records.group_by(PARTITION).aggregate([*ends, *keys, (OFFSET, "count")]).sort_by(PARTITION)
    value = columns.value if isinstance(columns.value, str) and columns.deleted is None else None
    null_values = (file.null_value_counts or {}).get(table.schema().find_field(value).field_id) if value else 0
    nulls = split(null_values or 0, logs[f"{OFFSET}_count"].to_pylist())
    if TIMESTAMP in names:
        for end in ("min", "max"):
            at = logs.schema.get_field_index(f"{TIMESTAMP}_{end}")
            logs = logs.set_column(at, f"{TIMESTAMP}_{end}", pc.divide(logs.column(at).cast("int64"), 1000))
    for row, count in zip(logs.to_pylist(), nulls, strict=True):
        if row[PARTITION] is None or row[f"{OFFSET}_min"] is None:
            raise TableError(f"{file.file_path} has records without a partition or an offset: they belong to no log")
        stamps = [row.get(f"{TIMESTAMP}_{end}") for end in ("min", "max")]
        low, high = (NO_TIMESTAMP_MS if s is None else int(s) for s in stamps)
        offsets, keyless = (row[f"{OFFSET}_min"], row[f"{OFFSET}_max"]), row.get(f"{KEY}_count")
        yield Part(row[PARTITION], *offsets, low, high, row[f"{OFFSET}_count"], count, keyless)
