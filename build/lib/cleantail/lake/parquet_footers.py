"""Adapter: what the footers of Parquet files say where Iceberg's manifests are silent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.table import Table


def null_count(table: Table, file: Any, path: str) -> int | None:
    """Returns how many records of a file have a null there, by its manifest or its footer; None where neither says."""
    import pyarrow.parquet as pq

    field_id = table.schema().find_field(path).field_id
    if field_id in (file.null_value_counts or {}):
        return int(file.null_value_counts[field_id])
    with table.io.new_input(file.file_path).open() as source:
        footer = pq.ParquetFile(source).metadata
    groups = [footer.row_group(g) for g in range(footer.num_row_groups)]
    columns = [c for group in groups for c in columns_in(group) if c.path_in_schema == path]
    statistics = [c.statistics for c in columns if c.statistics is not None and c.statistics.has_null_count]
    complete = statistics and len(statistics) == footer.num_row_groups
    return sum(k.null_count for k in statistics) if complete else None


def columns_in(group: Any) -> Iterator[Any]:
    """Yields the column chunks of a row group."""
    for index in range(group.num_columns):
        yield group.column(index)
