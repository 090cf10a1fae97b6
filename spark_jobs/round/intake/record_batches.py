"""Arrow batches of records in the table's columns, the results of an ingestion's tasks.

cleantail.sources.kcat defines the lines of kcat and parses them one by one. pyarrow's JSON reader is faster, because it
parses a block of lines without Python objects. It is used only for blocks of plain lines, for which both parsers agree:

1. A line is one object from its first byte to its last. So no object spans two lines.
2. A line has the fields of kcat's envelope, each once and of its type. pyarrow refuses other fields.
3. No required field is null or missing, because pyarrow returns null for both.
4. All numbers are within their bounds, the topic is the expected one, and no limit is exceeded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from cleantail.config.input_limits import LONG_LINE_BYTES, InputLimits
from cleantail.config.topic_table import COLUMNS
from cleantail.config.unholdable import NO_TIMESTAMP_MS, TIMESTAMP_MAX_MS, TIMESTAMP_MIN_MS, UNHELD, Keep, Reason
from cleantail.errors import CleantailError
from cleantail.sources.kcat import INT_MAX, LONG_MAX, TIMESTAMP_TYPES, Record

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession

BATCH_RECORDS = 20_000
BATCH_BYTES = 64 << 20
"""Limits of a batch. It ends with the record that reaches one of them. A task has one batch in memory."""
ARROW_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_type", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


_BYTES_HEADER = pa.struct([("key", pa.binary()), ("value", pa.binary())])
_UNHELD = {
    "partition": ("int", pa.int32()),
    "offset": ("bigint", pa.int64()),
    "timestamp_ms": ("bigint", pa.int64()),
    "timestamp_type": ("int", pa.int32()),
    "key": ("binary", pa.binary()),
    "value": ("binary", pa.binary()),
    "headers": ("array<struct<key: binary, value: binary>>", pa.list_(_BYTES_HEADER)),
    "reason": ("string", pa.string()),
}
"""Columns of records that a topic's table cannot hold. Timestamps are Unix ms, header names bytes."""
UNHELD_COLUMNS = {name: sql for name, (sql, _) in _UNHELD.items()}
UNHELD_SCHEMA = pa.schema([(name, kind) for name, (_, kind) in _UNHELD.items()])


MARK = "cleantail.task-error"
"""Encloses an error of a task: its class, and its arguments as JSON."""


def task_frame(
    spark: SparkSession, tasks: int, read: Callable[[int], Iterator[pa.RecordBatch]], keep: Keep
) -> DataFrame:
    """Return a frame with the batches of `tasks` Spark tasks. Each calls `read` with its number. `keep`: the kind of
    records. `raised` returns a CleantailError of a task in the driver."""

    def read_each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from read(number)
        except CleantailError as e:
            text = json.dumps([type(e).__name__, *e.args], default=str).replace(MARK, "?")  # it may quote any record
            raise RuntimeError(f"{MARK}{text}{MARK}") from None

    columns = UNHELD_COLUMNS if keep == UNHELD else COLUMNS
    schema = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
    return spark.range(0, tasks, 1, tasks).mapInArrow(read_each, schema)


def raised(error: PySparkException) -> CleantailError | None:
    """Return the error of a task of task_frame, which Spark wraps in a message with a traceback, or None."""
    parts = str(error).split(MARK)
    if len(parts) < 3:
        return None
    name, *texts = json.loads(parts[1])
    return _kinds(CleantailError).get(name, CleantailError)(*texts)


def _kinds(of: type[CleantailError]) -> dict[str, type[CleantailError]]:
    return {of.__name__: of} | {name: kind for each in of.__subclasses__() for name, kind in _kinds(each).items()}


@contextmanager
def task_errors(error_of: Callable[[PySparkException], CleantailError | None] = raised) -> Iterator[None]:
    """Raise the error of a task in place of Spark's. `error_of`: returns None for any other error, which stays."""
    from pyspark.errors import PySparkException  # not needed by the tasks

    try:
        yield
    except PySparkException as e:
        if (error := error_of(e)) is None:
            raise
        raise error from None


def unheld_batch(
    records: Sequence[tuple[Record, Sequence[tuple[str | bytes, bytes | None]] | None, Reason]],
) -> pa.RecordBatch:
    """Return records that no topic's table can hold, each with its headers, or None if the client cannot read them.
    Lone surrogates in a header's name represent its bytes."""
    rows = [
        (*(r.partition, r.offset, r.timestamp_ms, r.timestamp_type, r.key, r.value), _raw_headers(headers), reason)
        for r, headers, reason in records
    ]
    columns = zip(*rows, strict=True) if rows else [()] * len(UNHELD_SCHEMA)
    arrays = [pa.array(list(values), field.type) for values, field in zip(columns, UNHELD_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=UNHELD_SCHEMA)


def _raw_headers(
    headers: Sequence[tuple[str | bytes, bytes | None]] | None,
) -> list[dict[str, bytes | None]] | None:
    if headers is None:
        return None
    return [
        {"key": n.encode("utf-8", "surrogateescape") if isinstance(n, str) else n, "value": value}
        for n, value in headers
    ]


def chunks(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Yield lists of at most BATCH_RECORDS records and about BATCH_BYTES at most."""
    chunk: list[Record] = []
    held_bytes = 0
    for record in records:
        chunk.append(record)
        held_bytes += len(record.key or b"") + len(record.value or b"")
        if record.headers:
            held_bytes += sum(len(name) + len(value or b"") for name, value in record.headers)
        if len(chunk) >= BATCH_RECORDS or held_bytes >= BATCH_BYTES:
            yield chunk
            chunk, held_bytes = [], 0
    if chunk:
        yield chunk


def arrow_batch(records: list[Record]) -> pa.RecordBatch:
    """Return records as one Arrow batch in the table's columns. Milliseconds become microseconds."""
    columns = [
        [r.partition for r in records],
        [r.offset for r in records],
        [None if r.timestamp_ms is None else r.timestamp_ms * 1000 for r in records],
        [r.timestamp_type for r in records],
        [r.key for r in records],
        [r.value for r in records],
        [[{"key": k, "value": v} for k, v in r.headers] for r in records],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


FIELDS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int64()),
        ("offset", pa.int64()),
        ("tstype", pa.string()),
        ("ts", pa.int64()),
        ("broker", pa.int64()),
        ("headers", pa.list_(pa.string())),
        ("key", pa.binary()),
        ("payload", pa.binary()),
    ]
)
"""Fields of a plain line. `broker` is not stored."""
TYPE_NAMES, TYPE_NUMBERS = pa.array(list(TIMESTAMP_TYPES)), pa.array(list(TIMESTAMP_TYPES.values()), pa.int32())
HEADER = ARROW_SCHEMA.field("headers").type.value_type
_PARSING = arrow_json.ParseOptions(FIELDS, newlines_in_values=False, unexpected_field_behavior="error")


def plain_batch(block: bytes, topic: str | None, limits: InputLimits) -> pa.RecordBatch | None:
    """Return the records of a block of whole lines, or None if a line is not plain. `topic`: as in parse_line."""
    if not _has_plain_lines(block, min(LONG_LINE_BYTES, limits.line_bytes)):
        return None
    reading = arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    try:
        table = arrow_json.read_json(pa.BufferReader(block), reading, _PARSING)
    except (pa.ArrowException, UnicodeError):
        return None
    if table.num_rows != block.count(b"\n") + (not block.endswith(b"\n")):
        return None
    fields = {name: table.column(name).combine_chunks() for name in FIELDS.names}
    if not _has_its_fields(fields, block) or not _is_in_bounds(fields):
        return None
    if topic is not None and not pc.all(pc.equal(fields["topic"], topic), min_count=0).as_py():
        return None
    types = pc.index_in(pc.fill_null(fields["tstype"], "create"), TYPE_NAMES)  # a missing name means create time
    headers = _headers(fields["headers"], limits)
    if types.null_count or headers is None:
        return None
    partition, times = fields["partition"].cast(pa.int32()), _timestamps(fields["ts"])
    columns = [partition, fields["offset"], times, TYPE_NUMBERS.take(types)]
    arrays = [*columns, fields["key"], fields["payload"], headers]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _has_plain_lines(block: bytes, line_bytes: int) -> bool:
    """Return whether each line begins with { and ends with }, none is too long, and none names an encoding."""
    ends = block.count(b"\n")
    inner = ends - block.endswith(b"\n")
    if not block.startswith(b"{") or not block.endswith((b"}\n", b"}")) or block.count(b"}\n{") != inner:
        return False
    if b'_encoding"' in block:  # pyarrow would refuse the field later
        return False
    at = 0
    while at + line_bytes < len(block):
        at = block.rfind(b"\n", at, at + line_bytes) + 1
        if not at:
            return False
    return True


def _has_its_fields(fields: dict[str, pa.Array], block: bytes) -> bool:
    """Return whether no required field is null. Finds names by a quoted name with a colon, which no string can contain,
    because quotation marks in it are escaped."""
    payload = fields["payload"]
    return (
        fields["partition"].null_count == 0
        and fields["offset"].null_count == 0
        and (payload.null_count == 0 or block.count(b'"payload":') == len(payload))
        and all(_is_left_out(name, fields[name], block) for name in ("topic", "tstype", "ts"))
    )


def _is_left_out(name: str, column: pa.Array, block: bytes) -> bool:
    """Return whether each null is from a line without the field: then the block has as many names as values. False if
    the block has escapes, because they could hide a name."""
    if not column.null_count:
        return True
    return b"\\u" not in block and block.count(b'"%s"' % name.encode()) == len(column) - column.null_count


def _is_in_bounds(fields: dict[str, pa.Array]) -> bool:
    bounds = {"partition": (0, INT_MAX), "offset": (0, LONG_MAX - 1), "ts": (TIMESTAMP_MIN_MS, TIMESTAMP_MAX_MS)}
    for name, (low, high) in bounds.items():
        span = pc.min_max(fields[name]).as_py()
        if span["min"] is not None and not low <= span["min"] <= span["max"] <= high:
            return False
    return True


def _timestamps(ts: pa.Array) -> pa.Array:
    """Convert ms to microseconds, and Kafka's -1 to null."""
    micros = pc.multiply(ts, 1000)
    if ts.null_count or pc.any(pc.equal(ts, NO_TIMESTAMP_MS)).as_py():
        micros = pc.if_else(pc.equal(ts, NO_TIMESTAMP_MS), None, micros)
    return micros.cast(ARROW_SCHEMA.field("timestamp").type)


def _headers(lists: pa.Array, limits: InputLimits) -> pa.Array | None:
    """Convert lists of alternating names and values to lists of (key, value). Returns None if one is malformed."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    parts = lists.flatten()
    if len(lengths) and ((lengths % 2).any() or lengths.max() // 2 > limits.headers):
        return None
    names = parts.take(pa.array(np.arange(0, len(parts), 2)))
    values = parts.take(pa.array(np.arange(1, len(parts), 2)))
    if names.null_count or not _is_utf8(names):
        return None
    pairs = pa.StructArray.from_arrays([names, values.cast(pa.binary())], fields=list(HEADER))
    ends = np.concatenate([[0], np.cumsum(lengths // 2)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pairs).cast(ARROW_SCHEMA.field("headers").type)


def _is_utf8(names: pa.Array) -> bool:
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
