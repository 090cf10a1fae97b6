"""Records that tasks write into data files themselves, with pyarrow.

1. A task writes records of one log, in offset order, into files of the table's target size: Spark neither sees nor
   sorts them. Their columns are the table's, by its field ids, and `tombstone` is written beside them.
2. The driver reads the footers for Iceberg's metrics. Until they are committed no snapshot knows the files.
3. Where the table asks for what is not done here (another codec, encryption, another partitioning, more columns),
   UnwritableError says so, and Spark writes.
4. After an error the tasks under way are waited for, and no file is left. What a process leaves that is killed are
   orphans, which a reclaim removes (cleantail.orphan.retention.ms).
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
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from cleantail.config.topic_table import COLUMNS, OFFSET, PARTITION, TOMBSTONE, VALUE
from cleantail.errors import CleantailError
from spark_jobs.engine.table_files import new_data_files, write_settings
from spark_jobs.engine.tasks import run_stored, with_store
from spark_jobs.engine.written_files import NewFiles, RefusedError, WriteSettings, WrittenFile
from spark_jobs.iceberg.iceberg_reads import texts
from spark_jobs.iceberg.jvm.java_collections import each
from spark_jobs.iceberg.jvm.java_json import schema_json
from spark_jobs.iceberg.tables import TopicTable

logger = logging.getLogger("cleantail.ingest")
T = TypeVar("T")
DICTIONARIES = [PARTITION, "timestamp_type", TOMBSTONE, "headers.list.element.key"]
"""The columns of few values. Parquet's writers try a dictionary for others in vain."""


LEVEL, FAST_LEVEL = "write.parquet.compression-level", 1
"""zstd's level where the table names none. Higher ones cost a new record more than all else that is done with it, and
leave it no smaller; what lives for long is packed again when its file is rewritten."""


@dataclass(frozen=True, slots=True)
class FileTarget:
    """Says how new files of a table are written; all of it can be pickled. `location`: any path in the table's store,
    by which its file IO is chosen."""

    schema: pa.Schema
    settings: WriteSettings
    location: str


@dataclass(frozen=True, slots=True)
class WrittenLog:
    """Holds the files of one log that a task has written, in offset order; `low` and `high` are their first and last
    offset, and `once` says that each offset occurs once in them. Without a record there is no file, and `high` is below
    `low`."""

    partition: int
    files: tuple[WrittenFile, ...]
    low: int
    high: int
    once: bool


def file_target(table: TopicTable) -> FileTarget:
    """Returns how files of a topic's own table are written. Raises UnwritableError where the table asks for what only
    Iceberg's own writer does."""
    iceberg = table.load()
    fields = [(str(f.transform()), str(iceberg.schema().findColumnName(f.sourceId()))) for f in each(_fields(iceberg))]
    if fields != [("identity", PARTITION)]:
        raise UnwritableError(f"the table is partitioned by {fields}")
    if str(iceberg.encryption().getClass().getSimpleName()) != "PlaintextEncryptionManager":
        raise UnwritableError("its files are encrypted")
    schema = schema_to_pyarrow(Schema.model_validate_json(schema_json(table.jvm, iceberg.schema())))
    if sorted(schema.names) != sorted([*COLUMNS, TOMBSTONE]):
        raise UnwritableError(f"the table has the columns {', '.join(schema.names)}")
    if schema.field(PARTITION).type != pa.int32():  # somebody has widened it, and so the type of Iceberg's partition
        raise UnwritableError(f"its column {PARTITION} is {schema.field(PARTITION).type}")
    properties = texts(iceberg.properties())
    with _refusals():
        settings = write_settings(properties, table.platform.cleaner.cleantail_task_memory_bytes)
    if settings.codec == "zstd" and LEVEL not in properties:
        settings = replace(settings, level=FAST_LEVEL)
    return FileTarget(schema, settings, table.platform.warehouse)


def _fields(iceberg: Any) -> Any:
    return iceberg.spec().fields()


def new_paths(table: TopicTable, logs: Iterable[int]) -> dict[int, str]:
    """Returns for each log what the names of its new files begin with. They are new for each call: a table may choose
    folders by them."""
    iceberg = table.load()
    name, locations = f"ingested-{uuid.uuid4()}", iceberg.locationProvider()
    return {log: str(locations.newDataLocation(iceberg.spec(), _partition(table, iceberg, log), name)) for log in logs}


def log_path(table: TopicTable) -> str:
    """Returns what the names of new files begin with, with {} in place of the log's number, for tasks that do not know
    yet which logs they are going to meet. Raises UnwritableError where the table has other folders than Iceberg's
    usual ones."""
    one, two = (new_paths(table, [log])[log] for log in (1, 2))
    folder, name = one.rsplit("/", 1)
    if not folder.endswith(f"/{PARTITION}=1") or not two.startswith(f"{folder[:-1]}2/") or "{" in one or "}" in one:
        raise UnwritableError("the table chooses the folders of its files by itself")
    return f"{folder[:-1]}{{}}/{name}"


def _partition(table: TopicTable, iceberg: Any, log: int) -> Any:
    data = table.jvm.org.apache.iceberg.PartitionData(iceberg.spec().partitionType())
    data.set(0, log)
    return data


class UnwritableError(CleantailError):
    """Is raised where records are not written here, and Spark has to."""


class LogWriter:
    """Writes records of one log in a task. `path`: what the names of its files begin with."""

    def __init__(self, properties: Mapping[str, str], target: FileTarget, partition: int, path: str) -> None:
        self._schema, self._partition = target.schema, partition
        self._new = NewFiles(load_file_io(dict(properties), target.location), path, target.settings)
        self._new.begin_new(target.schema, DICTIONARIES)
        self._low, self._high, self._once = 0, -1, True

    @property
    def pending_bytes(self) -> int:
        """Returns what is in memory of records that are not yet written."""
        return self._new.pending_bytes

    def add(self, batch: pa.RecordBatch) -> None:
        """Takes records in the columns of ARROW_SCHEMA. Raises UnwritableError, also where they are not in offset
        order."""
        if not batch.num_rows:
            return
        self._follow(batch.column(OFFSET).to_numpy())
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns[TOMBSTONE] = pc.is_null(columns[VALUE])
        arrays = [_cast(columns[field.name], field.type) for field in self._schema]
        with _refusals():
            self._new.add(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

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
        """Writes what is in memory. Raises UnwritableError."""
        with _refusals():
            self._new.flush()

    def close(self) -> WrittenLog:
        """Returns the files. Raises UnwritableError."""
        with _refusals():
            return WrittenLog(self._partition, self._new.close(), self._low, self._high, self._once)

    def discard(self) -> None:
        """Deletes the files, as far as that can be done."""
        self._new.discard()


@contextmanager
def _refusals() -> Iterator[None]:
    """Turns a refusal into an error that comes back from a task."""
    try:
        yield
    except RefusedError as e:
        raise UnwritableError(str(e)) from None


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)


def run_writers(
    table: TopicTable, work: Callable[[Mapping[str, str], T], Sequence[WrittenLog]], tasks: Sequence[T], what: str
) -> list[WrittenLog]:
    """Runs the tasks on Spark, as many at a time as there are cores, and returns what they have written. After an error
    no further task is begun, and the files of all are deleted."""
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
    """Deletes files that no snapshot knows, as far as that can be done: what is left is an orphan."""
    io = table.load().io()
    for file in (file for log in logs for file in log.files):
        try:
            io.deleteFile(file.path)
        except Exception as e:
            logger.warning("%s is left, and no snapshot knows it: %s", file.path, type(e).__name__)


def data_files(table: TopicTable, logs: Iterable[WrittenLog]) -> list[Any]:
    """Returns Iceberg's `DataFile` of each file, log by log."""
    iceberg = table.load()
    by_log: dict[int, list[WrittenFile]] = {}
    for log in logs:
        by_log.setdefault(log.partition, []).extend(log.files)
    written = [(_partition(table, iceberg, log), files) for log, files in sorted(by_log.items()) if files]
    return new_data_files(table, iceberg, iceberg.spec(), written)
