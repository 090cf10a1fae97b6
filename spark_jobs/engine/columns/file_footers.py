"""Holds what the footers of Parquet files say of their logs, where Iceberg's metadata are silent, as with some
sinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.io import load_file_io

from cleantail.config.topic_table import KEY, OFFSET, PARTITION, VALUE
from cleantail.lake.parquet_footers import columns_in
from cleantail.log.ranks.row_offsets import LAST_UPDATED, ROW_ID, Lineage, Span, offset_range
from spark_jobs.iceberg.file_columns import Layout, Projection, has_offsets, parts_in
from spark_jobs.iceberg.log_files import LogFile


@dataclass(frozen=True, slots=True)
class FooterTask:
    """Holds some files whose footers one task reads."""

    files: tuple[LogFile, ...]
    layout: Layout
    location: str


def read_footers(properties: Mapping[str, str], task: FooterTask) -> list[LogFile]:
    """Returns the files with the bounds that their footers have. `properties`: of PyIceberg's FileIO."""
    io = load_file_io(dict(properties), task.location)
    files = []
    for file in task.files:
        with io.new_input(file.path).open() as stream:
            parquet = pq.ParquetFile(stream)
            columns = (PARTITION, OFFSET, KEY, VALUE, *parts_in(task.layout, KEY), ROW_ID, LAST_UPDATED)
            projection = Projection(parquet.schema_arrow, task.layout, columns, file.constants, file.path)
            statistics = Statistics(parquet.metadata, projection)
            bounded = _with_bounds(file, statistics, task.layout)
            with_offsets = None if has_offsets(task.layout) else _with_made_offsets(file, bounded, statistics)
            files.append(with_offsets or bounded)
    return files


class Statistics:
    """Says what the footer of a file has on columns. A column that the file lacks is one value in all its records,
    unless it is a field of a struct that the file has: where that is null, so is the field."""

    def __init__(self, footer: Any, projection: Projection) -> None:
        self._places, self._records = projection.places, footer.num_rows
        in_file = {name: projection.path_in_file(name) for name in self._places}
        chunks: dict[str, list[Any]] = {path: [] for path in in_file.values() if path is not None}
        for group in range(footer.num_row_groups):
            for column in columns_in(footer.row_group(group)):
                if column.path_in_schema in chunks:
                    chunks[column.path_in_schema].append(column.statistics)
        self._chunks = {name: chunks[path] for name, path in in_file.items() if path is not None}

    def range(self, column: str) -> tuple[Any, Any] | None:
        """Returns the lowest and the highest value; None if they are not known, or there is none."""
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
        """Returns how many records have a null; None if that is not known."""
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


def _with_made_offsets(file: LogFile, bounded: LogFile, statistics: Statistics) -> LogFile:
    """Returns the file with the bounds of offsets that row lineage gives, and what the manifest did not say of keys and
    values. Without statistics of lineage that the file has itself, its offsets have no bounds."""
    known = bounded if file.null_keys is None else file
    spans = [_span(file, statistics, name) for name in (ROW_ID, LAST_UPDATED)]
    if UNKNOWN in spans:
        return replace(known, log=bounded.log, lower_offset=None, upper_offset=None)
    lineage = Lineage(file.first_row_id, file.updated)
    row_ids, updated = (span if isinstance(span, Span) else None for span in spans)
    low, high = offset_range(file.records, lineage, file.path, (row_ids, updated))
    return replace(known, log=bounded.log, lower_offset=low, upper_offset=high)


UNKNOWN = "unknown"


def _span(file: LogFile, statistics: Statistics, column: str) -> Span | str | None:
    """Returns what the file has itself of a column of lineage: None if it has nothing of it."""
    bounds, nulls = statistics.range(column), statistics.nulls(column)
    if nulls == file.records:
        return None
    return UNKNOWN if bounds is None or nulls is None else Span(int(bounds[0]), int(bounds[1]), nulls > 0)


def _with_bounds(file: LogFile, statistics: Statistics, layout: Layout) -> LogFile:
    partition, offset, key = (statistics.range(name) for name in (PARTITION, OFFSET, KEY))
    in_bytes = key is not None and KEY in layout and layout[KEY].kind == "binary"
    one_log = partition is not None and partition[0] == partition[1] and statistics.nulls(PARTITION) == 0
    return replace(
        file,
        log=int(partition[0]) if partition is not None and one_log else file.log,
        lower_offset=None if offset is None else int(offset[0]),
        upper_offset=None if offset is None else int(offset[1]),
        low_key=key[0] if key is not None and in_bytes else None,
        high_key=key[1] if key is not None and in_bytes else None,
        null_keys=_null_keys(statistics, layout),
        null_values=statistics.nulls(VALUE) if VALUE in layout and not file.marked else file.null_values,
    )


def _null_keys(statistics: Statistics, layout: Layout) -> int | None:
    """Returns how many records have no key: of a key of several parts none if a part is never null."""
    if parts := [statistics.nulls(name) for name in parts_in(layout, KEY)]:
        return 0 if 0 in parts else None
    return statistics.nulls(KEY)
