"""Holds what the footers of Parquet files say of their logs, where Iceberg's metadata are silent, as with some
sinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow.parquet as pq
from pyiceberg.io import load_file_io

from cleantail.config.topic_table import KEY, OFFSET, PARTITION, VALUE
from cleantail.lake.data_files import Statistics
from cleantail.log.adopted_table import LAST_UPDATED, ROW_ID, Lineage, Span, offset_range
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
