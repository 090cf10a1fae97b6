"""Batches of a log as rows that Kafka's clients take: Python's own values, made column by column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from cleantail.config.topic_table import HEADERS, KEY, OFFSET, VALUE
from cleantail.errors import ContradictionError
from cleantail.kafka.target_log import NO_TIMESTAMP_MS, Headers, Rows
from spark_jobs.restore.ordered_log import STAMP


def rows_of(batch: pa.RecordBatch) -> Rows:
    """Returns the records of a batch."""
    return Rows(
        offsets=batch.column(OFFSET).to_pylist(),
        keys=batch.column(KEY).to_pylist(),
        values=batch.column(VALUE).to_pylist(),
        stamps_ms=pc.fill_null(batch.column(STAMP), NO_TIMESTAMP_MS).to_pylist(),
        headers=_headers(batch.column(HEADERS)),
    )


def _headers(lists: pa.ListArray) -> list[Headers | None]:
    """Returns the headers of each record: repeated keys, null and empty values as they are. Their columns are made into
    Python's values once, and then dealt out."""
    flat = lists.flatten()
    if not len(flat):
        return [None] * len(lists)
    names = pc.struct_field(flat, "key").to_pylist()
    pairs = iter(zip(names, pc.struct_field(flat, "value").to_pylist(), strict=True))
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_pylist()
    return [list(islice(pairs, length)) if length else None for length in lengths]


def once(rows: Iterable[Rows], partition: int) -> Iterator[Rows]:
    """Yields the rows with each offset once. Raises ContradictionError, without a key or value, where two records at
    one offset differ."""
    last: Rows | None = None
    for some in rows:
        if not len(some):
            continue
        follows = last is not None and last.offsets[-1] == some.offsets[0]
        if follows or len(set(some.offsets)) < len(some):
            some = _without_copies([some] if last is None else [last, some], partition)
        if len(some):
            yield some
            last = some.part(len(some) - 1, len(some))


def _without_copies(parts: list[Rows], partition: int) -> Rows:
    """Returns the rows of the last part that are no copies of the one before them."""
    *before, some = parts
    kept: list[int] = []
    known = _record(before[0], 0) if before else None
    for number in range(len(some)):
        record = _record(some, number)
        if known is None or record[0] != known[0]:
            kept.append(number)
            known = record
        elif record != known:
            raise ContradictionError(
                f"partition {partition}, offset {record[0]}: two different records; a restore does not choose between "
                'them. See "Two different records at one offset" in docs/operations.md',
                (),
            )
    return Rows(
        [some.offsets[n] for n in kept],
        [some.keys[n] for n in kept],
        [some.values[n] for n in kept],
        [some.stamps_ms[n] for n in kept],
        [some.headers[n] for n in kept],
    )


def _record(rows: Rows, number: int) -> tuple[object, ...]:
    return (
        rows.offsets[number],
        rows.keys[number],
        rows.values[number],
        rows.stamps_ms[number],
        rows.headers[number],
    )
