"""What a task of a rewrite is told of the table, and what the table is told of the files that it has written."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cleantail.config.platform import Platform
from cleantail.config.topic_table import FILE_BYTES, OFFSET, TOMBSTONE
from spark_jobs.engine.rewrites.live_batches import Source
from spark_jobs.engine.rewrites.new_files import WriteSettings, WrittenFile
from spark_jobs.engine.rewrites.rewrite_task import RewriteTask
from spark_jobs.engine.rewrites.written_schema import RefusedError, TableSchema
from spark_jobs.iceberg.delete_files import deleted_positions_of, format_version
from spark_jobs.iceberg.file_columns import Layout, layout_of
from spark_jobs.iceberg.iceberg_reads import PlannedFile, each, require_own_deletes, texts
from spark_jobs.iceberg.log_files import LogFile
from spark_jobs.iceberg.tables import TopicTable

PARQUET = "write.parquet."
CODECS = {"zstd": 3, "gzip": 6, "snappy": None, "uncompressed": None}
"""Codecs that pyarrow writes as Iceberg does, and the level that Iceberg takes where the table names none."""
DEFAULT_CODEC = "gzip"
"""Iceberg's own where a table names none. It writes another into the properties of each table that it makes."""
SIZES = {"row-group-size-bytes": 128 << 20, "page-size-bytes": 1 << 20, "dict-size-bytes": 2 << 20}
"""Properties of sizes, and Iceberg's defaults."""
TARGET = "write.target-file-size-bytes"
WITHOUT_EFFECT = ("row-group-check-min-record-count", "row-group-check-max-record-count", "page-row-limit")
UNTOLD = 0
"""The hash of a file's name, which a rewrite does not need."""


def rewrite_task(table: TopicTable, platform: Platform, iceberg: Any, files: Sequence[PlannedFile]) -> RewriteTask:
    """Returns the task that rewrites these files, which are in offset order. Raises RefusedError where the table
    asks for something that the task does not do, ConflictError where a delete file is of other files too."""
    for file in files:
        require_own_deletes(table.jvm, file.task.file(), each(file.task.deletes()))
    version = format_version(iceberg)
    _require_plain(iceberg, files)
    first = files[0].task.file()
    spec, columns = iceberg.specs().get(first.specId()), table.topic.columns
    paths = {OFFSET: OFFSET if columns is None else columns.offset}
    schema = getattr(table.jvm, "org.apache.iceberg.SchemaParser").toJson(iceberg.schema())
    own = columns is None and iceberg.schema().findField(TOMBSTONE) is not None
    return RewriteTask(
        sources=tuple(_source(file) for file in files),
        schema=TableSchema(str(schema), version, TOMBSTONE if own else ""),
        layout=layout_of(iceberg, paths),
        settings=write_settings(texts(iceberg.properties()), platform.cleaner.cleantail_task_memory_bytes),
        new_path=_new_path(iceberg, spec, first.partition()),
        location=platform.warehouse,
    )


def _new_path(iceberg: Any, spec: Any, partition: Any) -> str:
    """Returns what the new files' names begin with. It is new for each group: a table may choose folders by it."""
    name, locations = f"rewritten-{uuid.uuid4()}", iceberg.locationProvider()
    if spec.isUnpartitioned():
        return str(locations.newDataLocation(name))
    return str(locations.newDataLocation(spec, partition, name))


def _require_plain(iceberg: Any, files: Sequence[PlannedFile]) -> None:
    """Raises RefusedError unless the files are Parquet, of one partition by the table's present spec, and as
    readable as any file is."""
    partitions = {(file.data_file["spec-id"], str(file.data_file["partition"])) for file in files}
    if len(partitions) > 1 or int(files[0].data_file["spec-id"]) != int(iceberg.spec().specId()):
        raise RefusedError("the table is partitioned in another way since the files were written")
    if any(file.data_file["file-format"].upper() != "PARQUET" for file in files):
        raise RefusedError("not all files are Parquet")
    encrypted = str(iceberg.encryption().getClass().getSimpleName()) != "PlaintextEncryptionManager"
    if encrypted or any(file.data_file.get("key-metadata") for file in files):
        raise RefusedError("the files are encrypted")


def _source(file: PlannedFile) -> Source:
    facts = file.data_file
    row_id = facts.get("first-row-id")
    log_file = LogFile(
        hash=UNTOLD,
        path=file.path,
        records=int(facts["record-count"]),
        log=None,
        lower_offset=None,
        upper_offset=None,
        low_key=None,
        high_key=None,
        null_keys=None,
        null_values=None,
        marked=False,
        before=tuple(deleted_positions_of(delete) for delete in file.delete_files),
        first_row_id=None if row_id is None else int(row_id),
    )
    return Source(log_file, int(file.task.file().fileSequenceNumber()))


def write_settings(properties: Mapping[str, str], memory_bytes: int) -> WriteSettings:
    """Returns how a table of these properties has its files written; a row group takes a quarter of the task's memory
    at most. Raises RefusedError for a property that asks for something else."""
    asked = {name.removeprefix(PARQUET): text for name, text in properties.items() if name.startswith(PARQUET)}
    codec = asked.pop("compression-codec", DEFAULT_CODEC).lower()
    level = asked.pop("compression-level", None)
    numbers = [level or "0", *(asked.get(name, "0") for name in SIZES), properties.get(TARGET, "0")]
    if not all(number.isdecimal() for number in numbers):
        raise RefusedError("a size or level that the table asks for is no number")
    sizes = {name: int(asked.pop(name, default)) for name, default in SIZES.items()}
    others = sorted(asked.keys() - set(WITHOUT_EFFECT))
    format_ = properties.get("write.format.default", "parquet").lower()
    if codec not in CODECS or others or format_ != "parquet":
        asks = f"{PARQUET}{others[0]}" if others else codec if codec not in CODECS else format_
        raise RefusedError(f"the table asks for {asks}")
    return WriteSettings(
        codec="none" if codec == "uncompressed" else codec,
        level=CODECS[codec] if level is None or CODECS[codec] is None else int(level),
        target_bytes=int(properties.get(TARGET, FILE_BYTES)),
        row_group_bytes=min(sizes["row-group-size-bytes"], memory_bytes // 4),
        page_bytes=sizes["page-size-bytes"],
        dictionary_bytes=sizes["dict-size-bytes"],
    )


def new_data_files(table: TopicTable, iceberg: Any, like: PlannedFile, written: Iterable[WrittenFile]) -> list[Any]:
    """Returns Iceberg's `DataFile` of each new file, with the metrics that its footer has and the table asks for.
    `like`: a file in the place of which they come."""
    jvm, old = table.jvm, like.task.file()
    metrics_of = getattr(jvm, "org.apache.iceberg.parquet.ParquetUtil").fileMetrics
    config = jvm.org.apache.iceberg.MetricsConfig.forTable(iceberg)
    files = []
    for file in written:
        metrics = metrics_of(iceberg.io().newInputFile(file.path), config)
        builder = jvm.org.apache.iceberg.DataFiles.builder(iceberg.specs().get(old.specId()))
        builder = builder.withPath(file.path).withFormat("PARQUET").withFileSizeInBytes(file.size_bytes)
        builder = builder.withPartition(old.partition()).withMetrics(metrics)
        builder = builder.withSplitOffsets(_longs(table, file.split_offsets))
        files.append((_in_order(table, iceberg, builder)).build())
    return files


def _in_order(table: TopicTable, iceberg: Any, builder: Any) -> Any:
    """Names the table's sort order, where that is the order of offsets in which the files are."""
    order, columns = iceberg.sortOrder(), table.topic.columns
    offset: Layout = layout_of(iceberg, {OFFSET: OFFSET if columns is None else columns.offset})
    fields = [(int(f.sourceId()), str(f.direction()), str(f.transform())) for f in each(order.fields())]
    by_offset = OFFSET in offset and fields == [(offset[OFFSET].ids[-1], "ASC", "identity")]
    return builder.withSortOrder(order) if by_offset else builder


def _longs(table: TopicTable, numbers: Sequence[int]) -> Any:
    """Returns a Java list of Long: a small number Py4J sends as an Integer."""
    gateway: Any = table.spark.sparkContext._gateway
    array = gateway.new_array(gateway.jvm.long, len(numbers))
    for i, number in enumerate(numbers):
        array[i] = number
    collectors = table.jvm.java.util.stream.Collectors
    return table.jvm.java.util.Arrays.stream(array).boxed().collect(collectors.toList())
