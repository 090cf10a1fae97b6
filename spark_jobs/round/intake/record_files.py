"""Data files of new records that tasks write with pyarrow.

1. A task writes records of one log, in offset order, into files of the table's target size, without Spark's sort. The
   columns are the table's, by its field ids, with `tombstone` added.
2. The driver reads the footers for Iceberg's metrics, and commits the files later.
3. If the table needs more (another codec, encryption, another partitioning, more columns), UnwritableError is raised,
   and Spark writes.
4. After an error the running tasks end, and all files are deleted. A killed process leaves orphans, which a reclaim
   removes (cleantail.orphan.retention.ms).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from py4j.java_gateway import JavaClass
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from cleantail.config.topic_table import COLUMNS, OFFSET, PARTITION, TOMBSTONE, VALUE
from cleantail.errors import CleantailError
from spark_jobs.engine.table_files import delete_files, new_data_files, write_settings
from spark_jobs.engine.tasks import run_stored, with_store
from spark_jobs.engine.written_files import NewFiles, RefusedError, WriteSettings, WrittenFile
from spark_jobs.iceberg.java_calls import each, schema_json, texts
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.intake.denylist import Denylist, Erased, SentKeys, merged, without_erased

logger = logging.getLogger("cleantail.ingest")
T = TypeVar("T")
DICTIONARIES = [PARTITION, "timestamp_type", TOMBSTONE, "headers.list.element.key"]
"""Columns with few values, which get a dictionary. For other columns a dictionary does not help."""
LEVEL, FAST_LEVEL = "write.parquet.compression-level", 1
"""Property, and zstd's level if the table does not set it. A higher level costs more than the rest of an ingestion, and
does not give smaller files. Long-lived records are compressed again when their file is rewritten."""


@dataclass(frozen=True, slots=True)
class FileTarget:
    """Settings for new files of a table, for tasks. `location`: any path in the table's store, which selects its file
    IO. `keys`: erased keys, whose records are left out."""

    schema: pa.Schema
    settings: WriteSettings
    location: str
    keys: SentKeys | None

    def kept(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Erased]:
        """Return the batch without records of erased keys, and the number of these records."""
        return (batch, {}) if self.keys is None else without_erased(batch, self.keys)


@dataclass(frozen=True, slots=True)
class WrittenLog:
    """The files of one log that a task wrote, in offset order.

    low, high  first and last offset; without records `high` is below `low`
    once       whether each offset occurs once
    erased     records that were left out, because their keys were erased
    """

    partition: int
    files: tuple[WrittenFile, ...]
    low: int
    high: int
    once: bool
    erased: Erased


def file_target(table: TopicTable, iceberg: Any, denylist: Denylist) -> FileTarget:
    """Return the settings for files of a topic's own table. Raises UnwritableError if only Iceberg's writer can."""
    columns_of = iceberg.schema().findColumnName
    fields = [(str(f.transform()), str(columns_of(f.sourceId()))) for f in each(iceberg.spec().fields())]
    if fields != [("identity", PARTITION)]:
        raise UnwritableError(f"the table is partitioned by {fields}")
    if str(iceberg.encryption().getClass().getSimpleName()) != "PlaintextEncryptionManager":
        raise UnwritableError("its files are encrypted")
    schema = schema_to_pyarrow(Schema.model_validate_json(schema_json(iceberg.schema())))
    if sorted(schema.names) != sorted([*COLUMNS, TOMBSTONE]):
        raise UnwritableError(f"the table has the columns {', '.join(schema.names)}")
    if schema.field(PARTITION).type != pa.int32():  # a user widened it, and so the type of Iceberg's partition
        raise UnwritableError(f"its column {PARTITION} is {schema.field(PARTITION).type}")
    properties = texts(iceberg.properties())
    with _refusals():
        settings = write_settings(properties, table.platform.cleaner.cleantail_task_memory_bytes)
    if settings.codec == "zstd" and LEVEL not in properties:
        settings = replace(settings, level=FAST_LEVEL)
    return FileTarget(schema, settings, table.platform.warehouse, denylist.keys)


def new_paths(iceberg: Any, logs: Iterable[int]) -> dict[int, str]:
    """Return log -> path prefix of its new files, different in each call: a table may choose folders by them."""
    name, locations = f"ingested-{uuid.uuid4()}", iceberg.locationProvider()
    return {log: str(locations.newDataLocation(iceberg.spec(), _partition(iceberg, log), name)) for log in logs}


def log_path(iceberg: Any) -> str:
    """Return the path prefix of new files with {} as the log's number, for logs that are not known in advance. Raises
    UnwritableError if the table does not have Iceberg's default folders."""
    one, two = new_paths(iceberg, [1, 2]).values()
    folder, name = one.rsplit("/", 1)
    if not folder.endswith(f"/{PARTITION}=1") or not two.startswith(f"{folder[:-1]}2/") or "{" in one or "}" in one:
        raise UnwritableError("the table chooses the folders of its files by itself")
    return f"{folder[:-1]}{{}}/{name}"


def _partition(iceberg: Any, log: int) -> Any:
    data = JavaClass("org.apache.iceberg.PartitionData", iceberg._gateway_client)(iceberg.spec().partitionType())
    data.set(0, log)
    return data


class UnwritableError(CleantailError):
    """Tasks cannot write the records, so Spark must."""


class LogWriter:
    """Writes records of one log in a task. `path`: prefix of its files."""

    def __init__(self, properties: Mapping[str, str], target: FileTarget, partition: int, path: str) -> None:
        self._schema, self._partition = target.schema, partition
        self._new = NewFiles(load_file_io(dict(properties), target.location), path, target.settings)
        self._new.begin_new(target.schema, DICTIONARIES)
        self._low, self._high, self._once = 0, -1, True
        self._erased: Erased = {}

    @property
    def pending_bytes(self) -> int:
        return self._new.pending_bytes

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records in the columns of ARROW_SCHEMA, in any order, none before an earlier batch's: UnwritableError."""
        if not batch.num_rows:
            return
        offsets = batch.column(OFFSET).to_numpy()
        if np.any(offsets[1:] < offsets[:-1]):
            order = np.argsort(offsets, kind="stable")
            batch, offsets = batch.take(pa.array(order)), offsets[order]
        self._follow(offsets)
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns[TOMBSTONE] = pc.is_null(columns[VALUE])
        arrays = [columns[field.name].cast(field.type) for field in self._schema]
        with _refusals():
            self._new.add(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def leave_out(self, erased: Erased) -> None:
        """Count records of the log that are not added, because their keys were erased."""
        self._erased = merged(self._erased, erased)

    def _follow(self, offsets: npt.NDArray[np.int64]) -> None:
        steps = np.diff(offsets)
        is_first = self._high < self._low
        step = 1 if is_first else int(offsets[0]) - self._high
        lowest = min(step, int(steps.min())) if steps.size else step
        if lowest < 0:
            raise UnwritableError(f"records of partition {self._partition} are not in the order of their offsets")
        self._low = int(offsets[0]) if is_first else self._low
        self._high, self._once = int(offsets[-1]), self._once and lowest > 0

    def flush(self) -> None:
        """Write the records in memory. Raises UnwritableError."""
        with _refusals():
            self._new.flush()

    def close(self) -> WrittenLog:
        with _refusals():
            return WrittenLog(self._partition, self._new.close(), self._low, self._high, self._once, self._erased)

    def discard(self) -> None:
        self._new.discard()


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn a refusal into an error that a task can return."""
    try:
        yield
    except RefusedError as e:
        raise UnwritableError(str(e)) from None


def run_writers(
    table: TopicTable, work: Callable[[Mapping[str, str], T], Sequence[WrittenLog]], tasks: Sequence[T], what: str
) -> list[WrittenLog]:
    """Run the tasks on Spark, one for each core at a time. Returns the written files. After an error no further task
    starts, and all files are deleted."""
    if not tasks:
        return []
    cores = int(table.spark.sparkContext.defaultParallelism)
    with ThreadPoolExecutor(cores) as threads:
        stored = with_store(table, work)
        futures = [threads.submit(run_stored, table, stored, [task], what) for task in tasks]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
            failed = next((f for f in futures if f.done() and f.exception() is not None), None)
            return [log for future in ([failed] if failed else futures) for log in future.result()[0]]
        except BaseException:
            threads.shutdown(cancel_futures=True)
            delete_written(table, [log for future in futures for log in _logs(future)])
            raise


def _logs(future: Future[list[Sequence[WrittenLog]]]) -> Sequence[WrittenLog]:
    if future.cancelled() or future.exception() is not None:
        return ()
    return future.result()[0]


def delete_written(table: TopicTable, logs: Iterable[WrittenLog]) -> None:
    delete_files(table, [file.path for log in logs for file in log.files])


def data_files(table: TopicTable, logs: Iterable[WrittenLog]) -> list[Any]:
    iceberg = table.load()
    by_log: dict[int, list[WrittenFile]] = {}
    for log in logs:
        by_log.setdefault(log.partition, []).extend(log.files)
    written = [(_partition(iceberg, log), files) for log, files in sorted(by_log.items()) if files]
    return new_data_files(table, iceberg, iceberg.spec(), written)
