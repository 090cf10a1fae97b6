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
from spark_jobs.iceberg.file_columns import Layout, paths_in
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
            files.append(_with_bounds(file, {path: name for name, path in paths.items()}, parquet.metadata))
    return files


def _with_bounds(file: LogFile, names: Mapping[str, str], footer: Any) -> LogFile:
    columns: dict[str, list[Any]] = {}
    for group in range(footer.num_row_groups):
        for column in columns_in(footer.row_group(group)):
            if column.path_in_schema in names:
                columns.setdefault(names[column.path_in_schema], []).append(column.statistics)
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


def _range(statistics: Sequence[Any]) -> tuple[Any, Any] | None:
    if not statistics or any(each is None or not each.has_min_max for each in statistics):
        return None
    return min(each.min for each in statistics), max(each.max for each in statistics)


def _nulls(statistics: Sequence[Any]) -> int | None:
    if not statistics or any(each is None or not each.has_null_count for each in statistics):
        return None
    return sum(int(each.null_count) for each in statistics)
