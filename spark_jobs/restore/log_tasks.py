"""Says what the tasks of a restore do, one for each partition: look at a log, compare it with the topic, write it.

The records of a pinned log have one order, and the topic is written by nobody else, so that record n of a log is at
offset n of its partition. A task that writes begins where the partition ends, after it has compared what is there; so
a run that was killed goes on, and so does a task that Spark tries again.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO, load_file_io
from pyroaring import BitMap64

from cleantail.config.topic_table import OFFSET, PARTITION, TIMESTAMP, TIMESTAMP_TYPE, TOMBSTONE, VALUE
from cleantail.errors import RestoreMismatchError
from cleantail.human import counted
from cleantail.kafka.restore_target import LogFacts
from cleantail.kafka.target_log import Difference, Feed, Rows, TargetLog, first_difference
from cleantail.log.winners import MICROS_PER_MILLI
from spark_jobs.iceberg.log_files import LogFile
from spark_jobs.restore.arrow_rows import once, rows_of
from spark_jobs.restore.ordered_log import LogSource, file_batches, ordered_batches

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
