"""The table's settings for its files, and the metadata of files that tasks have written.

1. The files' footers have counts, sizes and bounds of columns. Iceberg's own library would open each file again, and
   read Hadoop's configuration for each.
2. PyIceberg computes counts and sizes, by the properties `write.metadata.metrics.*`. Fields in lists and maps have
   none, because a record may have several of their values.
3. This module computes bounds. Parquet omits the bounds of values above 4 KiB. A column has no bounds if one of its row
   groups has none, because readers would skip records by the bounds of the other groups.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from pyarrow.parquet import FileMetaData
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    data_file_statistics_from_parquet_metadata,
    match_metrics_mode,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)
from pyiceberg.utils.truncate import truncate_upper_bound_binary_string, truncate_upper_bound_text_string

from cleantail.config.topic_table import FILE_BYTES, OFFSET, Columns
from cleantail.human import whole_number
from spark_jobs.engine.written_files import LINEAGE_IDS, RefusedError, WriteSettings, WrittenFile
from spark_jobs.iceberg.file_columns import Layout, layout_of
from spark_jobs.iceberg.java_calls import DescribedFiles, each, schema_json, static, texts
from spark_jobs.iceberg.tables import TopicTable

logger = logging.getLogger("cleantail.files")
NO_METRICS, ONLY_COUNTS = MetricsMode(MetricModeTypes.NONE), MetricsMode(MetricModeTypes.COUNTS)
USUAL_MODE = TableProperties.DEFAULT_WRITE_METRICS_MODE_DEFAULT
"""Metrics mode of a column if the table has no setting."""
REPEATED = frozenset({"list", "key_value"})
"""Parquet's names of the repeated part of a list and of a map."""
COUNTS = {
    "column-sizes": "column_sizes",
    "value-counts": "value_counts",
    "null-value-counts": "null_value_counts",
    "nan-value-counts": "nan_value_counts",
}
"""Names in Iceberg's JSON of a data file -> names in PyIceberg."""
OF_ONE_SIZE = (
    BooleanType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    DateType,
    TimeType,
    TimestampType,
    TimestamptzType,
)
"""Types with whole bounds. Of other types, only text and bytes have bounds."""


@dataclass(frozen=True, slots=True)
class FileMetrics:
    """Reads the metrics of one table's files. `plan`: field id -> metrics of the column. `counted`: the same without
    bounds, for PyIceberg. `ids`: path of a column in a file -> its field id."""

    plan: dict[int, StatisticsCollector]
    counted: dict[int, StatisticsCollector]
    ids: dict[str, int]

    @classmethod
    def of(cls, schema: str, properties: Mapping[str, str], sorted_by: Collection[int] = ()) -> FileMetrics:
        """Make the metrics from a table's schema as Iceberg's JSON, its properties, and the field ids of its sort
        order.

        Sorted fields have bounds even if the table's default has none."""
        parsed = Schema.model_validate_json(schema)
        ids = parquet_path_to_id_mapping(parsed) | LINEAGE_IDS
        plan = {number: _collector(parsed, path, number, properties, sorted_by) for path, number in ids.items()}
        counted = {i: c if c.mode == NO_METRICS else replace(c, mode=ONLY_COUNTS) for i, c in plan.items()}
        return cls(plan, counted, ids)

    def of_footer(self, footer: FileMetaData) -> dict[str, Any]:
        """Return the metrics of a file as Iceberg's JSON. Raises RefusedError if a column has another name than in the
        table, as Iceberg's own writers change names with a dot."""
        paths = {footer.schema.column(position).path for position in range(footer.num_columns)}
        if unknown := sorted(paths - self.ids.keys()):
            raise RefusedError(f"column {unknown[0]} has another name in the table")
        statistics = data_file_statistics_from_parquet_metadata(footer, self.counted, self.ids).to_serialized_dict()
        bounds = self._bounds(footer)
        return {
            "record-count": statistics["record_count"],
            "split-offsets": statistics["split_offsets"],
            **{name: _pairs(statistics[of]) for name, of in COUNTS.items()},
            "lower-bounds": _pairs({i: low.hex() for i, (low, _) in bounds.items()}),
            "upper-bounds": _pairs({i: high.hex() for i, (_, high) in bounds.items() if high is not None}),
        }

    def _bounds(self, footer: FileMetaData) -> dict[int, tuple[bytes, bytes | None]]:
        """Return field id -> lower and upper bound. A shortened text may have no upper bound."""
        by_field_id: dict[int, tuple[bytes, bytes | None]] = {}
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        for position in range(footer.num_columns if groups else 0):
            column = self.plan[self.ids[groups[0].column(position).path_in_schema]]
            if column.mode not in (NO_METRICS, ONLY_COUNTS):
                ends = _ends([group.column(position) for group in groups])
                bounds = _serialized(column.iceberg_type, column.mode.length, *ends) if ends else None
                if bounds is not None:
                    by_field_id[column.field_id] = bounds
        return by_field_id


def _collector(
    schema: Schema, path: str, number: int, properties: Mapping[str, str], sorted_by: Collection[int]
) -> StatisticsCollector:
    """Return the metrics of a column, with bounds even for a field of a struct.

    PyIceberg's own plan has no bounds for such fields, but adopted tables may have partition and offset in structs."""
    if number in LINEAGE_IDS.values():
        return StatisticsCollector(number, LongType(), NO_METRICS, path)
    name, kind = str(schema.find_column_name(number)), cast(PrimitiveType, schema.find_type(number))
    if REPEATED.intersection(path.split(".")):
        return StatisticsCollector(number, kind, NO_METRICS, name)
    mode = match_metrics_mode(properties.get(TableProperties.DEFAULT_WRITE_METRICS_MODE, USUAL_MODE))
    if number in sorted_by and mode in (NO_METRICS, ONLY_COUNTS):
        mode = match_metrics_mode(USUAL_MODE)
    asked = properties.get(f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{name}")
    return StatisticsCollector(number, kind, match_metrics_mode(asked) if asked else mode, name)


def _ends(chunks: list[Any]) -> tuple[Any, Any] | None:
    """Return the least and greatest value of a column's chunks. None if all are null, or bounds are unknown."""
    lows, highs = [], []
    for chunk in chunks:
        statistics = chunk.statistics
        if statistics is None or (not statistics.has_min_max and statistics.null_count != chunk.num_values):
            return None
        if statistics.has_min_max:
            lows.append(statistics.min_raw)
            highs.append(statistics.max_raw)
    if not lows or any(isinstance(end, float) and math.isnan(end) for end in (*lows, *highs)):
        return None
    return min(lows), max(highs)


def _serialized(kind: PrimitiveType, length: int | None, low: Any, high: Any) -> tuple[bytes, bytes | None] | None:
    """Return both bounds as Iceberg serializes them, cut to `length`. None for a type without bounds."""
    if isinstance(kind, OF_ONE_SIZE):
        return to_bytes(kind, low), to_bytes(kind, high)
    if isinstance(kind, BinaryType):
        return low[:length], truncate_upper_bound_binary_string(high, length)
    if isinstance(kind, StringType):
        return low.decode()[:length].encode(), _upper_text(high.decode(), length)
    return None


def _upper_text(text: str, length: int | None) -> bytes | None:
    cut = truncate_upper_bound_text_string(text, length)
    try:
        return None if cut is None else cut.encode()
    except UnicodeEncodeError:  # the character after U+D7FF is a surrogate
        return None


def _pairs(by_id: Mapping[int, Any]) -> dict[str, list[Any]]:
    return {"keys": list(by_id), "values": list(by_id.values())}


PARQUET = "write.parquet."
CODECS = {"zstd": 3, "gzip": 6, "snappy": None, "uncompressed": None}
"""Codecs that pyarrow and Iceberg write in the same way, with Iceberg's default levels."""
DEFAULT_CODEC = "gzip"
"""Iceberg's codec for a table without the property. New tables have another codec in their properties."""
SIZES = {"row-group-size-bytes": 128 << 20, "page-size-bytes": 1 << 20, "dict-size-bytes": 2 << 20}
"""Properties of sizes, and Iceberg's defaults."""
TARGET = "write.target-file-size-bytes"
UNSORTED = 0
"""Iceberg's id of the order of an unsorted table."""
WITHOUT_EFFECT = ("row-group-check-min-record-count", "row-group-check-max-record-count", "page-row-limit")


def offset_paths(columns: Columns | None) -> dict[str, str]:
    """Return the path of the offset. Empty if no column has it."""
    if columns is None:
        return {OFFSET: OFFSET}
    return {} if columns.offset is None else {OFFSET: columns.offset}


def write_settings(properties: Mapping[str, str], memory_bytes: int) -> WriteSettings:
    """Return the settings for files of a table with these properties. Raises RefusedError for an unsupported property.

    A row group takes at most a quarter of the task's memory. Files are Parquet even if write.format.default is another
    format, because rounds read only Parquet.
    """
    asked = {name.removeprefix(PARQUET): text for name, text in properties.items() if name.startswith(PARQUET)}
    codec = asked.pop("compression-codec", DEFAULT_CODEC).lower()
    level = asked.pop("compression-level", None)
    numbers = [level or "0", *(asked.get(name, "0") for name in SIZES), properties.get(TARGET, "0")]
    if any(whole_number(number) is None for number in numbers):
        raise RefusedError("a size or level in the table's properties is not a number")
    sizes = {name: int(asked.pop(name, default)) for name, default in SIZES.items()}
    others = sorted(asked.keys() - set(WITHOUT_EFFECT))
    if codec not in CODECS or others:
        raise RefusedError(f"the table requires {f'{PARQUET}{others[0]}' if others else codec}")
    return WriteSettings(
        codec="none" if codec == "uncompressed" else codec,
        level=CODECS[codec] if level is None or CODECS[codec] is None else int(level),
        target_bytes=int(properties.get(TARGET, FILE_BYTES)),
        row_group_bytes=min(sizes["row-group-size-bytes"], memory_bytes // 4),
        page_bytes=sizes["page-size-bytes"],
        dictionary_bytes=sizes["dict-size-bytes"],
    )


def new_data_files(
    table: TopicTable, iceberg: Any, spec: Any, written: Iterable[tuple[Any, Sequence[WrittenFile]]]
) -> list[Any]:
    """Return Iceberg's `DataFile` of each new file, with metrics. `written`: a partition by the spec, and its files."""
    partition_json = static(table.jvm, "org.apache.iceberg.SingleValueParser", "toJson")
    sorted_by = [int(field.sourceId()) for field in each(iceberg.sortOrder().fields())]
    metrics = FileMetrics.of(schema_json(iceberg.schema()), texts(iceberg.properties()), sorted_by)
    described = DescribedFiles(table.jvm, iceberg, int(spec.specId()))
    order_id, partition_type = _order_id(table, iceberg), spec.partitionType()
    by_partition = list(written)
    partitions = [partition_json(partition_type, partition) for partition, _ in by_partition]
    common = {"content": "data", "file-format": "parquet", "sort-order-id": order_id}
    return described.data_files(
        {
            **common,
            "partition": json.loads(partition),
            "file-path": file.path,
            "file-size-in-bytes": file.size_bytes,
            **metrics.of_footer(file.footer),
        }
        for partition, (_, files) in zip(partitions, by_partition, strict=True)
        for file in files
    )


def delete_files(table: TopicTable, paths: Collection[str]) -> None:
    """Delete uncommitted files. Only logs a failure: the file is an orphan, which a later reclaim removes."""
    io = None
    for path in paths:
        try:
            io = io or table.load().io()
            io.deleteFile(path)
        except Exception as e:
            logger.warning("%s cannot be deleted and is now an orphan: %s", path, type(e).__name__)


def _order_id(table: TopicTable, iceberg: Any) -> int:
    """Return the id of the table's sort order if it is the files' order of offsets, else UNSORTED."""
    order, columns = iceberg.sortOrder(), table.topic.columns
    offset: Layout = layout_of(iceberg, offset_paths(columns))
    fields = [(int(f.sourceId()), str(f.direction()), str(f.transform())) for f in each(order.fields())]
    by_offset = OFFSET in offset and fields == [(offset[OFFSET].ids[-1], "ASC", "identity")]
    return int(order.orderId()) if by_offset else UNSORTED
