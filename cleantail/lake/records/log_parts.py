"""Adapter: the logs in a data file of an adopted table.

A file may hold several logs, and some sinks leave bounds out of the manifest. Then the file's Parquet footer is asked,
and where that does not tell, its partition and offset columns are read. A data file never changes, so that is done once
in a process. Offsets that no column holds are bounded by row lineage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from cleantail.config.topic_table import KEY, OFFSET, PARTITION, TIMESTAMP, VALUE, Columns, part_name
from cleantail.errors import TableError
from cleantail.lake.manifest_entries import NO_LINEAGES, Lineages, spans_of
from cleantail.lake.parquet_footers import footer_statistics, null_count
from cleantail.lake.records.file_records import constants_of, layout_of_paths
from cleantail.lake.records.projection import NAME_MAPPING, Layout
from cleantail.lake.records.topic_columns import MOST_MS, PROPERTY_COLUMNS, beyond_ms, property_of_columns
from cleantail.log.adopted_table import offset_range, require_row_ids
from cleantail.log.segments import NO_TIMESTAMP_MS, split

if TYPE_CHECKING:
    from pyiceberg.table import Table

CACHED_FILES = 100_000
"""Files whose content is remembered at once."""
_parts_by_file: dict[tuple[str, str, int, str | None], tuple[Part, ...]] = {}


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
    mapping = str(table.properties.get(PROPERTY_COLUMNS, property_of_columns(columns)))
    key = (file.file_path, mapping, table.schema().schema_id, table.properties.get(NAME_MAPPING))
    if (known := _parts_by_file.get(key)) is None:
        single = _from_manifest(table, file, columns) or _from_footer(table, file, columns)
        if single and single.null_keys is None:
            single = None  # which records have no key only they tell
        parts = (single,) if single else tuple(_from_records(table, file, columns))
        if len(_parts_by_file) >= CACHED_FILES:
            _parts_by_file.clear()
        _require_times(file, columns, parts)
        _parts_by_file[key] = known = _with_marks(table, file, columns, parts) if columns.deleted else parts
    return known


def _require_times(file: Any, columns: Columns, parts: Iterable[Part]) -> None:
    """Raises TableError for whole numbers that are mapped to timestamp and cannot be Unix ms."""
    ends = (end for part in parts for end in (part.min_timestamp_ms, part.max_timestamp_ms))
    if any(abs(end) > MOST_MS for end in ends):
        raise TableError(f"{file.file_path}: {beyond_ms(str(columns.timestamp))}")


def _with_marks(table: Table, file: Any, columns: Columns, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Returns the parts with how many records are marked as deletes, by reading that column: of several logs each is
    taken to have its share, as with deleted records."""
    from cleantail.lake.records.marked_records import marked_records

    shares = split(marked_records(table, file, columns), [part.records for part in parts])
    return tuple(replace(part, nulls=share) for part, share in zip(parts, shares, strict=True))


def _from_manifest(table: Table, file: Any, columns: Columns) -> Part | None:
    """Returns the one log that the manifest's bounds and the file's partition tell of; None where they say that there
    are several logs, or leave something open that the file tells."""
    layout = _layout(table, columns)
    ids = {name: path.leaf.id for name, path in layout.items()}
    constants, counts = dict(constants_of(table, file)), file.null_value_counts or {}
    if any(counts.get(ids[name]) for name in (PARTITION, OFFSET) if name in ids):
        return None  # the records tell which they are
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
        return None  # PyIceberg writes no bounds of nested columns: the footer tells the timestamps
    return _one_log(logs, offsets, _in_ms(table, columns, stamps), file.record_count, values, keys)


def _layout(table: Table, columns: Columns) -> Layout:
    """Returns where the files have the columns, and parts of one, of the mapping."""
    by_path = layout_of_paths(table, columns.paths.values())
    return {name: by_path[path] for name, path in columns.paths.items()}


def _whole(bound: bytes) -> int:
    """Returns the number of a bound in Iceberg's single-value serialization, whose length is the type's when the file
    was written."""
    return int.from_bytes(bound, "little", signed=True)


Ends = tuple[int, int] | None


def _ends_of(name: str, columns: Columns, ends: Callable[[str], Ends]) -> Ends:
    """Returns the range of a column; of partition and offset 0 where no column has them
    (cleantail.log.adopted_table)."""
    return ends(name) if columns.of(name) else None if name == TIMESTAMP else (0, 0)


def _null_keys(columns: Columns, nulls: Callable[[str], int | None]) -> int | None:
    """Returns how many keys are null, if known: of a key of several parts it is none where a part is never null."""
    parts = [nulls(part_name(KEY, n)) for n in range(len(columns.parts(KEY)))]
    return (0 if 0 in parts else None) if parts else nulls(KEY)


def _null_values(columns: Columns, nulls: Callable[[str], int | None]) -> int | None:
    """Returns how many values are null, if known; with a mark of deletes no value says what a record is."""
    return 0 if columns.deleted or not columns.of(VALUE) else nulls(VALUE)


def _in_ms(table: Table, columns: Columns, stamps: Ends) -> Ends:
    """Returns bounds of the timestamp column in Unix ms."""
    if stamps is None or columns.timestamp is None:
        return None
    kind = layout_of_paths(table, [columns.timestamp])[columns.timestamp].kind
    scale = 1 if kind in ("long", "int") else 1000
    return stamps[0] // scale, stamps[1] // scale


def _one_log(logs: Ends, offsets: Ends, stamps: Ends, records: int, values: int, keys: int | None) -> Part | None:
    if logs is None or offsets is None or logs[0] != logs[1]:
        return None
    start, end = (NO_TIMESTAMP_MS, NO_TIMESTAMP_MS) if stamps is None else stamps
    return Part(logs[0], *offsets, start, end, records, values, keys)


def _from_footer(table: Table, file: Any, columns: Columns) -> Part | None:
    """Returns the one log that the footer's statistics tell of; None where the footer has no statistics of a column, or
    they say that there are several logs."""
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
    """Returns the figures of two lots of records as those of all of them."""
    import pyarrow as pa

    of_all = pa.concat_tables([some, more]).group_by(PARTITION).aggregate(measured)
    return of_all.rename_columns([PARTITION, *(name for name, _ in measured)])


def _from_records(table: Table, file: Any, columns: Columns) -> Iterator[Part]:
    """Yields one part for each log, by reading what says where records are; keys only where some are null, values only
    where neither manifest nor footer counts the null ones."""
    import pyarrow.compute as pc

    from cleantail.lake.records.log_records import stored_records

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
        yield Part(row[PARTITION], *offsets, low, high, row[f"{OFFSET}_count"], nulls, keyless)
