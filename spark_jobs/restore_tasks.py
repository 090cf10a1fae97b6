"""The tasks of a restore, one per partition: measure a log, compare it with the topic, write it.

The records of a pinned log are ordered by offset, and each offset occurs once. Only this restore writes into the topic,
so record n of a log is at offset n of its partition. A writing task first compares the partition's present records,
then appends the rest. A killed run or a retried task continues in the same way.

1. Files are read in the order of their offset bounds. A file is streamed if it overlaps with no other file and is
   sorted by offset. Ingestion and reclaim write such files.
2. All other files are sorted in the task's database, which spills to disk.
3. Copies of a record are written once (semantics.md 3.5). Two different records at one offset are an error, because a
   restore does not choose between them.
4. Records of erased keys are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from cleantail.home.process import uncollected
from cleantail.human import counted
from cleantail.kafka.restore_target import LogFacts
from cleantail.kafka.target_log import NO_TIMESTAMP_MS, Feed, Headers, Rows, TargetLog, first_difference
from cleantail.log.winners import MICROS_PER_MILLI, Booleans
from spark_jobs.engine.rewrite_task import BATCH_RECORDS, live_batches, opened
from spark_jobs.engine.task_records import reading, require_place, task_database
from spark_jobs.iceberg.file_columns import HEADER_LIST, Layout, Projection, as_topic_column, has_offsets, parts_in
from spark_jobs.iceberg.log_files import LogFile, live_before
from spark_jobs.round.intake.denylist import SentKeys

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
"""Columns of a batch. `stamp`: Unix ms, null if a record has no timestamp."""
BATCH_BYTES = 8 << 20
BYTES = (pa.binary(), pa.large_binary(), pa.string(), pa.large_string())
"""Column types that store exactly Kafka's bytes of a key or value."""
Denied = SentKeys | None
"""The erased keys that a restore leaves out."""


@dataclass(frozen=True, slots=True)
class SnapshotLog:
    """The records of a log at a snapshot. It can be pickled.

    files         data files that may have records of the log
    start         first offset that a reader may see
    tombstones    whether to include records with a null value
    location      any path in the store of the files; selects its file IO
    memory_bytes  memory of the task's database before it spills to disk
    """

    partition: int
    files: tuple[LogFile, ...]
    layout: Layout
    start: int
    tombstones: bool
    location: str
    memory_bytes: int


def ordered_batches(io: FileIO, source: SnapshotLog, denied: Denied = None) -> Iterator[pa.RecordBatch]:
    """Yield the live records of the log (RECORD), copies included, without denied keys. Raises TableError for a file
    that contradicts its metadata, or whose keys or values are not bytes."""
    for group in overlapping(source.files):
        if len(group) == 1 and _in_order(io, source, group[0]):
            yield from _live(io, source, group[0], denied)
        else:
            yield from _sorted(io, source, group, denied)


def overlapping(files: Sequence[LogFile]) -> list[list[LogFile]]:
    """Return the files in groups whose offset ranges do not overlap."""
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


def _in_order(io: FileIO, source: SnapshotLog, file: LogFile) -> bool:
    last = -1
    for batch in file_batches(io, source, file, (PARTITION, OFFSET)):
        offsets = batch[OFFSET].to_numpy(zero_copy_only=False)
        if len(offsets) and (offsets[0] < last or bool((offsets[1:] < offsets[:-1]).any())):
            return False
        last = int(offsets[-1]) if len(offsets) else last
    return True


def file_batches(
    io: FileIO, source: SnapshotLog, file: LogFile, columns: Sequence[str]
) -> Iterator[Mapping[str, pa.Array]]:
    """Yield column -> array in a topic table's type, for the log's visible live records in a file. The partition is
    read only if the file may have other logs."""
    require_as_in_kafka(source.layout, file.path)
    live = live_before(io, file)
    read = [name for name in columns if name != PARTITION or file.log is None]
    with opened(io, file) as parquet:
        projection = Projection(parquet.schema_arrow, source.layout, read, file.constants, file.path)
        for _, batch in live_batches(parquet, live, BATCH_BYTES, projection.read):
            arrays = {n: _column(n, array, file.path) for n, array in projection.arrays(batch).items()}
            require_place(arrays, file)
            chosen = _chosen(source, arrays)
            yield arrays if chosen.all() else {name: a.filter(pa.array(chosen)) for name, a in arrays.items()}


def require_as_in_kafka(layout: Layout, path: str) -> None:
    """Raise TableError if the table does not store Kafka's bytes and offsets."""
    marks = TOMBSTONE in layout and layout[TOMBSTONE].marks is not None
    if marks or parts_in(layout, KEY) or parts_in(layout, VALUE):
        raise TableError(
            f"{path} has keys or values of several columns, or a column that marks deletes. A restore needs the bytes "
            "that Kafka had, and the table does not store them"
        )
    if not has_offsets(layout):
        raise TableError(f"{path} has no Kafka offsets, so the order of its records is unknown")


def _column(name: str, array: pa.Array, path: str) -> pa.Array:
    if name not in (KEY, VALUE):
        return as_topic_column(name, array, path)
    if array.type not in BYTES and not pa.types.is_fixed_size_binary(array.type):
        raise TableError(f"{path} has column {name} of type {array.type}. A restore needs the bytes that Kafka had")
    return array.cast(pa.binary())


def _chosen(source: SnapshotLog, arrays: Mapping[str, pa.Array]) -> Booleans:
    """Return the mask of the log's records at or above its start."""
    offsets = arrays[OFFSET]
    if offsets.null_count:
        raise TableError(f"partition {source.partition} has a record without an offset")
    chosen: Booleans = offsets.to_numpy(zero_copy_only=False) >= source.start
    if PARTITION in arrays:
        chosen &= pc.fill_null(arrays[PARTITION], -1).to_numpy(zero_copy_only=False) == source.partition
    return chosen


def _live(io: FileIO, source: SnapshotLog, file: LogFile, denied: Denied) -> Iterator[pa.RecordBatch]:
    for arrays in file_batches(io, source, file, (PARTITION, OFFSET, TIMESTAMP, KEY, VALUE, HEADERS)):
        records = len(arrays[OFFSET])
        columns = [arrays[OFFSET], _stamps(arrays.get(TIMESTAMP), records)]
        columns += [arrays.get(name, pa.nulls(records, RECORD.field(name).type)) for name in (KEY, VALUE, HEADERS)]
        batch = pa.RecordBatch.from_arrays(columns, schema=RECORD)
        if denied is not None:
            batch = batch.filter(pa.array(~denied.found(batch.column(KEY))))
        yield batch if source.tombstones else batch.filter(pc.is_valid(batch.column(VALUE)))


def _stamps(timestamps: pa.Array | None, records: int) -> pa.Array:
    """Convert microseconds to Kafka's milliseconds, rounded down."""
    if timestamps is None:
        return pa.nulls(records, pa.int64())
    micros = timestamps.cast(pa.int64())
    known = pc.fill_null(micros, 0).to_numpy(zero_copy_only=False) // MICROS_PER_MILLI
    null = pc.is_null(micros).to_numpy(zero_copy_only=False)
    return pa.array(known, pa.int64(), mask=null if null.any() else None)


def _sorted(io: FileIO, source: SnapshotLog, files: Sequence[LogFile], denied: Denied) -> Iterator[pa.RecordBatch]:
    batches = (batch for file in files for batch in _live(io, source, file, denied))
    with task_database(1, source.memory_bytes) as database, reading(database, "record", RECORD, batches):
        for batch in database.sql(f'SELECT * FROM record ORDER BY "{OFFSET}"').to_arrow_reader(_fitting(io, files)):
            columns = (column.cast(kind) for column, kind in zip(batch.columns, RECORD.types, strict=True))
            yield pa.RecordBatch.from_arrays(list(columns), schema=RECORD)


def _fitting(io: FileIO, files: Sequence[LogFile]) -> int:
    """Return the number of records per batch, from the uncompressed sizes in the footers."""
    size = 0
    for file in files:
        with opened(io, file) as parquet:
            footer = parquet.metadata
            size += sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups))
    return max(min(BATCH_BYTES * sum(file.records for file in files) // max(size, 1), BATCH_RECORDS), 1)


def rows_of(batch: pa.RecordBatch) -> Rows:
    return Rows(
        offsets=batch.column(OFFSET).to_pylist(),
        keys=batch.column(KEY).to_pylist(),
        values=batch.column(VALUE).to_pylist(),
        stamps_ms=pc.fill_null(batch.column(STAMP), NO_TIMESTAMP_MS).to_pylist(),
        headers=_headers(batch.column(HEADERS)),
    )


def _headers(lists: pa.ListArray) -> list[Headers | None]:
    """Return the headers of each record, by one conversion of each column: record by record is slower."""
    flat = lists.flatten()
    if not len(flat):
        return [None] * len(lists)
    names = pc.struct_field(flat, "key").to_pylist()
    pairs = iter(zip(names, pc.struct_field(flat, "value").to_pylist(), strict=True))
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_pylist()
    return [list(islice(pairs, length)) if length else None for length in lengths]


def once(rows: Iterable[Rows], partition: int) -> Iterator[Rows]:
    """Yield the rows with each offset once. Raises ContradictionError, without a key or value, if two differ."""
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
"""Records that are queued in the producer at a time."""
SETTLED_RECORDS, SETTLED_BYTES = 200_000, 128 << 20
"""Number of records, and of bytes, after which the task flushes and checks the partition's end offset."""
OF_BROKER = 1
"""Kafka's number for LogAppendTime, also in the table."""


@dataclass(frozen=True, slots=True)
class RestoreTask:
    """The restore of one partition.

    max_message_bytes  the topic's max.message.bytes
    proved             number of records that an earlier task of this run compared
    """

    source: SnapshotLog
    topic: str
    max_message_bytes: int
    proved: int = 0

    @property
    def partition(self) -> int:
        return self.source.partition


@dataclass(frozen=True, slots=True)
class LogProgress:
    partition: int
    compared: int = 0
    written: int = 0


def read_log_facts(store: Mapping[str, str], source: SnapshotLog, denied: Denied = None) -> LogFacts:
    """Return the facts of the records to write, from offsets and timestamps, and the number of records left out.

    Reads values only if no other column shows which values are null, and keys only if some are denied."""
    io, tally = load_file_io(dict(store), source.location), _Tally()
    for file in source.files:
        shows_tombstones = () if source.tombstones or file.null_values == 0 else (TOMBSTONE if file.marked else VALUE,)
        of_key = (KEY,) if denied is not None else ()
        columns = (PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, *of_key, *shows_tombstones)
        for arrays in file_batches(io, source, file, columns):
            shown = arrays if source.tombstones else _without_tombstones(arrays)
            tally.add(shown if denied is None else tally.without(denied, shown))
    return tally.facts(source.partition)


@dataclass(slots=True)
class _Tally:
    offsets: BitMap64 = field(default_factory=BitMap64)
    stamps_ms: list[int] = field(default_factory=list)
    zero_stamps: int = 0
    without_type: int = 0
    erased: BitMap64 = field(default_factory=BitMap64)

    def without(self, keys: SentKeys, arrays: Mapping[str, pa.Array]) -> Mapping[str, pa.Array]:
        """Return the records without erased keys. Counts the records that it leaves out."""
        found = keys.found(arrays[KEY])
        if not found.any():
            return arrays
        self.erased |= BitMap64(arrays[OFFSET].to_numpy(zero_copy_only=False)[found].astype(np.uint64))
        return {name: array.filter(pa.array(~found)) for name, array in arrays.items()}

    def add(self, arrays: Mapping[str, pa.Array]) -> None:
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
            erased=len(self.erased),
        )


def _without_tombstones(arrays: Mapping[str, pa.Array]) -> Mapping[str, pa.Array]:
    if TOMBSTONE in arrays:
        kept = pc.invert(arrays[TOMBSTONE])
    elif VALUE in arrays:
        kept = pc.is_valid(arrays[VALUE])
    else:
        return arrays
    return {name: array.filter(kept) for name, array in arrays.items()}


def compare_log(
    settings: Mapping[str, str], denied: Denied, store: Mapping[str, str], task: RestoreTask
) -> LogProgress:
    """Compare all records of the partition with the first records of the log. Raises RestoreMismatchError."""
    with uncollected(), TargetLog(settings, task.topic, task.partition) as target:
        return LogProgress(task.partition, compare(_feed(denied, store, task), target, 0, target.end()))


def verify_log(settings: Mapping[str, str], denied: Denied, store: Mapping[str, str], task: RestoreTask) -> LogProgress:
    """Compare the whole partition with the whole log. Raises RestoreMismatchError."""
    feed = _feed(denied, store, task)
    with uncollected(), TargetLog(settings, task.topic, task.partition) as target:
        compared = compare(feed, target, 0, target.end())
        missing = sum(len(rows) for rows in feed.rest(SENT_RECORDS))
    if missing:
        raise RestoreMismatchError(
            f"{target.where} ends at offset {compared}, but the archive has {counted(missing, 'record')} more"
        )
    return LogProgress(task.partition, compared)


def write_log(settings: Mapping[str, str], denied: Denied, store: Mapping[str, str], task: RestoreTask) -> LogProgress:
    """Compare the partition's present records, then append the rest of the log. Raises RestoreMismatchError if another
    producer writes into the partition."""
    feed = _feed(denied, store, task)
    with uncollected(), TargetLog(settings, task.topic, task.partition) as target:
        start, end = feed.skip(task.proved), target.end()
        if end < start:
            raise RestoreMismatchError(
                f"{target.where} ends at offset {end}, but ended at {start} before: it was deleted or recreated"
            )
        compared = compare(feed, target, start, end)
        return LogProgress(task.partition, compared, _write(feed, target, task, end))


def _feed(denied: Denied, store: Mapping[str, str], task: RestoreTask) -> Feed:
    return Feed(log_rows(load_file_io(dict(store), task.source.location), task.source, denied))


def log_rows(io: FileIO, source: SnapshotLog, denied: Denied = None) -> Iterator[Rows]:
    """Yield the records of a log in the order of their offsets, each offset once, without denied keys."""
    return once((rows_of(batch) for batch in ordered_batches(io, source, denied)), source.partition)


def compare(feed: Feed, target: TargetLog, start: int, end: int) -> int:
    """Compare the next records of the feed with the offsets [start, end) of the partition. Returns their number. Raises
    RestoreMismatchError, which names no key or value, for the first different record."""
    at = start
    for messages in target.messages(start, end):
        index = 0
        while index < len(messages):
            rows = feed.some(len(messages) - index)
            if rows is None:
                raise RestoreMismatchError(
                    f"{target.where} has {counted(end - at - index, 'record')} more than the archive, from offset "
                    f"{at + index} on: another producer wrote into it"
                )
            difference = first_difference(rows, messages[index : index + len(rows)])
            if difference is not None:
                raise RestoreMismatchError(
                    f"{target.where}: the record at offset {at + index + difference.place} is not the archive's of "
                    f"offset {rows.offsets[difference.place]}: its {difference.field} differs; another producer wrote "
                    "into it"
                )
            index += len(rows)
        at += len(messages)
    return at - start


def _write(feed: Feed, target: TargetLog, task: RestoreTask, end: int) -> int:
    """Append the rest of the feed at offset `end`. Returns the number of records."""
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
    end = target.end()
    if end != expected:
        raise RestoreMismatchError(
            f"{target.where} ends at offset {end}, but this restore wrote up to offset {expected}: another producer "
            "writes into it. Delete and recreate the topic, then restore again"
        )
