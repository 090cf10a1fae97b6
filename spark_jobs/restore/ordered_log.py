"""The records of one log in the order of their offsets, each offset once, batch by batch.

1. Files follow each other by the bounds of their offsets. A file that overlaps with no other, and is in the order of
   offsets itself, is read as it is: that is how ingestion and reclaim write files.
2. Files that overlap, and a file in another order, are sorted by the task's database, which goes to disk beyond its
   memory.
3. Of copies of a record one is taken (semantics.md 3.5). Two different records at one offset are an error: nobody
   decides between them here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from cleantail.config.config_model import LONG_MAX
from cleantail.config.topic_table import HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, TOMBSTONE, VALUE
from cleantail.errors import TableError
from cleantail.log.winners import MICROS_PER_MILLI, Booleans
from spark_jobs.engine.columns.records import require_place
from spark_jobs.engine.columns.task_database import reading, task_database
from spark_jobs.engine.rewrites.live_batches import BATCH_RECORDS, live_batches, opened
from spark_jobs.iceberg.file_columns import HEADER_LIST, Layout, Projection, as_topic_column, has_offsets, parts_in
from spark_jobs.iceberg.log_files import LogFile, alive, read_deletes_in_task

STAMP = "stamp"
RECORD = pa.schema(
    [
        (OFFSET, pa.int64()),
        (STAMP, pa.int64()),
        (KEY, pa.binary()),
        (VALUE, pa.binary()),
        (HEADERS, HEADER_LIST),
    ]
)
"""Columns of a batch. `stamp`: Unix ms, null where a record has no timestamp."""
STORED = (PARTITION, OFFSET, TIMESTAMP, KEY, VALUE, HEADERS)
BATCH_BYTES = 8 << 20
"""What is read at a time."""
BYTES = (pa.binary(), pa.large_binary(), pa.string(), pa.large_string())
"""Types of a key or value that are the very bytes that Kafka has."""


@dataclass(frozen=True, slots=True)
class LogSource:
    """Holds the records of a log at a snapshot; all of it can be pickled.

    files         the data files that can have some
    start         the first offset that a reader may see
    tombstones    whether records with a null value are among them
    location      any path in the store that has the files, by which its file IO is chosen
    memory_bytes  what the task's database takes at most before it goes to disk
    """

    partition: int
    files: tuple[LogFile, ...]
    layout: Layout
    start: int
    tombstones: bool
    location: str
    memory_bytes: int


def ordered_batches(io: FileIO, source: LogSource) -> Iterator[pa.RecordBatch]:
    """Yields the live records of the log (RECORD), copies included. Raises TableError for a file that is not what its
    metadata say, or whose keys or values are not bytes."""
    for group in overlapping(source.files):
        if len(group) == 1 and _in_order(io, source, group[0]):
            yield from _live(io, source, group[0])
        else:
            yield from _sorted(io, source, group)


def overlapping(files: Sequence[LogFile]) -> list[list[LogFile]]:
    """Returns the files in groups: no offset of one group is in another's span."""
    groups: list[list[LogFile]] = []
    highest = -1
    for file in sorted(files, key=lambda f: (_low(f), _high(f), f.path)):
        if groups and _low(file) <= highest:
            groups[-1].append(file)
        else:
            groups.append([file])
        highest = max(highest, _high(file))
    return groups


def _low(file: LogFile) -> int:
    return 0 if file.lower_offset is None else file.lower_offset


def _high(file: LogFile) -> int:
    return LONG_MAX if file.upper_offset is None else file.upper_offset


def _in_order(io: FileIO, source: LogSource, file: LogFile) -> bool:
    """Returns whether the offsets of the file's live records never go down."""
    last = -1
    for batch in file_batches(io, source, file, (PARTITION, OFFSET)):
        offsets = batch[OFFSET].to_numpy(zero_copy_only=False)
        if len(offsets) and (offsets[0] < last or bool((offsets[1:] < offsets[:-1]).any())):
            return False
        last = int(offsets[-1]) if len(offsets) else last
    return True


def file_batches(
    io: FileIO, source: LogSource, file: LogFile, columns: Sequence[str]
) -> Iterator[Mapping[str, pa.Array]]:
    """Yields column -> its array in a topic table's type, of the records of a file that live, are of the log, and may
    be seen. Every wanted column of the layout is in the mapping; the partition is read only where it has to be."""
    require_as_in_kafka(source.layout, file.path)
    live = alive(file.records, read_deletes_in_task(io, file.before, file))
    read = [name for name in columns if name != PARTITION or file.log is None]
    with opened(io, file) as parquet:
        projection = Projection(parquet.schema_arrow, source.layout, read, file.constants, file.path)
        for _, batch in live_batches(parquet, live, BATCH_BYTES, projection.read):
            arrays = {n: _column(n, array, file.path) for n, array in projection.arrays(batch).items()}
            require_place(arrays, file)
            chosen = _chosen(source, arrays)
            yield arrays if chosen.all() else {name: a.filter(pa.array(chosen)) for name, a in arrays.items()}


def require_as_in_kafka(layout: Layout, path: str) -> None:
    """Raises TableError where keys are of several columns, or a column marks deletes: what Kafka had is not there."""
    marks = TOMBSTONE in layout and layout[TOMBSTONE].marks is not None
    if marks or parts_in(layout, KEY) or parts_in(layout, VALUE):
        raise TableError(
            f"{path} has keys or values of several columns, or a column that marks deletes: a topic in Kafka has "
            "bytes, and what they were the table does not say"
        )
    if not has_offsets(layout):
        raise TableError(f"{path} has no offsets of Kafka, and its records are in another order than a log's")


def _column(name: str, array: pa.Array, path: str) -> pa.Array:
    """Returns a column in a topic table's type; keys and values as the bytes that they are in Kafka."""
    if name not in (KEY, VALUE):
        return as_topic_column(name, array, path)
    if array.type not in BYTES and not pa.types.is_fixed_size_binary(array.type):
        raise TableError(f"{path} has a column {name} of the type {array.type}, which is not what Kafka had: bytes")
    return array.cast(pa.binary())


def _chosen(source: LogSource, arrays: Mapping[str, pa.Array]) -> Booleans:
    """Returns which records are of the log and may be seen."""
    offsets = arrays[OFFSET]
    if offsets.null_count:
        raise TableError(f"partition {source.partition} has a record without an offset")
    chosen: Booleans = offsets.to_numpy(zero_copy_only=False) >= source.start
    if PARTITION in arrays:
        chosen &= pc.fill_null(arrays[PARTITION], -1).to_numpy(zero_copy_only=False) == source.partition
    return chosen


def _live(io: FileIO, source: LogSource, file: LogFile) -> Iterator[pa.RecordBatch]:
    """Yields the records of a file, in its own order."""
    for arrays in file_batches(io, source, file, STORED):
        batch = _record_batch(arrays)
        yield batch if source.tombstones else batch.filter(pc.is_valid(batch.column(VALUE)))


def _record_batch(arrays: Mapping[str, pa.Array]) -> pa.RecordBatch:
    records = len(arrays[OFFSET])
    columns = [arrays[OFFSET], _stamps(arrays.get(TIMESTAMP), records)]
    columns += [arrays.get(name, pa.nulls(records, RECORD.field(name).type)) for name in (KEY, VALUE, HEADERS)]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD)


def _stamps(timestamps: pa.Array | None, records: int) -> pa.Array:
    """Returns microseconds as Kafka's milliseconds, rounded down."""
    if timestamps is None:
        return pa.nulls(records, pa.int64())
    micros = timestamps.cast(pa.int64())
    known = pc.fill_null(micros, 0).to_numpy(zero_copy_only=False) // MICROS_PER_MILLI
    null = pc.is_null(micros).to_numpy(zero_copy_only=False)
    return pa.array(known, pa.int64(), mask=null if null.any() else None)


def _sorted(io: FileIO, source: LogSource, files: Sequence[LogFile]) -> Iterator[pa.RecordBatch]:
    """Yields the records of some files in the order of their offsets."""
    batches = (batch for file in files for batch in _live(io, source, file))
    with task_database(1, source.memory_bytes) as database, reading(database, "record", RECORD, batches):
        for batch in database.sql(f'SELECT * FROM record ORDER BY "{OFFSET}"').to_arrow_reader(_fitting(io, files)):
            columns = (column.cast(kind) for column, kind in zip(batch.columns, RECORD.types, strict=True))
            yield pa.RecordBatch.from_arrays(list(columns), schema=RECORD)


def _fitting(io: FileIO, files: Sequence[LogFile]) -> int:
    """Returns how many records a batch may have, by what the footers say they are without compression."""
    size = 0
    for file in files:
        with opened(io, file) as parquet:
            footer = parquet.metadata
            size += sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups))
    return max(min(BATCH_BYTES * sum(file.records for file in files) // max(size, 1), BATCH_RECORDS), 1)
