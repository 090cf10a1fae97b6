"""Records of a topic table in offset order, partition by partition, through PyIceberg and without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cleantail.config.topic_table import HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, TIMESTAMP_TYPE, VALUE
from cleantail.errors import TableError
from cleantail.lake.records.log_records import log_records
from cleantail.sources.kcat import Record

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

BATCH_RECORDS = 10_000
NOWHERE: Mapping[int, int] = {}


def read_records(
    table: Table,
    partitions: list[int],
    from_offset: int = 0,
    snapshot_id: int | None = None,
    log_starts: Mapping[int, int] = NOWHERE,
) -> Iterator[Record]:
    """Yields live records with offset >= `from_offset`, none below its log's start (table_metadata.log_starts).

    Raises TableError for a snapshot that the table does not have.
    """
    if snapshot_id is not None and table.snapshot_by_id(snapshot_id) is None:
        raise TableError(f"no snapshot {snapshot_id} in {'.'.join(table.name())}: it never was, or has expired")
    for partition in partitions:
        start = max(from_offset, log_starts.get(partition, 0))
        records = log_records(table, partition, snapshot_id, from_offset=start)
        for batch in records.sort_by(OFFSET).to_batches(max_chunksize=BATCH_RECORDS):
            yield from records_of(batch)


def records_of(batch: pa.RecordBatch) -> Iterator[Record]:
    """Yields the records of a batch in the topic table's columns; microseconds become Kafka's milliseconds."""
    import pyarrow as pa

    columns = {name: batch.column(name) for name in batch.schema.names}
    stamps = columns[TIMESTAMP].cast(pa.int64())
    values = zip(
        *(columns[name].to_pylist() for name in (PARTITION, OFFSET, TIMESTAMP_TYPE, KEY, VALUE, HEADERS)),
        stamps.to_pylist(),
        strict=True,
    )
    for partition, offset, kind, key, value, headers, micros in values:
        yield Record(partition, offset, None if micros is None else micros // 1000, kind, key, value, _headers(headers))


def _headers(headers: list[dict[str, Any]] | None) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((h["key"], h["value"]) for h in headers or ())
