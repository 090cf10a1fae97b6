"""A block of plain lines of kcat as one Arrow batch, by pyarrow's reader of JSON: no line becomes an object of Python.

cleantail.sources.kcat says what a line is. Of a block in which any line is not plain there is no batch: then each of
its lines is read by that. A line is plain where both are known to agree:

1. It is one object from its first byte to its last, in a row of such lines: nothing between two lines can be taken for
   a part of either.
2. It has the fields of kcat's envelope, each once and of its type. Any other makes pyarrow refuse the block.
3. No field is null that must not be, and none is left out that has to be there: pyarrow shows both as null.
4. All numbers are within their bounds, the topic is the right one, and no limit is passed.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from cleantail.config.input_limits import LONG_LINE_BYTES, InputLimits
from cleantail.config.unholdable import NO_TIMESTAMP_MS, TIMESTAMP_MAX_MS, TIMESTAMP_MIN_MS
from cleantail.sources.kcat import INT_MAX, LONG_MAX, TIMESTAMP_TYPES
from spark_jobs.round.intake.record_batches import ARROW_SCHEMA

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
"""The fields of a plain line. kcat names the broker as well, of which nothing is kept."""
TYPE_NAMES, TYPE_NUMBERS = pa.array(list(TIMESTAMP_TYPES)), pa.array(list(TIMESTAMP_TYPES.values()), pa.int32())
HEADER = ARROW_SCHEMA.field("headers").type.value_type
_PARSING = arrow_json.ParseOptions(FIELDS, newlines_in_values=False, unexpected_field_behavior="error")


def plain_batch(block: bytes, topic: str | None, limits: InputLimits) -> pa.RecordBatch | None:
    """Returns the records of a block of whole lines, None where one of them is not plain. `topic` is as in
    cleantail.sources.kcat.parse_line."""
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
    if not _has_its_fields(fields, block) or not _is_of(topic, fields["topic"]) or not _is_in_bounds(fields):
        return None
    types, headers = _timestamp_types(fields["tstype"]), _headers(fields["headers"], limits)
    if types is None or headers is None:
        return None
    columns = [fields["partition"].cast(pa.int32()), fields["offset"], _timestamps(fields["ts"]), types]
    arrays = [*columns, fields["key"], fields["payload"], headers]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _has_plain_lines(block: bytes, line_bytes: int) -> bool:
    """Returns whether each line begins with { and ends with }, none is longer than that, and none can hold another
    encoding than text."""
    ends = block.count(b"\n")
    inner = ends - block.endswith(b"\n")
    if not block.startswith(b"{") or not block.endswith((b"}\n", b"}")) or block.count(b"}\n{") != inner:
        return False
    if b'_encoding"' in block:  # pyarrow would refuse it, later
        return False
    at = 0
    while at + line_bytes < len(block):
        at = block.rfind(b"\n", at, at + line_bytes) + 1
        if not at:
            return False
    return True


def _has_its_fields(fields: dict[str, pa.Array], block: bytes) -> bool:
    """Returns whether no field is null that has to be there. Within a string a quotation mark is escaped, so that a
    name with its quotation marks and a colon is a name."""
    payload = fields["payload"]
    return (
        fields["partition"].null_count == 0
        and fields["offset"].null_count == 0
        and (payload.null_count == 0 or block.count(b'"payload":') == len(payload))
        and all(_is_left_out(name, fields[name], block) for name in ("topic", "tstype", "ts"))
    )


def _is_left_out(name: str, column: pa.Array, block: bytes) -> bool:
    """Returns whether each null stands for a line without the field: then there are as many names as values. A name
    may be written by escapes, too."""
    if not column.null_count:
        return True
    return b"\\u" not in block and block.count(b'"%s"' % name.encode()) == len(column) - column.null_count


def _is_of(topic: str | None, column: pa.Array) -> bool:
    return topic is None or pc.all(pc.equal(column, topic), min_count=0).as_py()


def _is_in_bounds(fields: dict[str, pa.Array]) -> bool:
    bounds = {"partition": (0, INT_MAX), "offset": (0, LONG_MAX - 1), "ts": (TIMESTAMP_MIN_MS, TIMESTAMP_MAX_MS)}
    for name, (low, high) in bounds.items():
        span = pc.min_max(fields[name]).as_py()
        if span["min"] is not None and not low <= span["min"] <= span["max"] <= high:
            return False
    return True


def _timestamps(ts: pa.Array) -> pa.Array:
    """Returns Iceberg's microseconds; a record of which no time is known has -1, or none."""
    micros = pc.multiply(ts, 1000)
    if ts.null_count or pc.any(pc.equal(ts, NO_TIMESTAMP_MS)).as_py():
        micros = pc.if_else(pc.equal(ts, NO_TIMESTAMP_MS), None, micros)
    return micros.cast(ARROW_SCHEMA.field("timestamp").type)


def _timestamp_types(names: pa.Array) -> pa.Array | None:
    """Returns Kafka's numbers of the names; a line without one is of the time that its producer has set."""
    indices = pc.index_in(pc.fill_null(names, "create"), TYPE_NAMES)
    return None if indices.null_count else TYPE_NUMBERS.take(indices)


def _headers(lists: pa.Array, limits: InputLimits) -> pa.Array | None:
    """Returns lists of (key, value) of lists of names and values in turn; None where one is no such list."""
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
