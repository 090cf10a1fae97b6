"""Adapter: what Iceberg says of a data file, as the logs in it.

A file of Cleantail's own holds one log, and its manifest has all bounds. Sinks write otherwise: a file may hold
several logs, and some sinks leave bounds out. Then the file's Parquet footer is asked, and where that does not tell,
its partition and offset columns are read. A data file never changes, so that is done once in a process.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cleantail.config.columns import PROPERTY_COLUMNS, Columns, columns_of_properties, part_name
from cleantail.config.topic_table import KEY, OFFSET, PARTITION, TIMESTAMP, VALUE
from cleantail.errors import TableError
from cleantail.lake.parquet_footers import columns_in, null_count
from cleantail.log.segments import NO_TIMESTAMP_MS, DataFile, split

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestEntry
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


def data_files_of(table: Table, entry: ManifestEntry, deleted: int) -> list[DataFile]:
    """Returns one DataFile for every log in the file of a manifest entry, `deleted` of whose records are deleted.

    Which log lost how many is not known where there are several: each is taken to have lost its share, and so with
    bytes and tombstones; the sums are exact.
    """
    columns = columns_of_properties(table.properties)
    if columns is None:
        return [_single_log_file(table, entry, deleted)]
    parts = parts_of(table, entry.data_file, columns)
    iceberg_partition = f"{entry.data_file.spec_id} {entry.data_file.partition}"
    records = [p.records for p in parts]
    nulls = sum(p.nulls or 0 for p in parts)
    shares = zip(
        parts, split(deleted, records), split(entry.data_file.file_size_in_bytes, records), split(nulls, records),
        strict=True,
    )  # fmt: skip
    return [
        DataFile(
            path=entry.data_file.file_path,
            partition=part.partition,
            lower_offset=part.lower_offset,
            upper_offset=part.upper_offset,
            min_timestamp_ms=part.min_timestamp_ms,
            max_timestamp_ms=part.max_timestamp_ms,
            records=part.records,
            deleted_records=deleted_of_log,
            size_bytes=size,
            null_values=tombstones,
            data_sequence_number=entry.sequence_number or 0,
            snapshot_id=entry.snapshot_id or 0,
            iceberg_partition=iceberg_partition,
            null_keys=part.null_keys or 0,
        )
        for part, deleted_of_log, size, tombstones in shares
    ]


def _single_log_file(table: Table, entry: ManifestEntry, deleted: int) -> DataFile:
    file = entry.data_file
    ids = {name: table.schema().find_field(name).field_id for name in (OFFSET, TIMESTAMP, KEY, VALUE)}
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    return DataFile(
        path=file.file_path,
        partition=int(file.partition[0]),
        lower_offset=_long(lower.get(ids[OFFSET]), file.file_path),
        upper_offset=_long(upper.get(ids[OFFSET]), file.file_path),
        min_timestamp_ms=_millis(lower.get(ids[TIMESTAMP])),
        max_timestamp_ms=_millis(upper.get(ids[TIMESTAMP])),
        records=file.record_count,
        deleted_records=deleted,
        size_bytes=file.file_size_in_bytes,
        null_values=(file.null_value_counts or {}).get(ids[VALUE], 0),
        data_sequence_number=entry.sequence_number or 0,
        snapshot_id=entry.snapshot_id or 0,
        null_keys=(file.null_value_counts or {}).get(ids[KEY], 0),
    )


def _long(bound: bytes | None, path: str) -> int:
    if bound is None:
        raise TableError(
            f"{path} has no bounds for the column offset: set write.metadata.metrics.default=full and rewrite it"
        )
    return int(struct.unpack("<q", bound)[0])


def _millis(bound: bytes | None) -> int:
    """Iceberg keeps timestamps in microseconds, Kafka in milliseconds."""
    return NO_TIMESTAMP_MS if bound is None else int(struct.unpack("<q", bound)[0]) // 1000


def parts_of(table: Table, file: Any, columns: Columns) -> tuple[Part, ...]:
    """Returns the logs in an adopted table's file: from the manifest, else its footer, else its records."""
    key = (file.file_path, str(table.properties.get(PROPERTY_COLUMNS, columns.as_property())))
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
    if any(counts.get(fields[name].field_id) for name in (PARTITION, OFFSET)):
        return None  # the records tell which they are
    sides = (file.lower_bounds, file.upper_bounds)
    nulls = {name: counts.get(field.field_id) for name, field in fields.items()}
    scale = _scale(table, columns)
    ranges = {name: bounds(name, sides) for name in (PARTITION, OFFSET, TIMESTAMP)}
    return _one_log(ranges, file.record_count, _of_columns(nulls, columns), scale)


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

    names = [n for n in (PARTITION, OFFSET, TIMESTAMP) if n in columns.paths]
    nullable = all(null_count(table, file, path) != 0 for path in columns.of(KEY))
    keys = [(KEY, "count", pc.CountOptions(mode="only_null"))] if nullable else []
    records = stored_records(table, columns, [*names, KEY] if keys else names, [file])
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
