"""Records as Arrow batches in the table's columns: what a task of an ingestion hands on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from cleantail.config.unholdable import Reason
from cleantail.sources.kcat import Record

BATCH_RECORDS = 20_000
BATCH_BYTES = 64 << 20
"""A batch of Arrow ends with the record that reaches either: a task holds one batch."""
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


UNHELD_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("timestamp_type", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))),
        ("reason", pa.string()),
    ]
)
"""The columns of records that a topic's table cannot hold: timestamps in Unix ms, names of headers as bytes."""
UNHELD_COLUMNS = {
    "partition": "int",
    "offset": "bigint",
    "timestamp_ms": "bigint",
    "timestamp_type": "int",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key: binary, value: binary>>",
    "reason": "string",
}
"""The same as Spark SQL types."""


def unheld_batch(
    records: Sequence[tuple[Record, Sequence[tuple[str | bytes, bytes | None]] | None, Reason]],
) -> pa.RecordBatch:
    """Returns records that no topic's table can hold as one Arrow batch, each with its headers, None where the client
    cannot read them. Lone surrogates in the name of a header stand for its bytes."""
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
    """Yields lists of up to BATCH_RECORDS records, and of little more than BATCH_BYTES: of large records a few at a
    time."""
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
    """Returns records as one Arrow batch in the table's columns; Kafka's milliseconds become Iceberg's microseconds."""
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
