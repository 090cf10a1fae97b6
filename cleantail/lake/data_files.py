"""Adapter: turn Iceberg's metadata of a data file into the logs in that file.

A file of Cleantail's own holds one log, and its manifest has all bounds. A file of an adopted table may hold several
logs, and some sinks leave bounds out of the manifest. Then the bounds come from the Parquet footer. If the footer lacks
them, the partition and offset columns are read. A data file never changes, so a process reads it once. If no column
holds offsets, their bounds come from row lineage.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from cleantail.config.topic_table import KEY, OFFSET, PARTITION, TIMESTAMP, VALUE, Columns, part_name
from cleantail.errors import TableError
from cleantail.lake.manifest_entries import NO_LINEAGES, Lineages, open_parquet, spans_of
from cleantail.lake.position_deletes import DeleteFile, lost_positions, lost_records
from cleantail.lake.records.log_records import (
    constants_of,
    layout_of_paths,
    marked_records,
    require_parquet,
    stored_records,
)
from cleantail.lake.records.projection import NAME_MAPPING, Layout, Projection
from cleantail.lake.records.topic_columns import (
    MOST_MS,
    PROPERTY_COLUMNS,
    beyond_ms,
    columns_of_properties,
    property_of_columns,
)
from cleantail.log.adopted_table import offset_range, require_row_ids
from cleantail.log.segments import NO_TIMESTAMP_MS, DataFile, split

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestEntry
    from pyiceberg.table import Table


DAY_MS = 86_400_000


class Statistics:
    """Column statistics of the footer.

    A column that the file lacks has one value in all records. Exception: a struct's missing field is null in each
    record in which the struct is null.
    """

    def __init__(self, footer: Any, projection: Projection) -> None:
        self._places, self._records = projection.places, footer.num_rows
        in_file = {name: projection.path_in_file(name) for name in self._places}
        chunks: dict[str, list[Any]] = {path: [] for path in in_file.values() if path is not None}
        for group in range(footer.num_row_groups):
            columns = footer.row_group(group)
            for column in map(columns.column, range(columns.num_columns)):
                if column.path_in_schema in chunks:
                    chunks[column.path_in_schema].append(column.statistics)
        self._kinds = {name: p.of_file.type for name, p in self._places.items() if p.of_file is not None}
        self._chunks = {name: chunks[path] for name, path in in_file.items() if path is not None}

    def range(self, column: str) -> tuple[Any, Any] | None:
        """Return the lowest and the highest value. None if they are unknown or there is no value."""
        if column not in self._places:
            return None
        if column not in self._chunks:
            value = self._places[column].constant.as_py()
            return None if value is None else (value, value)
        of_column = self._chunks[column]
        if not of_column or any(each is None or not each.has_min_max for each in of_column):
            return None
        return min(each.min for each in of_column), max(each.max for each in of_column)

    def nulls(self, column: str) -> int | None:
        """Return how many records have a null. None if unknown."""
        if column not in self._places:
            return None
        if column not in self._chunks:
            place = self._places[column]
            if not place.constant.is_valid:
                return int(self._records)
            return None if place.names else 0
        of_column = self._chunks[column]
        if not of_column or any(each is None or not each.has_null_count for each in of_column):
            return None
        return sum(int(each.null_count) for each in of_column)

    def millis(self, column: str) -> tuple[int, int] | None:
        """Return the bounds of times in Unix ms. Whole numbers are taken as Unix ms."""
        if column not in self._chunks:
            ends = self.range(column)
            return None if ends is None else (_constant_ms(ends[0]), _constant_ms(ends[1]))
        of_column = self._chunks[column]
        if not of_column or any(each is None or not each.has_min_max for each in of_column):
            return None
        kind = self._kinds[column]
        lows, highs = [each.min_raw for each in of_column], [each.max_raw for each in of_column]
        return _raw_in_ms(min(lows), kind), _raw_in_ms(max(highs), kind)


def _raw_in_ms(raw: int, kind: Any) -> int:
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return raw * 1000 if kind.unit == "s" else raw // {"us": 1_000, "ns": 1_000_000}.get(kind.unit, 1)
    return raw * DAY_MS if pa.types.is_date(kind) else raw


def _constant_ms(value: Any) -> int:
    """Convert a constant to Unix ms: a timestamp, or whole Unix ms."""
    if isinstance(value, int):
        return value
    import pyarrow as pa

    return int(pa.scalar(value, pa.timestamp("us", "UTC" if value.tzinfo else None)).value) // 1000


def null_count(table: Table, file: Any, path: str) -> int | None:
    """Return the number of records with a null in the column, from the manifest, the partition or the footer.

    None if all three lack it.
    """
    counted = layout_of_paths(table, [path])[path].null_count(file.null_value_counts or {})
    if counted is not None:
        return counted
    return footer_statistics(table, file, {path: path}).nulls(path)


def footer_statistics(table: Table, file: Any, paths: Mapping[str, str]) -> Statistics:
    """Return the footer's column statistics. `paths`: name -> path."""
    by_path = layout_of_paths(table, paths.values())
    layout = {name: by_path[path] for name, path in paths.items()}
    with table.io.new_input(file.file_path).open() as source:
        parquet = open_parquet(source, file.file_path)
        projection = Projection(parquet.schema_arrow, layout, layout, constants_of(table, file), file.file_path)
        return Statistics(parquet.metadata, projection)


CACHED_FILES = 100_000
"""Maximum number of cached files."""
_parts_by_file: dict[tuple[str, str, int, str | None], tuple[FilePart, ...]] = {}


@dataclass(frozen=True, slots=True)
class FilePart:
    """One log's share of a file. Both offset bounds are inclusive, times are Unix ms.

    `nulls`: number of tombstones; `null_keys`: number of records without a key. Both None if unknown.
    """

    partition: int
    lower_offset: int
    upper_offset: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    records: int
    nulls: int | None = None
    null_keys: int | None = None


def parts_of(table: Table, file: Any, columns: Columns, lineages: Lineages = NO_LINEAGES) -> tuple[FilePart, ...]:
    """Return the logs in an adopted table's file: from the manifest, else its footer, else its records.

    Raises TableError if records have neither offsets nor row ids.
    """
    if not columns.has_offsets:  # row lineage gives the offset bounds of the whole file
        lineage = require_row_ids(lineages.get(file.file_path), file.file_path)
        low, high = offset_range(file.record_count, lineage, file.file_path, spans_of(table, file))
        return tuple(replace(part, lower_offset=low, upper_offset=high) for part in _by_offset(table, file, columns))
    return _by_offset(table, file, columns)


def _by_offset(table: Table, file: Any, columns: Columns) -> tuple[FilePart, ...]:
    """Return the file's logs. Their offset bounds are 0 if the table has no offset column."""
    mapping = str(table.properties.get(PROPERTY_COLUMNS, property_of_columns(columns)))
    key = (file.file_path, mapping, table.schema().schema_id, table.properties.get(NAME_MAPPING))
    if (known := _parts_by_file.get(key)) is None:
        single = _from_manifest(table, file, columns) or _from_footer(table, file, columns)
        if single and single.null_keys is None:
            single = None  # only the records show which of them lack a key
        parts = (single,) if single else tuple(_from_records(table, file, columns))
        if len(_parts_by_file) >= CACHED_FILES:
            _parts_by_file.clear()
        ends = (end for part in parts for end in (part.min_timestamp_ms, part.max_timestamp_ms))
        if any(abs(end) > MOST_MS for end in ends):
            raise TableError(f"{file.file_path}: {beyond_ms(str(columns.timestamp))}")
        _parts_by_file[key] = known = _with_marks(table, file, columns, parts) if columns.deleted else parts
    return known


def _with_marks(table: Table, file: Any, columns: Columns, parts: tuple[FilePart, ...]) -> tuple[FilePart, ...]:
    """Return the parts with the number of records marked as deletes, from the marking column.

    If the file has several logs, the number is split by their shares, as with deleted records.
    """
    shares = split(marked_records(table, file, columns), [part.records for part in parts])
    return tuple(replace(part, nulls=share) for part, share in zip(parts, shares, strict=True))


def _from_manifest(table: Table, file: Any, columns: Columns) -> FilePart | None:
    """Return the single log, from the manifest's bounds and the file's partition.

    None if there are several logs, or if the file itself has to be read.
    """
    layout = _layout(table, columns)
    ids = {name: path.leaf.id for name, path in layout.items()}
    constants, counts = dict(constants_of(table, file)), file.null_value_counts or {}
    if any(counts.get(ids[name]) for name in (PARTITION, OFFSET) if name in ids):
        return None  # only the records show which logs these are
    sides = (file.lower_bounds or {}, file.upper_bounds or {})

    def ends(name: str) -> tuple[int, int] | None:
        low, high = (side.get(ids[name]) for side in sides)
        constant = constants.get(ids[name])
        if low is None or high is None:
            return None if low is not None or high is not None or constant is None else (int(constant),) * 2
        bounds = _whole(low), _whole(high)
        return bounds if constant is None or bounds == (constant, constant) else None

    def nulls(name: str) -> int | None:
        number = ids[name]
        known = None if number not in constants else file.record_count if constants[number] is None else 0
        return known if (count := layout[name].null_count(counts)) is None else count

    logs, offsets, stamps = (_ends_of(name, columns, ends) for name in (PARTITION, OFFSET, TIMESTAMP))
    keys, values = _null_keys(columns, nulls), _null_values(columns, nulls)
    if logs is None or offsets is None or values is None or (keys is None and not columns.parts(KEY)):
        return None
    if columns.timestamp and stamps is None and nulls(TIMESTAMP) != file.record_count:
        return None  # PyIceberg writes no bounds of nested columns: the timestamps are in the footer
    return _one_log(logs, offsets, _in_ms(table, columns, stamps), file.record_count, values, keys)


def _layout(table: Table, columns: Columns) -> Layout:
    """Return the places of the mapping's columns in the files, and the parts of such a column."""
    by_path = layout_of_paths(table, columns.paths.values())
    return {name: by_path[path] for name, path in columns.paths.items()}


def _whole(bound: bytes) -> int:
    """Decode a whole-number bound in Iceberg's single-value serialization.

    Its length is that of the column's type when the file was written.
    """
    return int.from_bytes(bound, "little", signed=True)


Ends = tuple[int, int] | None


def _ends_of(name: str, columns: Columns, ends: Callable[[str], Ends]) -> Ends:
    """Return the range of a column. (0, 0) if the table has no partition or offset column
    (cleantail.log.adopted_table).
    """
    return ends(name) if columns.of(name) else None if name == TIMESTAMP else (0, 0)


def _null_keys(columns: Columns, nulls: Callable[[str], int | None]) -> int | None:
    """Return how many keys are null, None if unknown. A key of several parts is not null if one part never is."""
    parts = [nulls(part_name(KEY, n)) for n in range(len(columns.parts(KEY)))]
    return (0 if 0 in parts else None) if parts else nulls(KEY)


def _null_values(columns: Columns, nulls: Callable[[str], int | None]) -> int | None:
    """Return how many values are null, None if unknown. 0 if a column marks deletes: then values do not decide."""
    return 0 if columns.deleted or not columns.of(VALUE) else nulls(VALUE)


def _in_ms(table: Table, columns: Columns, stamps: Ends) -> Ends:
    """Convert the bounds of the timestamp column to Unix ms."""
    if stamps is None or columns.timestamp is None:
        return None
    kind = layout_of_paths(table, [columns.timestamp])[columns.timestamp].kind
    scale = 1 if kind in ("long", "int") else 1000
    return stamps[0] // scale, stamps[1] // scale


def _one_log(logs: Ends, offsets: Ends, stamps: Ends, records: int, values: int, keys: int | None) -> FilePart | None:
    if logs is None or offsets is None or logs[0] != logs[1]:
        return None
    start, end = (NO_TIMESTAMP_MS, NO_TIMESTAMP_MS) if stamps is None else stamps
    return FilePart(logs[0], *offsets, start, end, records, values, keys)


def _from_footer(table: Table, file: Any, columns: Columns) -> FilePart | None:
    """Return the single log, from the footer's statistics.

    None if the footer lacks the statistics of a column, or if there are several logs.
    """
    statistics = footer_statistics(table, file, columns.paths)

    def ends(name: str) -> Ends:
        found = statistics.millis(name) if name == TIMESTAMP else statistics.range(name)
        return None if found is None else (int(found[0]), int(found[1]))

    if any(statistics.nulls(name) for name in (PARTITION, OFFSET) if columns.of(name)):
        return None
    logs, offsets, stamps = (_ends_of(name, columns, ends) for name in (PARTITION, OFFSET, TIMESTAMP))
    if columns.timestamp and stamps is None and statistics.nulls(TIMESTAMP) != file.record_count:
        return None
    values = _null_values(columns, statistics.nulls)
    if values is None:
        return None
    return _one_log(logs, offsets, stamps, file.record_count, values, _null_keys(columns, statistics.nulls))


def _together(measured: Sequence[tuple[str, str]], some: Any, more: Any) -> Any:
    """Combine the figures of two sets of records."""
    import pyarrow as pa

    of_all = pa.concat_tables([some, more]).group_by(PARTITION).aggregate(measured)
    return of_all.rename_columns([PARTITION, *(name for name, _ in measured)])


def _from_records(table: Table, file: Any, columns: Columns) -> Iterator[FilePart]:
    """Yield one part for each log, from the file's partition, offset and timestamp columns.

    Keys are read only if some may be null, values only if neither manifest nor footer counts their nulls.
    """
    import pyarrow.compute as pc

    has_stamps = TIMESTAMP in columns.paths
    names = [PARTITION, OFFSET, *((TIMESTAMP,) if has_stamps else ())]
    nullable = all(null_count(table, file, path) != 0 for path in columns.of(KEY))
    total = _null_values(columns, lambda _: null_count(table, file, columns.of(VALUE)[0]))
    counted = [*((KEY,) if nullable or not columns.has_offsets else ()), *((VALUE,) if total is None else ())]
    batches = stored_records(table, columns, [*names, *counted], file)
    ends = [(name, end) for name in names[1:] for end in ("min", "max")]
    of_nulls = [(name, "count", pc.CountOptions(mode="only_null")) for name in counted]
    measured = [*ends, *of_nulls, (OFFSET, "count")]
    of_batch = (records.group_by(PARTITION).aggregate(measured) for records in batches)
    together = [(f"{name}_{kind}", "sum" if kind == "count" else kind) for name, kind, *_ in measured]
    logs = reduce(partial(_together, together), of_batch).sort_by(PARTITION)
    if has_stamps:
        for end in ("min", "max"):
            at = logs.schema.get_field_index(f"{TIMESTAMP}_{end}")
            logs = logs.set_column(at, f"{TIMESTAMP}_{end}", pc.divide(logs.column(at).cast("int64"), 1000))
    rows = logs.to_pylist()
    shares = split(total or 0, [row[f"{OFFSET}_count"] for row in rows])
    for row, share in zip(rows, shares, strict=True):
        if row[PARTITION] is None or row[f"{OFFSET}_min"] is None:
            raise TableError(f"{file.file_path} has records without a partition or an offset: they belong to no log")
        stamps = [row.get(f"{TIMESTAMP}_{end}") for end in ("min", "max")]
        low, high = (NO_TIMESTAMP_MS if s is None else int(s) for s in stamps)
        offsets, keyless = (row[f"{OFFSET}_min"], row[f"{OFFSET}_max"]), row.get(f"{KEY}_count")
        nulls = row.get(f"{VALUE}_count", share)
        yield FilePart(row[PARTITION], *offsets, low, high, row[f"{OFFSET}_count"], nulls, keyless)


_lost_by_file: dict[tuple[Any, ...], tuple[int, ...]] = {}


def data_files_of(
    table: Table, entry: ManifestEntry, deletes: Sequence[DeleteFile], lineages: Lineages = NO_LINEAGES
) -> list[DataFile]:
    """Return one DataFile for every log in the file of a manifest entry.

    `deletes`: the delete files of that file. `lineages`: those of the snapshot's files, in an adopted table without
    offsets. Each log gets its own number of lost records, because that number decides its start, segments and
    retention. Bytes and tombstones of a file of several logs are split by numbers of records; their sums are exact.
    Raises TableError for a file that is not Parquet.
    """
    require_parquet(entry.data_file.file_path, entry.data_file.file_format)
    columns = columns_of_properties(table.properties)
    records, arrived = entry.data_file.record_count, entry.sequence_number or 0
    deleted = lost_records(table.io, deletes, records, arrived) if deletes else 0
    if columns is None:
        return [_single_log_file(table, entry, deleted)]
    parts = parts_of(table, entry.data_file, columns, lineages)
    iceberg_partition = f"{entry.data_file.spec_id} {entry.data_file.partition}"
    of_parts = [p.records for p in parts]
    nulls = sum(p.nulls or 0 for p in parts)
    lost = _lost_by_log(table, entry, columns, parts, deletes, deleted)
    shares = zip(
        parts, lost, split(entry.data_file.file_size_in_bytes, of_parts), split(nulls, of_parts), strict=True
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


def _lost_by_log(
    table: Table,
    entry: ManifestEntry,
    columns: Columns,
    parts: Sequence[FilePart],
    deletes: Sequence[DeleteFile],
    lost: int,
) -> tuple[int, ...]:
    """Return how many of each part's records are deleted.

    Iceberg's metadata has that number only for a whole file. For a file of several logs, a process reads the deleted
    positions and the partitions of the file's records once.
    """
    records = tuple(part.records for part in parts)
    if len(parts) == 1 or lost in (0, sum(records)):
        return (lost,) if len(parts) == 1 else records if lost else (0,) * len(parts)
    file, sequence_number = entry.data_file, entry.sequence_number or 0
    key = (file.file_path, sequence_number, columns.partition, *((d.path, d.start) for d in deletes))
    if (known := _lost_by_file.get(key)) is None:
        import numpy as np
        from pyroaring import BitMap64

        if len(_lost_by_file) >= CACHED_FILES:
            _lost_by_file.clear()
        positions = lost_positions(table.io, deletes, file.record_count, sequence_number)
        counts, at = Counter[int](), 0
        for records_read in stored_records(table, columns, [PARTITION], file):
            partitions, end = records_read[PARTITION].to_numpy(), at + len(records_read)
            inside = np.array((positions & BitMap64(range(at, end))).to_array(), np.int64)
            counts.update(partitions[inside - at].tolist())
            at = end
        _lost_by_file[key] = known = tuple(counts[part.partition] for part in parts)
    return known


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
    """Convert a bound from Iceberg's microseconds to Kafka's milliseconds."""
    return NO_TIMESTAMP_MS if bound is None else int(struct.unpack("<q", bound)[0]) // 1000
