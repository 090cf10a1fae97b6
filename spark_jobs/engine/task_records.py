"""The records of a task's files as columns: log, offset, key, position, and other columns that the round needs.

The second half of a round, and of its check, uses them to decide which records of touched keys win.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyroaring import BitMap64

from cleantail.config.topic_table import HEADERS, KEY, OFFSET, ORDER, PARTITION, TIMESTAMP, TOMBSTONE, VALUE
from cleantail.errors import TableError
from cleantail.lake.position_deletes import bitmap_of
from cleantail.log.winners import (
    Booleans,
    Longs,
    Numbers,
    Ranks,
    Versions,
    beaten,
    best_ranks,
    no_versions,
    remembered_units,
    versions_of,
)
from spark_jobs.engine.log_task import LogTask
from spark_jobs.engine.task_keys import KeyNumbers, Rows
from spark_jobs.iceberg.log_files import LogFile, alive, column_batches, read_deletes_in_task

VERSION_COLUMN = {"timestamp": (TIMESTAMP,), "header": (HEADERS,), "order": (ORDER,), "offset": ()}


@dataclass(frozen=True, slots=True)
class Records:
    """Some records of one file. `log`: the place of each record's log among the task's works. `key`: None if not
    read. If a task has several logs, each key begins with its log, so that equal keys of two logs differ.
    """

    log: Numbers
    offset: Longs
    pos: Longs
    key: pa.Array | None
    tombstone: Booleans | None
    timestamps: pa.Array | None
    headers: pa.Array | None
    orders: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.offset)

    def where(self, chosen: Booleans) -> Records:
        if chosen.all():
            return self
        mask = pa.array(chosen)
        arrays = (self.timestamps, self.headers, self.orders)
        key, *more = (None if array is None else array.filter(mask) for array in (self.key, *arrays))
        tombstone = None if self.tombstone is None else self.tombstone[chosen]
        return Records(self.log[chosen], self.offset[chosen], self.pos[chosen], key, tombstone, *more)

    def logs(self) -> list[int]:
        if not len(self):
            return []
        low, high = int(self.log.min()), int(self.log.max())
        return [low] if low == high else np.unique(self.log).tolist()

    @property
    def keyless(self) -> Booleans:
        assert self.key is not None, "keys were not requested"
        if not self.key.null_count:
            return np.zeros(len(self), np.bool_)
        null: Booleans = pc.is_null(self.key).to_numpy(zero_copy_only=False)
        return null

    def versions(self, task: LogTask) -> Versions:
        return versions_of(self.timestamps, self.headers, len(self), task.configs, task.now_ms, self.orders)


def records_of(
    io: FileIO,
    task: LogTask,
    file: LogFile,
    keep: Booleans,
    keys: bool = True,
    versions: bool = False,
    tombstones: bool = False,
    plain_keys: bool = False,
) -> Iterator[Records]:
    """Yield the records of a file that `keep` has, and that belong to the task's logs. `plain_keys`: keys never begin
    with their log. Raises TableError if a file contradicts its metadata."""
    columns = [*(() if file.log is not None else (PARTITION,)), OFFSET, *((KEY,) if keys else ())]
    columns += VERSION_COLUMN[task.configs.compaction_strategy] if versions else ()
    columns += _tombstone_columns(file, tombstones)
    for at, arrays in column_batches(io, file, task.layout, columns):
        require_place(arrays, file)
        records = _records(task, file, at, arrays, keys, tombstones, plain_keys)
        ours = keep[at : at + len(records)] & (records.log >= 0)
        yield records.where(ours)


def require_place(arrays: Mapping[str, pa.Array], file: LogFile) -> None:
    """Raise TableError if the file has no column for a record's log or offset."""
    read = (OFFSET,) if file.log is not None else (OFFSET, PARTITION)
    if any(name not in arrays or (len(arrays[name]) and arrays[name].null_count == len(arrays[name])) for name in read):
        raise TableError(f"{file.path} has no column for the offset or the partition, by the table's field ids")


def _tombstone_columns(file: LogFile, tombstones: bool) -> Sequence[str]:
    """Return the columns that identify tombstones. Empty if the file has no tombstones by its metadata. Without the
    value if each record has a mark."""
    if not tombstones or file.null_values == 0:
        return ()
    return (TOMBSTONE,) if file.marked else (VALUE,)


def _records(
    task: LogTask,
    file: LogFile,
    at: int,
    arrays: dict[str, pa.Array],
    keys: bool,
    tombstones: bool,
    plain_keys: bool,
) -> Records:
    offset = _numbers(arrays[OFFSET])
    log = _logs(task, file, arrays.get(PARTITION), len(offset))
    key = arrays.get(KEY, pa.nulls(len(offset), pa.binary())) if keys else None
    if key is not None and len(task.works) > 1 and not plain_keys:
        key = with_log(log, key)
    pos = np.arange(at, at + len(offset), dtype=np.int64)
    flags = _tombstones(file, arrays, len(offset)) if tombstones else None
    more = (arrays.get(name) for name in (TIMESTAMP, HEADERS, ORDER))
    return Records(log, offset, pos, key, flags, *more)


def _logs(task: LogTask, file: LogFile, partitions: pa.Array | None, records: int) -> Any:
    """Return the place of each record's log among the works, -1 for a log of another task."""
    known: Longs = np.array([work.partition for work in task.works], np.int64)
    if partitions is None:
        [place] = np.flatnonzero(known == file.log)
        return np.broadcast_to(np.int32(place), records)
    numbers = _numbers(partitions)
    nearest: Longs = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    return np.where(known[nearest] == numbers, nearest, -1).astype(np.int32)


def _numbers(array: pa.Array) -> Longs:
    numbers: Longs = (array if not array.null_count else pc.fill_null(array, -1)).to_numpy(zero_copy_only=False)
    return numbers


def with_log(log: Numbers, key: pa.Array) -> pa.Array:
    """Return the keys, each with four bytes of its log in front. Null stays null."""
    prefixes = _prefixes(log)
    return pc.binary_join_element_wise(prefixes, key, pa.scalar(b"", pa.binary()))


def _prefixes(log: Numbers) -> pa.Array:
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(4), len(log), [None, pa.py_buffer(np.ascontiguousarray(log, dtype=">i4").tobytes())]
    )
    return fixed.cast(pa.binary())


def _tombstones(file: LogFile, arrays: dict[str, pa.Array], records: int) -> Booleans:
    """Return, for each record, whether it is a tombstone: by the column that marks them, else by null values.

    False if an adopted table maps no value, or if the metadata exclude tombstones."""
    if file.null_values == 0:
        return np.zeros(records, np.bool_)
    if TOMBSTONE in arrays:
        marks: Booleans = arrays[TOMBSTONE].to_numpy(zero_copy_only=False)
        return marks
    if VALUE in arrays:
        null: Booleans = pc.is_null(arrays[VALUE]).to_numpy(zero_copy_only=False)
        return null
    return np.zeros(records, np.bool_)


COMPETES, LIVE, PAST, DIRTY = 1, 2, 4, 8
"""Bits of a record's flags: it may win; the branch has it; it is below the log start; the dirty part has it."""
FIELDS = [
    ("key", pa.binary()),
    ("offset", pa.int64()),
    ("place", pa.int32()),
    ("pos", pa.int64()),
    ("flags", pa.uint8()),
]
VERSION_FIELDS = [("has", pa.bool_()), ("version", pa.int64())]
REMEMBERED = pa.schema([FIELDS[0], FIELDS[1], *VERSION_FIELDS])


def schema_of(task: LogTask) -> pa.Schema:
    """Return the columns for the comparison with the touched keys, without versions if the strategy has none."""
    return pa.schema(FIELDS + (VERSION_FIELDS if versioned(task) else []))


def versioned(task: LogTask) -> bool:
    return task.configs.compaction_strategy != "offset"


def batch_of(task: LogTask, file_number: int, records: Records, flags: Numbers, versions: Versions) -> pa.RecordBatch:
    """Return the records as a batch of schema_of. `place` combines log and file in one number."""
    place = records.log * len(task.files) + file_number
    arrays = [records.key, records.offset, place.astype(np.int32), records.pos, flags.astype(np.uint8)]
    if versioned(task):
        arrays += [versions.has, versions.version]
    return pa.RecordBatch.from_arrays([pa.array(a) for a in arrays], schema=schema_of(task))


def flags_of(task: LogTask, past: Booleans) -> Numbers:
    """Return the flags of the records, with COMPETES for records that may win their key.

    By offset all records compete, because dirty records have the highest offsets. By timestamp or header, records below
    the log start do not compete.
    """
    return np.where(past & versioned(task), 0, COMPETES)


@dataclass(frozen=True, slots=True)
class TouchedRecords:
    """The records of touched keys, one entry for each.

    number   number of the key
    place    log and file of the record: number of the log x files of the task + number of the file
    pos      row in that file
    flags    COMPETES, LIVE, PAST and DIRTY, as bits
    """

    number: Numbers
    offset: Longs
    place: Numbers
    pos: Longs
    flags: Numbers
    versions: Versions

    def has(self, flag: int) -> Booleans:
        flagged: Booleans = (self.flags & flag) != 0
        return flagged


def touched_records(task: LogTask, keys: KeyNumbers, batches: Iterable[pa.RecordBatch]) -> TouchedRecords:
    """Return the records whose key is touched. `batches`: of schema_of."""
    return collected(list(keys.numbered(schema_of(task), batches)))


def collected(parts: Sequence[Rows]) -> TouchedRecords:
    def column(name: str, kind: Any) -> Any:
        arrays = [part[name] for part in parts]
        return np.concatenate(arrays).astype(kind, copy=False) if arrays else np.empty(0, kind)

    offset = column("offset", np.int64)
    versions = no_versions(len(offset))
    if parts and "version" in parts[0]:
        versions = Versions(column("has", np.bool_), column("version", np.int64), versions.unusable)
    return TouchedRecords(
        column("number", np.int64), offset, column("place", np.int32), column("pos", np.int64),
        column("flags", np.uint8), versions,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TouchedVerdict:
    """For each touched record: whether its key has a winner, whether the record has the winner's rank, and whether a
    deletion in the ledger beats that rank. In the last case the key keeps no record."""

    known: Booleans
    best: Booleans
    buried: Booleans

    @property
    def winner(self) -> Booleans:
        return self.best & ~self.buried


def verdict_of(
    records: TouchedRecords, count: int, remembered: Ranks | None, best: Ranks | None = None
) -> TouchedVerdict:
    """Return which of the records win (cleantail.log.winners).

    `count`: number of keys. `remembered`: rank in the ledger by key, if any. `best`: the best rank of each key, if
    already known. Then every key is touched.
    """
    touched = np.ones(count, np.bool_)
    if best is None:
        competes, touched = records.has(COMPETES), np.zeros(count, np.bool_)
        touched[records.number[records.has(DIRTY)]] = True
        best = best_ranks(records.number[competes], records.versions.where(competes), records.offset[competes], count)
    known = (best.known & touched)[records.number]
    none = np.zeros(len(records.offset), np.bool_)
    buried = none if remembered is None else known & beaten(best, remembered)[records.number]
    return TouchedVerdict(known, known & (records.offset == best.offset[records.number]), buried)


def remembered_ranks(task: LogTask, io: FileIO, keys: KeyNumbers, count: int) -> Ranks | None:
    """Return the highest rank in the ledger of each touched key. None if the ledger has no entry of these logs."""
    if not task.remembered.files or not count:
        return None
    parts = list(keys.numbered(REMEMBERED, remembered_batches(task, io)))
    return ranks_of_parts(parts, count) if parts else None


def ranks_of_parts(parts: Sequence[Rows], count: int) -> Ranks:
    """Return the highest rank of each key among `parts`: columns number, offset, has and version."""
    names = ("number", "offset", "has", "version")
    number, offset, has, version = (np.concatenate([part[name] for part in parts]) for name in names)
    return best_ranks(number, Versions(has.astype(np.bool_), version, np.zeros(len(has), np.bool_)), offset, count)


def remembered_batches(task: LogTask, io: FileIO) -> Iterator[pa.RecordBatch]:
    """Yield the ranks in the ledger of the task's logs that are in force (key, offset, has, version)."""
    columns = (PARTITION, KEY, "strategy", "has_version", "version", OFFSET, "forget_at_ms")
    known = {work.partition: place for place, work in enumerate(task.works)}
    units = remembered_units(task.configs)
    for file in task.remembered.files:
        if file.log not in known:
            continue
        keep = alive(file.records, read_deletes_in_task(io, file.before, file))
        for at, arrays in column_batches(io, file, task.remembered.layout, columns):
            rows = pa.table({name: arrays[name] for name in columns})
            inside = pc.and_(
                pc.greater(rows["forget_at_ms"], task.now_ms), pc.is_in(rows["strategy"], pa.array(units.keys()))
            )
            rows = rows.filter(pc.and_(inside, pa.array(keep[at : at + len(rows)])))
            unit = np.array([units[text] for text in rows["strategy"].to_pylist()], np.int64)
            key = rows[KEY].combine_chunks()
            if len(task.works) > 1:
                key = with_log(np.full(len(rows), known[file.log], np.int32), key)
            ranks = [key, rows[OFFSET], rows["has_version"], pc.multiply(rows["version"], unit)]
            yield from pa.table(ranks, schema=REMEMBERED).to_batches()


def positions_by_place(place: Numbers, pos: Longs) -> dict[int, BitMap64]:
    if not len(place):
        return {}
    order = np.argsort(place, kind="stable")
    names, starts = np.unique(place[order], return_index=True)
    parts = np.split(pos[order], starts[1:])
    return {int(name): bitmap_of(part) for name, part in zip(names, parts, strict=True)}
