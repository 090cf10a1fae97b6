"""Holds what the footers of Parquet files say of their logs, where Iceberg's metadata are silent, as with some
sinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.io import load_file_io

from cleantail.config.topic_table import KEY, OFFSET, PARTITION, VALUE
from cleantail.lake.parquet_footers import columns_in
from cleantail.log.ranks.row_offsets import LAST_UPDATED, ROW_ID, Lineage, Span, offset_range
from spark_jobs.iceberg.file_columns import Layout, has_offsets, paths_in
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
            paths = paths_in(parquet.schema_arrow, task.layout, (PARTITION, OFFSET, KEY, VALUE))
            bounded = _with_bounds(file, {path: name for name, path in paths.items()}, parquet.metadata)
            with_offsets = None if has_offsets(task.layout) else _with_made_offsets(file, bounded, parquet, task.layout)
            files.append(with_offsets or bounded)
    return files


def _with_made_offsets(file: LogFile, bounded: LogFile, parquet: Any, layout: Layout) -> LogFile:
    """Returns the file with the bounds of offsets that row lineage gives, and what the manifest did not say of keys and
    values. Without statistics of lineage that the file has itself, its offsets have no bounds."""
    names = paths_in(parquet.schema_arrow, layout, (ROW_ID, LAST_UPDATED))
    by_path = _statistics(parquet.metadata, {path: name for name, path in names.items()})
    spans = {name: _span(by_path.get(name, ())) for name in names}
    known = bounded if file.null_keys is None else file
    if None in spans.values():
        return replace(known, log=bounded.log, lower_offset=None, upper_offset=None)
    lineage = Lineage(file.first_row_id, file.updated)
    low, high = offset_range(file.records, lineage, file.path, (spans.get(ROW_ID), spans.get(LAST_UPDATED)))
    return replace(known, log=bounded.log, lower_offset=low, upper_offset=high)


def _span(statistics: Sequence[Any]) -> Span | None:
    bounds, nulls = _range(statistics), _nulls(statistics)
    return None if bounds is None or nulls is None else Span(int(bounds[0]), int(bounds[1]), nulls > 0)


def _with_bounds(file: LogFile, names: Mapping[str, str], footer: Any) -> LogFile:
    columns = _statistics(footer, names)
    partition, offset, key = (_range(columns.get(name, ())) for name in (PARTITION, OFFSET, KEY))
    in_bytes = key is not None and isinstance(key[0], bytes)
    one_log = partition is not None and partition[0] == partition[1] and _nulls(columns.get(PARTITION, ())) == 0
    return replace(
        file,
        log=int(partition[0]) if partition is not None and one_log else file.log,
        lower_offset=None if offset is None else int(offset[0]),
        upper_offset=None if offset is None else int(offset[1]),
        low_key=key[0] if key is not None and in_bytes else None,
        high_key=key[1] if key is not None and in_bytes else None,
        null_keys=_nulls(columns.get(KEY, ())),
        null_values=_nulls(columns[VALUE]) if VALUE in columns and not file.marked else file.null_values,
    )


def _statistics(footer: Any, names: Mapping[str, str]) -> dict[str, list[Any]]:
    """Returns the statistics of each column, a row group after the other. `names`: path in the file -> column."""
    columns: dict[str, list[Any]] = {}
    for group in range(footer.num_row_groups):
        for column in columns_in(footer.row_group(group)):
            if column.path_in_schema in names:
                columns.setdefault(names[column.path_in_schema], []).append(column.statistics)
    return columns


def _range(statistics: Sequence[Any]) -> tuple[Any, Any] | None:
    if not statistics or any(each is None or not each.has_min_max for each in statistics):
        return None
    return min(each.min for each in statistics), max(each.max for each in statistics)


def _nulls(statistics: Sequence[Any]) -> int | None:
    if not statistics or any(each is None or not each.has_null_count for each in statistics):
        return None
    return sum(int(each.null_count) for each in statistics)
