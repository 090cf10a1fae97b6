"""Says what a task of a rewrite is told of the table."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from cleantail.config.platform import Platform
from cleantail.config.topic_table import TOMBSTONE
from spark_jobs.engine.rewrites.live_batches import Source
from spark_jobs.engine.rewrites.rewrite_task import RewriteTask
from spark_jobs.engine.rewrites.table_files import offset_paths, write_settings
from spark_jobs.engine.rewrites.written_schema import RefusedError, TableSchema
from spark_jobs.iceberg.delete_files import format_version
from spark_jobs.iceberg.file_columns import layout_of
from spark_jobs.iceberg.iceberg_reads import require_own_deletes, texts
from spark_jobs.iceberg.jvm.java_collections import elements_of
from spark_jobs.iceberg.jvm.java_json import schema_json
from spark_jobs.iceberg.jvm.many_calls import ask
from spark_jobs.iceberg.log_files import LogFile
from spark_jobs.iceberg.planned_files import PlannedFile
from spark_jobs.iceberg.tables import TopicTable

NO_HASH = 0
"""In place of the hash of a file's name, which a rewrite does not need."""


def rewrite_task(table: TopicTable, platform: Platform, iceberg: Any, files: Sequence[PlannedFile]) -> RewriteTask:
    """Returns the task that rewrites these files, which are in offset order. Raises RefusedError where the table
    asks for something that the task does not do, ConflictError where a delete file is of other files too."""
    deletes = elements_of(ask([file.task for file in files], "deletes"))
    require_own_deletes(table.jvm, zip((file.path for file in files), deletes, strict=True))
    version = format_version(iceberg)
    _require_plain(iceberg, files)
    first = files[0].task.file()
    spec, columns = iceberg.specs().get(first.specId()), table.topic.columns
    schema = schema_json(table.jvm, iceberg.schema())
    own = columns is None and iceberg.schema().findField(TOMBSTONE) is not None
    return RewriteTask(
        sources=tuple(_source(file) for file in files),
        schema=TableSchema(schema, version, TOMBSTONE if own else ""),
        layout=layout_of(iceberg, offset_paths(columns)),
        in_order=columns is None or columns.has_offsets,
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
    partitions = {file.facts.partition_key for file in files}
    if len(partitions) > 1 or files[0].facts.spec_id != int(iceberg.spec().specId()):
        raise RefusedError("the table is partitioned in another way since the files were written")
    if any(not file.facts.is_parquet for file in files):
        raise RefusedError("not all files are Parquet")
    encrypted = str(iceberg.encryption().getClass().getSimpleName()) != "PlaintextEncryptionManager"
    if encrypted or any(file.facts.key_metadata for file in files):
        raise RefusedError("the files are encrypted")


def _source(file: PlannedFile) -> Source:
    log_file = LogFile(
        hash=NO_HASH,
        path=file.path,
        records=file.facts.records,
        log=None,
        lower_offset=None,
        upper_offset=None,
        low_key=None,
        high_key=None,
        null_keys=None,
        null_values=None,
        marked=False,
        before=file.delete_files,
        first_row_id=file.facts.first_row_id,
    )
    return Source(log_file, file.updated)
