"""The tasks of a read from Kafka, and the staging of a portion's records.

A task reads its ranges and returns their records in the table's columns, byte for byte. No reader sees the records
before their commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from cleantail.config.input_limits import DEFAULT_LIMITS, HEADERS, limit_text
from cleantail.config.unholdable import (
    ALL,
    HEADER_NAME,
    NO_TIMESTAMP_MS,
    TEXTS,
    TIMESTAMP,
    TIMESTAMP_MAX_MS,
    TIMESTAMP_MIN_MS,
    UNHELD,
    WAY_OUT,
    Keep,
    Reason,
    timestamp_text,
)
from cleantail.errors import SourceError, UnholdableError
from cleantail.home.process import uncollected
from cleantail.kafka.broker_clients import headers_of
from cleantail.kafka.read_plan import Range, task_ranges
from cleantail.kafka.source_topic import RangeReader
from cleantail.sources.kcat import Record
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.intake.denylist import Denylist
from spark_jobs.round.intake.new_records import NewRecords
from spark_jobs.round.intake.record_batches import ARROW_SCHEMA, HEADER, task_errors, task_frame, unheld_batch
from spark_jobs.round.intake.record_files import (
    FileTarget,
    LogWriter,
    UnwritableError,
    WrittenLog,
    file_target,
    new_paths,
    run_writers,
)

if TYPE_CHECKING:
    from confluent_kafka import Message


logger = logging.getLogger("cleantail.kafka")


@dataclass(frozen=True, slots=True)
class Staging:
    """Stages the records of one topic. Tasks call `open_reader`, which is part of the plan: Spark shows the plan
    without its values, such as a login."""

    table: TopicTable
    open_reader: Callable[[], ArrowReader]
    cores: int
    denylist: Denylist

    def write(self, branch: str, ranges: Sequence[Range], keep: Keep) -> NewRecords:
        """Let tasks write the ranges' records, or Spark append them to the branch. Empty if the ranges have only
        markers and aborted records. Raises SourceError, UnholdableError and SourceUnreachableError."""
        tasks = task_ranges(ranges, self.cores)
        try:
            iceberg = self.table.load()
            target = file_target(self.table, iceberg, self.denylist)
            paths = new_paths(iceberg, sorted({each.partition for each in ranges}))
            writes = [
                RangesTask(tuple(of_task), {r.partition: paths[r.partition] for r in of_task}) for of_task in tasks
            ]
            work = partial(write_ranges, self.open_reader, target, keep)
            return NewRecords.of_tasks(self.table, run_writers(self.table, work, writes, "read Kafka's log"))
        except UnwritableError as e:
            logger.info("Spark writes the records of %s: %s", self.table.topic.topic, e)
        frame, behind = self.denylist.without_erased(read_frame(self.table.spark, tasks, self.open_reader, keep))
        with task_errors():
            return NewRecords.by_spark(self.table, branch, frame, behind)

    def unheld(self, ranges: Sequence[Range]) -> DataFrame:
        """Return the ranges' records that the table cannot hold."""
        return read_frame(self.table.spark, task_ranges(ranges, self.cores), self.open_reader, UNHELD)


UNKNOWN_TYPE = -1
TYPES = {1: 0, 2: 1}
"""librdkafka's numbers of create time and log append time -> Kafka's numbers, which the table stores."""


class ArrowReader(Protocol):
    def batches(self, span: Range, keep: Keep) -> Iterator[pa.RecordBatch]:
        """Yield the range's records in offset order, in the table's columns. Raises UnholdableError if keep=ALL.
        keep=UNHELD: only records that the table cannot hold, in UNHELD_COLUMNS."""

    def close(self) -> None: ...


class MessageReader:
    """Reads from brokers. `most_headers`: limit per record."""

    def __init__(self, reader: RangeReader, most_headers: int = DEFAULT_LIMITS.headers) -> None:
        self._reader, self._most_headers = reader, most_headers

    def batches(self, span: Range, keep: Keep) -> Iterator[pa.RecordBatch]:
        for messages in self._reader.batches(span):
            batch = arrow_batch(span.partition, messages, keep)
            require_few_headers(batch, self._most_headers)
            yield batch

    def close(self) -> None:
        self._reader.close()


def require_few_headers(batch: pa.RecordBatch, most: int) -> None:
    """Raise SourceError for a record with more headers than the limit."""
    counts = pc.list_value_length(batch.column("headers"))
    if (pc.max(counts).as_py() or 0) > most:
        at = pc.index(pc.greater(counts, most), True).as_py()
        partition, offset = batch.column("partition")[at].as_py(), batch.column("offset")[at].as_py()
        raise SourceError(
            f"partition {partition}, offset {offset}: the record has {counts[at].as_py()} headers, and at most "
            f"{most} are allowed; nothing was appended; {limit_text(HEADERS)}"
        )


def read_frame(
    spark: SparkSession, tasks: Sequence[Sequence[Range]], open_reader: Callable[[], ArrowReader], keep: Keep
) -> DataFrame:
    """Return the records of all tasks, each in the order of its ranges. `open_reader` is called in the task."""

    def read(number: int) -> Iterator[pa.RecordBatch]:
        reader = open_reader()
        try:
            for each in tasks[number]:
                yield from reader.batches(each, keep)
        finally:
            reader.close()

    return task_frame(spark, len(tasks), read, keep)


@dataclass(frozen=True, slots=True)
class RangesTask:
    """The ranges that a task reads. `paths`: partition -> path prefix of its new files."""

    ranges: tuple[Range, ...]
    paths: Mapping[int, str]


def write_ranges(
    open_reader: Callable[[], ArrowReader],
    target: FileTarget,
    keep: Keep,
    properties: Mapping[str, str],
    task: RangesTask,
) -> list[WrittenLog]:
    """Write each range's records into its own files, in a Spark task. After CleantailError no file remains."""
    writers = [
        (each, LogWriter(properties, target, each.partition, task.paths[each.partition])) for each in task.ranges
    ]
    reader, written = open_reader(), list[WrittenLog]()
    try:
        with uncollected():
            for each, writer in writers:
                for batch in reader.batches(each, keep):
                    kept, erased = target.kept(batch)
                    writer.add(kept)
                    writer.leave_out(erased)
                written.append(writer.close())
            return written
    except BaseException:
        for _, writer in writers:
            writer.discard()
        raise
    finally:
        reader.close()


def arrow_batch(partition: int, messages: Sequence[Message], keep: Keep = ALL) -> pa.RecordBatch:
    """Return records of one partition as an Arrow batch, as in `ArrowReader.batches`. Timestamps get microseconds."""
    headers = list(map(headers_of, messages))
    reasons: dict[int, Reason] = {n: HEADER_NAME for n, each in enumerate(headers) if each is None}
    ms = np.fromiter((m.timestamp()[1] for m in messages), np.int64, len(messages))
    reasons |= {int(n): TIMESTAMP for n in np.flatnonzero((ms > TIMESTAMP_MAX_MS) | (ms < TIMESTAMP_MIN_MS))}
    if keep == UNHELD:
        return unheld_batch([(_record(messages[n]), headers[n], reason) for n, reason in sorted(reasons.items())])
    if reasons:
        if keep == ALL:
            raise _unholdable(messages, reasons)
        held = [n for n in range(len(messages)) if n not in reasons]
        messages, headers = [messages[n] for n in held], [headers[n] for n in held]
    arrays = [
        pa.array(np.full(len(messages), partition, np.int32)),
        pa.array([m.offset() for m in messages], pa.int64()),
        *_times(messages),
        pa.array([m.key() for m in messages], pa.binary()),
        pa.array([m.value() for m in messages], pa.binary()),
        header_lists([each or () for each in headers]),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _record(message: Message) -> Record:
    kind, ms = message.timestamp()
    key, value = message.key(), message.value()
    assert not isinstance(key, str) and not isinstance(value, str), "the reader has no deserializer"
    return Record(message.partition() or 0, message.offset() or 0, ms, TYPES.get(kind, UNKNOWN_TYPE), key, value, ())


def _times(messages: Sequence[Message]) -> tuple[pa.Array, pa.Array]:
    """Return the columns of timestamps and of their types. A record without a timestamp has null and UNKNOWN_TYPE."""
    stamps = [m.timestamp() for m in messages]
    ms = np.fromiter((time for _, time in stamps), np.int64, len(stamps))
    numbers = {kind: TYPES.get(kind, UNKNOWN_TYPE) for kind in {kind for kind, _ in stamps}}
    types = np.full(len(stamps), next(iter(numbers.values()), UNKNOWN_TYPE), np.int32)
    if len(numbers) > 1:
        types = np.array([numbers[kind] for kind, _ in stamps], np.int32)
    unknown = (ms == NO_TIMESTAMP_MS) | (types == UNKNOWN_TYPE)
    micros = pa.array(ms * 1000, pa.int64(), mask=unknown if unknown.any() else None)
    return micros.cast(ARROW_SCHEMA.field("timestamp").type), pa.array(types)


def header_lists(records: Sequence[Sequence[tuple[Any, Any]]]) -> pa.Array:
    """Return lists of (key, value) in the order of the record. Repeated keys, null and empty values stay."""
    if any(records):
        ends = np.cumsum([0, *map(len, records)], dtype=np.int32)
    else:
        ends, records = np.zeros(len(records) + 1, np.int32), ()
    keys = pa.array([key for headers in records for key, _ in headers], pa.string())
    values = pa.array([value for headers in records for _, value in headers], pa.binary())
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pairs).cast(ARROW_SCHEMA.field("headers").type)


def _unholdable(messages: Sequence[Message], reasons: Mapping[int, Reason]) -> UnholdableError:
    number, reason = min(reasons.items())
    message = messages[number]
    where = f"topic {message.topic()}: partition {message.partition()}, offset {message.offset()}"
    what = timestamp_text(message.timestamp()[1]) if reason == TIMESTAMP else TEXTS[HEADER_NAME]
    return UnholdableError(f"{where}: {what}; nothing was appended. {WAY_OUT}")
