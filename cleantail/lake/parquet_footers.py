"""Adapter: what the footers of Parquet files say where Iceberg's manifests are silent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cleantail.lake.records.file_records import constants_of, layout_of_paths
from cleantail.lake.records.projection import Projection

if TYPE_CHECKING:
    from pyiceberg.table import Table

DAY_MS = 86_400_000


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
        self._kinds = {name: p.of_file.type for name, p in self._places.items() if p.of_file is not None}
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

    def millis(self, column: str) -> tuple[int, int] | None:
        """Returns the bounds of times in Unix ms; whole numbers count them."""
        if column not in self._chunks:
            ends = self.range(column)
            return None if ends is None else (_millis(ends[0]), _millis(ends[1]))
        of_column = self._chunks[column]
        if not of_column or any(each is None or not each.has_min_max for each in of_column):
            return None
        kind = self._kinds[column]
        lows, highs = [each.min_raw for each in of_column], [each.max_raw for each in of_column]
        return _in_ms(min(lows), kind), _in_ms(max(highs), kind)


_PER_MILLI = {"us": 1_000, "ns": 1_000_000}


def _in_ms(raw: int, kind: Any) -> int:
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return raw * 1000 if kind.unit == "s" else raw // _PER_MILLI.get(kind.unit, 1)
    return raw * DAY_MS if pa.types.is_date(kind) else raw


def _millis(value: Any) -> int:
    """Returns a constant: a timestamp, or whole Unix ms."""
    if isinstance(value, int):
        return value
    import pyarrow as pa

    return int(pa.scalar(value, pa.timestamp("us", "UTC" if value.tzinfo else None)).value) // 1000


def null_count(table: Table, file: Any, path: str) -> int | None:
    """Returns how many records of a file have a null there, by its manifest, its partition or its footer; None if none
    of them says."""
    counted = layout_of_paths(table, [path])[path].null_count(file.null_value_counts or {})
    if counted is not None:
        return counted
    return footer_statistics(table, file, {path: path}).nulls(path)


def footer_statistics(table: Table, file: Any, paths: Mapping[str, str]) -> Statistics:
    """Returns what a file's footer says of columns. `paths`: name -> path."""
    import pyarrow.parquet as pq

    by_path = layout_of_paths(table, paths.values())
    layout = {name: by_path[path] for name, path in paths.items()}
    with table.io.new_input(file.file_path).open() as source:
        parquet = pq.ParquetFile(source)
        projection = Projection(parquet.schema_arrow, layout, layout, constants_of(table, file), file.file_path)
        return Statistics(parquet.metadata, projection)


def columns_in(group: Any) -> Iterator[Any]:
    """Yields the column chunks of a row group."""
    for index in range(group.num_columns):
        yield group.column(index)
