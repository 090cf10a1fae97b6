"""The tasks of a restore, one for each partition: look at a log, compare it with the topic, write it.

The records of a pinned log have one order, that of their offsets, each offset once. Only this restore writes into the
topic, so record n of a log is at offset n of its partition. A task that writes begins where the partition ends, after
it has compared what is there. So a run that was killed goes on, and so does a task that Spark tries again.

1. Files follow each other by the bounds of their offsets. A file that overlaps with no other, and is in the order of
   offsets itself, is read as it is: that is how ingestion and reclaim write files.
2. Files that overlap, and a file in another order, are sorted by the task's database, which goes to disk beyond its
   memory.
3. Of copies of a record one is taken (semantics.md 3.5). Two different records at one offset are an error: nobody
   decides between them here.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO, load_file_io
from pyroaring import BitMap64

from cleantail.config.config_model import LONG_MAX
from cleantail.config.topic_table import HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, TIMESTAMP_TYPE, TOMBSTONE, VALUE
from cleantail.errors import ContradictionError, RestoreMismatchError, TableError
from cleantail.human import counted
from cleantail.kafka.restore_target import LogFacts
from cleantail.kafka.target_log import NO_TIMESTAMP_MS, Difference, Feed, Headers, Rows, TargetLog, first_difference
from cleantail.log.winners import MICROS_PER_MILLI, Booleans
from spark_jobs.engine.rewrite_task import BATCH_RECORDS, live_batches, opened
from spark_jobs.engine.task_keys import reading, task_database
from spark_jobs.engine.task_records import require_place
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


SENT_RECORDS = 2_000
"""So many records are queued at a time."""
SETTLED_RECORDS, SETTLED_BYTES = 200_000, 128 << 20
"""After so many records it is looked where the partition ends."""
OF_BROKER = 1
"""Kafka's number for LogAppendTime, as the table has it."""


@dataclass(frozen=True, slots=True)
class RestoreTask:
    """Describes one partition. `proved`: so many of its records have been compared by an earlier task of this run.
    `max_message_bytes`: the topic's max.message.bytes."""

    source: LogSource
    topic: str
    max_message_bytes: int
    proved: int = 0

    @property
    def partition(self) -> int:
        return self.source.partition


@dataclass(frozen=True, slots=True)
class LogProgress:
    """Says how many records a task has compared, and how many it has written."""

    partition: int
    compared: int = 0
    written: int = 0


def look_at_log(store: Mapping[str, str], source: LogSource) -> LogFacts:
    """Returns what is to be written of the log, by its offsets and timestamps. Reads values only where nothing else
    tells which of them are null."""
    io, tally = load_file_io(dict(store), source.location), _Tally()
    for file in source.files:
        for arrays in file_batches(io, source, file, _looked_at(source, file)):
            tally.add(source, arrays)
    return tally.facts(source.partition)


def _looked_at(source: LogSource, file: LogFile) -> tuple[str, ...]:
    """Returns the columns that have to be read to know which records are written, and when they are of."""
    tells_tombstones = () if source.tombstones or file.null_values == 0 else (TOMBSTONE if file.marked else VALUE,)
    return (PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, *tells_tombstones)


@dataclass(slots=True)
class _Tally:
    """Counts of a log, file by file."""

    offsets: BitMap64 = field(default_factory=BitMap64)
    stamps_ms: list[int] = field(default_factory=list)
    zero_stamps: int = 0
    without_type: int = 0

    def add(self, source: LogSource, arrays: Mapping[str, pa.Array]) -> None:
        arrays = arrays if source.tombstones else _without_tombstones(arrays)
        self.offsets |= BitMap64(arrays[OFFSET].to_numpy(zero_copy_only=False).astype(np.uint64))
        if TIMESTAMP in arrays:
            stamps = arrays[TIMESTAMP].cast(pa.int64()).drop_null().to_numpy(zero_copy_only=False) // MICROS_PER_MILLI
            self.stamps_ms += [int(stamps.min()), int(stamps.max())] if len(stamps) else []
            self.zero_stamps += int(np.count_nonzero((stamps == 0) | (stamps == -1)))
        if TIMESTAMP_TYPE in arrays:
            self.without_type += pc.sum(pc.equal(arrays[TIMESTAMP_TYPE], OF_BROKER)).as_py() or 0

    def facts(self, partition: int) -> LogFacts:
        return LogFacts(
            partition=partition,
            records=len(self.offsets),
            first_offset=int(self.offsets.min()) if self.offsets else None,
            last_offset=int(self.offsets.max()) if self.offsets else None,
            oldest_ms=min(self.stamps_ms, default=None),
            newest_ms=max(self.stamps_ms, default=None),
            zero_stamps=self.zero_stamps,
            without_type=self.without_type,
        )


def _without_tombstones(arrays: Mapping[str, pa.Array]) -> Mapping[str, pa.Array]:
    if TOMBSTONE in arrays:
        kept = pc.invert(arrays[TOMBSTONE])
    elif VALUE in arrays:
        kept = pc.is_valid(arrays[VALUE])
    else:
        return arrays
    return {name: array.filter(kept) for name, array in arrays.items()}


@contextmanager
def uncollected() -> Iterator[None]:
    """Holds Python's collector of cycles back. Records make none, and it looks through all of them again and again,
    which takes more time than to compare them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def compare_log(settings: Mapping[str, str], store: Mapping[str, str], task: RestoreTask) -> LogProgress:
    """Compares what the partition has with the log's first records, one by one. Raises RestoreMismatchError."""
    with uncollected(), TargetLog(settings, task.topic, task.partition) as target:
        return LogProgress(task.partition, compare(_feed(store, task), target, 0, target.end()))


def verify_log(settings: Mapping[str, str], store: Mapping[str, str], task: RestoreTask) -> LogProgress:
    """Compares the partition with the log, one record after the other, to both ends. Raises RestoreMismatchError."""
    feed = _feed(store, task)
    with uncollected(), TargetLog(settings, task.topic, task.partition) as target:
        compared = compare(feed, target, 0, target.end())
        missing = sum(len(rows) for rows in feed.rest(SENT_RECORDS))
    if missing:
        raise RestoreMismatchError(
            f"{target.where} ends at offset {compared}, and the archive has {counted(missing, 'record')} more"
        )
    return LogProgress(task.partition, compared)


def write_log(settings: Mapping[str, str], store: Mapping[str, str], task: RestoreTask) -> LogProgress:
    """Writes the records of the log that the partition does not have yet, after comparing those that it has. Raises
    RestoreMismatchError where somebody else writes into the partition."""
    feed = _feed(store, task)
    with uncollected(), TargetLog(settings, task.topic, task.partition) as target:
        start, end = feed.skip(task.proved), target.end()
        if end < start:
            raise RestoreMismatchError(f"{target.where} ends at offset {end}, and has ended at {start}: it is another")
        compared = compare(feed, target, start, end)
        return LogProgress(task.partition, compared, _write(feed, target, task, end))


def _feed(store: Mapping[str, str], task: RestoreTask) -> Feed:
    return Feed(log_rows(load_file_io(dict(store), task.source.location), task.source))


def log_rows(io: FileIO, source: LogSource) -> Iterator[Rows]:
    """Yields the records of a log as they are written: in the order of their offsets, each offset once."""
    return once((rows_of(batch) for batch in ordered_batches(io, source)), source.partition)


def compare(feed: Feed, target: TargetLog, start: int, end: int) -> int:
    """Compares the next records of the feed with those at [start, end) of the partition; returns how many there were.
    Raises RestoreMismatchError, which names no key and no value, for the first that differs."""
    at = start
    for messages in target.messages(start, end):
        index = 0
        while index < len(messages):
            rows = feed.some(len(messages) - index)
            if rows is None:
                raise RestoreMismatchError(
                    f"{target.where} has {counted(end - at - index, 'record')} more than the archive, from offset "
                    f"{at + index} on: somebody else wrote into it"
                )
            difference = first_difference(rows, messages[index : index + len(rows)])
            if difference is not None:
                raise _differs(target, rows, at + index, difference)
            index += len(rows)
        at += len(messages)
    return at - start


def _differs(target: TargetLog, rows: Rows, at: int, difference: Difference) -> RestoreMismatchError:
    return RestoreMismatchError(
        f"{target.where}: the record at offset {at + difference.place} is not the archive's of offset "
        f"{rows.offsets[difference.place]}: its {difference.field} differs; somebody else wrote into it"
    )


def _write(feed: Feed, target: TargetLog, task: RestoreTask, end: int) -> int:
    """Writes what is left of the feed behind `end`; returns how many records that were."""
    writer, written, records, size = target.writer(task.max_message_bytes), 0, 0, 0
    try:
        for rows in feed.rest(SENT_RECORDS):
            writer.send(rows)
            written, records = written + len(rows), records + len(rows)
            size += sum(map(len, filter(None, rows.values)))
            if records >= SETTLED_RECORDS or size >= SETTLED_BYTES:
                writer.settle()
                _require_end(target, end + written)
                records, size = 0, 0
        writer.settle()
    finally:
        writer.discard()
    _require_end(target, end + written)
    return written


def _require_end(target: TargetLog, expected: int) -> None:
    """Raises RestoreMismatchError where the partition does not end where this task has come."""
    end = target.end()
    if end != expected:
        raise RestoreMismatchError(
            f"{target.where} ends at offset {end}, and {expected} is as far as this restore has come: somebody else "
            "writes into it. Delete the topic, make it anew, and restore again"
        )
