"""Says how a table wants its files written, and what it is told of those that tasks have written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cleantail.config.topic_table import FILE_BYTES, OFFSET, Columns
from cleantail.human import whole_number
from spark_jobs.engine.rewrites.file_metrics import FileMetrics
from spark_jobs.engine.rewrites.new_files import WriteSettings, WrittenFile
from spark_jobs.engine.rewrites.written_schema import RefusedError
from spark_jobs.iceberg.file_columns import Layout, layout_of
from spark_jobs.iceberg.iceberg_reads import texts
from spark_jobs.iceberg.jvm.java_collections import each
from spark_jobs.iceberg.jvm.java_json import DescribedFiles, schema_json
from spark_jobs.iceberg.jvm.many_calls import answers, ask
from spark_jobs.iceberg.jvm.static_members import static
from spark_jobs.iceberg.tables import TopicTable

PARQUET = "write.parquet."
CODECS = {"zstd": 3, "gzip": 6, "snappy": None, "uncompressed": None}
"""Codecs that pyarrow writes as Iceberg does, and the level that Iceberg takes where the table names none."""
DEFAULT_CODEC = "gzip"
"""Iceberg's own where a table names none. It writes another into the properties of each table that it makes."""
SIZES = {"row-group-size-bytes": 128 << 20, "page-size-bytes": 1 << 20, "dict-size-bytes": 2 << 20}
"""Properties of sizes, and Iceberg's defaults."""
TARGET = "write.target-file-size-bytes"
UNSORTED = 0
"""Iceberg's number for no order."""
WITHOUT_EFFECT = ("row-group-check-min-record-count", "row-group-check-max-record-count", "page-row-limit")


def offset_paths(columns: Columns | None) -> dict[str, str]:
    """Returns where a table has the offset; nothing where no column holds it."""
    if columns is None:
        return {OFFSET: OFFSET}
    return {} if columns.offset is None else {OFFSET: columns.offset}


def write_settings(properties: Mapping[str, str], memory_bytes: int) -> WriteSettings:
    """Returns how a table of these properties has its files written; a row group takes a quarter of the task's memory
    at most. Raises RefusedError for a property that asks for something else. Files are Parquet even if
    write.format.default is another format: rounds read no other."""
    asked = {name.removeprefix(PARQUET): text for name, text in properties.items() if name.startswith(PARQUET)}
    codec = asked.pop("compression-codec", DEFAULT_CODEC).lower()
    level = asked.pop("compression-level", None)
    numbers = [level or "0", *(asked.get(name, "0") for name in SIZES), properties.get(TARGET, "0")]
    if any(whole_number(number) is None for number in numbers):
        raise RefusedError("a size or level that the table asks for is no number")
    sizes = {name: int(asked.pop(name, default)) for name, default in SIZES.items()}
    others = sorted(asked.keys() - set(WITHOUT_EFFECT))
    if codec not in CODECS or others:
        raise RefusedError(f"the table asks for {f'{PARQUET}{others[0]}' if others else codec}")
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
    """Returns Iceberg's `DataFile` of each new file, with the metrics that its footer has and the table asks for.
    `written`: Iceberg's partition by the spec, and the files that were written for it."""
    partition_json = static(table.jvm, "org.apache.iceberg.SingleValueParser", "toJson")
    sorted_by = [int(number) for number in ask(each(iceberg.sortOrder().fields()), "sourceId")]
    metrics = FileMetrics.of(schema_json(table.jvm, iceberg.schema()), texts(iceberg.properties()), sorted_by)
    described = DescribedFiles(table.jvm, iceberg, int(spec.specId()))
    order_id, partition_type = _order_id(table, iceberg), spec.partitionType()
    by_partition = list(written)
    partitions = answers((partition_json, (partition_type, partition)) for partition, _ in by_partition)
    common = {"content": "data", "file-format": "parquet", "sort-order-id": order_id}
    return described.data_files(
        common | {"partition": json.loads(partition)} | _described(file, metrics)
        for partition, (_, files) in zip(partitions, by_partition, strict=True)
        for file in files
    )


def _described(file: WrittenFile, metrics: FileMetrics) -> dict[str, Any]:
    return {"file-path": file.path, "file-size-in-bytes": file.size_bytes} | metrics.of_footer(file.footer)


def _order_id(table: TopicTable, iceberg: Any) -> int:
    """Returns the id of the table's sort order, where that is the order of offsets in which the files are; else that of
    none."""
    order, columns = iceberg.sortOrder(), table.topic.columns
    offset: Layout = layout_of(iceberg, offset_paths(columns))
    fields = [(int(f.sourceId()), str(f.direction()), str(f.transform())) for f in each(order.fields())]
    by_offset = OFFSET in offset and fields == [(offset[OFFSET].ids[-1], "ASC", "identity")]
    return int(order.orderId()) if by_offset else UNSORTED
