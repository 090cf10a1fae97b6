"""What a task does: it reads its ranges and yields their records in the table's columns, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from cleantail.config.topic_table import COLUMNS
from cleantail.errors import CleantailError, OutsideError, SourceError, SourceUnreachableError
from cleantail.kafka.range_reader import RangeReader
from cleantail.kafka.read_plan import Range
from cleantail.sources.kcat import TIMESTAMP_MAX_MS
from spark_jobs.round.intake.record_batches import ARROW_SCHEMA

if TYPE_CHECKING:
    from confluent_kafka import Message

MARK = "cleantail.kafka-source"
"""Stands around the one message that comes back from a worker: kind and text as JSON."""
NO_TIMESTAMP = (None, -1)
TYPES = {1: 0, 2: 1}
"""librdkafka's create and log append time -> Kafka's own numbers, which the table has."""
KEY_VALUE = ARROW_SCHEMA.field("headers").type.value_type


def read_frame(
    spark: SparkSession, tasks: Sequence[Sequence[Range]], open_reader: Callable[[], RangeReader]
) -> DataFrame:
    """Returns the records of all tasks, each in the order of its ranges. `open_reader` is called in the task."""
    schema = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_ranges(tasks[number], open_reader)

    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(read, schema)


def read_ranges(ranges: Iterable[Range], open_reader: Callable[[], RangeReader]) -> Iterator[pa.RecordBatch]:
    """Yields the records of the ranges. Raises RuntimeError, which Spark carries to the driver, with what `raised`
    makes an error of again."""
    try:
        reader = open_reader()
        try:
            for each in ranges:
                for messages in reader.batches(each):
                    yield arrow_batch(each.partition, messages)
        finally:
            reader.close()
    except CleantailError as e:
        raise RuntimeError(f"{MARK}{json.dumps([type(e).__name__, str(e)])}{MARK}") from None


def raised(error: PythonException) -> CleantailError | None:
    """Returns the error that a task met, None where it was not one of these. Spark wraps it in a message with a
    traceback."""
    parts = str(error).split(MARK)
    if len(parts) < 3:
        return None
    kinds = {kind.__name__: kind for kind in (SourceError, SourceUnreachableError, OutsideError)}
    name, text = json.loads(parts[1])
    return kinds.get(name, CleantailError)(text)


def arrow_batch(partition: int, messages: Sequence[Message]) -> pa.RecordBatch:
    """Returns records of one partition as an Arrow batch in the table's columns; Kafka's milliseconds become Iceberg's
    microseconds. Raises SourceError for what no table can hold."""
    times = [_time(message) for message in messages]
    arrays = [
        pa.array([partition] * len(messages), pa.int32()),
        pa.array([m.offset() for m in messages], pa.int64()),
        pa.array([ms if ms is None else ms * 1000 for ms, _ in times], ARROW_SCHEMA.field("timestamp").type),
        pa.array([kind for _, kind in times], pa.int32()),
        pa.array([m.key() for m in messages], pa.binary()),
        pa.array([m.value() for m in messages], pa.binary()),
        _headers(messages),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _time(message: Message) -> tuple[int | None, int]:
    kind, ms = message.timestamp()
    if kind not in TYPES:
        return NO_TIMESTAMP
    if ms > TIMESTAMP_MAX_MS:
        raise _unfit(message, f"timestamp {ms} is beyond what the table can hold, {TIMESTAMP_MAX_MS}")
    return (ms if ms >= 0 else None), TYPES[kind]


def _headers(messages: Sequence[Message]) -> pa.Array:
    """Returns lists of (key, value), in the order of the record: repeated keys, null and empty values as they are."""
    ends, keys, values = [0], [], []
    for message in messages:
        for key, value in _headers_of(message):
            keys.append(key)
            values.append(value)
        ends.append(len(keys))
    pairs = pa.StructArray.from_arrays(
        [pa.array(keys, pa.string()), pa.array(values, pa.binary())], fields=list(KEY_VALUE)
    )
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pairs).cast(ARROW_SCHEMA.field("headers").type)


def _headers_of(message: Message) -> Sequence[tuple[str, Any]]:
    try:
        headers: Any = message.headers()
    except UnicodeDecodeError:
        raise _unfit(message, "the name of a header is not UTF-8, which Kafka's strings are") from None
    if isinstance(headers, Mapping):
        return list(headers.items())
    return headers or ()


def _unfit(message: Message, why: str) -> SourceError:
    where = f"topic {message.topic()}: partition {message.partition()}, offset {message.offset()}"
    return SourceError(f"{where}: {why}; nothing was appended")
