"""Read the dirty part of a task's logs: which keys it touches, which records are copies, and where the map is full.

Copies are records of one log at one offset. The first to arrive survives (semantics.md 3.5). Records arrive in the
order of their files, and within a file in the order of its rows. Files are ordered by data sequence number, which a
rewrite keeps, then by the row id of their first record, then by name.

So each file needs only the set of its offsets that an earlier file also has. Such a set takes few bits a record,
because offsets have few gaps. The pieces of a file that several tasks read count as files of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO
from pyroaring import BitMap64

from cleantail.lake.position_deletes import bitmap_of
from cleantail.log.task_shares import round_end
from cleantail.log.winners import Booleans, Longs, Ranks, ranks_by_offset
from spark_jobs.engine.log_task import Bounds, LogTask
from spark_jobs.engine.task_keys import KEY_AND_OFFSET, TaskKeys, TouchedKeys
from spark_jobs.engine.task_records import Records, records_of
from spark_jobs.iceberg.log_files import LogFile, alive, read_deletes_in_task

FLAGS_FOR_EACH = 8
"""Maximum bytes of flags for each offset of a set: the flags then take no more memory than the offsets."""


class OffsetSet:
    """A set of offsets: one flag for each offset of its range, or a sorted array if the offsets are sparse."""

    def __init__(self, offsets: Longs) -> None:
        """`offsets`: in any order."""
        self._first = int(offsets.min()) if len(offsets) else 0
        width = int(offsets.max()) - self._first + 1 if len(offsets) else 0
        self._flags, self._ordered = np.zeros(0, np.bool_), np.zeros(0, np.int64)
        if width <= FLAGS_FOR_EACH * len(offsets):
            self._flags = np.zeros(width, np.bool_)
            self._flags[offsets - self._first] = True
        else:
            self._ordered = np.sort(offsets)

    def among(self, offsets: Longs) -> Booleans:
        """Return which of the offsets are in the set."""
        if len(self._ordered):
            at = np.searchsorted(self._ordered, offsets).clip(max=len(self._ordered) - 1)
            members: Booleans = self._ordered[at] == offsets
            return members
        at = offsets - self._first
        inside: Booleans = (at >= 0) & (at < len(self._flags))
        if inside.all():
            return self._flags[at]
        inside[inside] = self._flags[at[inside]]
        return inside


FileOfLog = tuple[int, int, int]
"""Key of a set of offsets: place of the log among a task's works, hash of the file's name, number of its piece."""


@dataclass(slots=True)
class DirtyOffsets:
    """The offsets of records by log and file: a round collects dirty records, an expiry those where tombstones may be
    due. `repeated`: offsets that one file has more than once."""

    offsets: dict[FileOfLog, BitMap64] = field(default_factory=dict)
    repeated: dict[FileOfLog, BitMap64] = field(default_factory=dict)
    records: dict[int, int] = field(default_factory=dict)

    def add(self, file: LogFile, records: Records) -> None:
        """Add records of one file, in the file's order."""
        for log in records.logs():
            offsets = records.offset[records.log == log]
            bitmap, name = bitmap_of(offsets), (log, file.hash, file.piece)
            before = self.offsets.setdefault(name, BitMap64())
            twice = before & bitmap
            if len(bitmap) < len(offsets):
                values, counts = np.unique(offsets, return_counts=True)
                twice |= bitmap_of(values[counts > 1])
            if twice:
                self.repeated.setdefault(name, BitMap64()).update(twice)
            before |= bitmap
            self.records[log] = self.records.get(log, 0) + len(offsets)

    def __or__(self, other: DirtyOffsets) -> DirtyOffsets:
        """Return the union with the offsets that another task has collected from other files."""
        records = Counter(self.records) + Counter(other.records)
        return DirtyOffsets(self.offsets | other.offsets, self.repeated | other.repeated, dict(records))

    def packed(self) -> DirtyOffsets:
        """Pack neighbouring offsets as runs, in place: a dirty part has few gaps."""
        for offsets in self.offsets.values():
            offsets.run_optimize()
        return self

    def copies(self, files: Iterable[LogFile]) -> Copies:
        """Return which records are later copies. `files`: all files whose records were added."""
        seen: dict[int, BitMap64] = {}
        earlier: dict[FileOfLog, BitMap64] = {}
        ordered = [(file.hash, file.piece) for file in sorted(files, key=arrival)]
        logs = sorted({log for log, _, _ in self.offsets})
        for name in ((log, *each) for log in logs for each in ordered):
            offsets = self.offsets.get(name)
            if offsets is not None:
                before = seen.setdefault(name[0], BitMap64())
                if again := before & offsets:
                    earlier[name] = again
                before |= offsets
        return Copies(earlier, dict(self.repeated))


def arrival(file: LogFile) -> tuple[int, int, str, int]:
    """Return the key that sorts files in the order of their arrival."""
    return file.arrived, -1 if file.first_row_id is None else file.first_row_id, file.path, file.piece


@dataclass(frozen=True, slots=True)
class Copies:
    """The offsets at which a file's records are later copies. `earlier`: another file has the first record. `repeated`:
    the file itself has it."""

    earlier: Mapping[FileOfLog, BitMap64] = field(default_factory=dict)
    repeated: Mapping[FileOfLog, BitMap64] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.logs)

    @property
    def logs(self) -> set[int]:
        """Return the places of the logs, among the task's works, in which an offset occurs twice."""
        return {log for log, _, _ in (*self.earlier, *self.repeated)}

    def of(self, file: LogFile) -> CopiesInFile:
        """Return the copies in one file. Its records must be passed to it in their order."""
        return CopiesInFile(
            {log: _longs(bits) for (log, *name), bits in self.earlier.items() if name == [file.hash, file.piece]},
            {log: _longs(bits) for (log, *name), bits in self.repeated.items() if name == [file.hash, file.piece]},
        )


def _longs(bits: BitMap64) -> Longs:
    return np.array(bits.to_array(), np.int64)


@dataclass(slots=True)
class CopiesInFile:
    """The later copies of one file. It remembers which repeated offsets it has already met."""

    earlier: Mapping[int, Longs]
    repeated: Mapping[int, Longs]
    _met: dict[int, set[int]] = field(default_factory=dict)

    def among(self, records: Records, dirty: Booleans) -> Booleans:
        """Return which of the records are later copies. `dirty`: which lie in the dirty part; no other record is a
        copy."""
        copies = np.zeros(len(records), np.bool_)
        for log, offsets in self.earlier.items():
            copies |= (records.log == log) & np.isin(records.offset, offsets)
        for log, offsets in self.repeated.items():
            met = self._met.setdefault(log, set())
            for place in np.flatnonzero(dirty & (records.log == log) & np.isin(records.offset, offsets)).tolist():
                offset = int(records.offset[place])
                copies[place] |= offset in met
                met.add(offset)
        return copies & dirty


FileName = tuple[int, int]
"""The hash of a file's name, and the number of its piece."""


def name_of(file: LogFile) -> FileName:
    """Return the key of a file (or of a piece of it) within this task."""
    return file.hash, file.piece


@dataclass(frozen=True, slots=True)
class LastRecords:
    """The last dirty record of each key, for logs in which it always wins (strategy `offset`).

    `offsets`: by the key's number. `winners`: the same offsets as a set. `files`: the dirty records, without keys, of
    each file whose bounds allow only dirty records. Such a file need not be read again to find its winners.
    """

    offsets: Longs
    winners: OffsetSet
    files: Mapping[FileName, Sequence[Records]]


@dataclass(frozen=True, slots=True)
class DirtyPart:
    """The result of the first pass over a task's files.

    `task`: the task as given, but with earlier ends for logs whose map is full. `touched`: the keys, which TaskKeys
    has. `last`: None if records must be compared again to find the winners.
    """

    task: LogTask
    touched: TouchedKeys
    copies: Copies
    records: Mapping[int, int]
    last: LastRecords | None = None

    @property
    def best(self) -> Ranks | None:
        """Return the best rank of each touched key, or None if it is unknown."""
        return None if self.last is None else ranks_by_offset(self.last.offsets)

    def decides(self, file: LogFile, keep: Booleans) -> bool:
        """Return whether the winners of a file are known: all records of `keep` are dirty and were read."""
        met = None if self.last is None else self.last.files.get(name_of(file))
        return met is not None and sum(map(len, met)) == np.count_nonzero(keep)

    def may_touch(self, file: LogFile) -> bool:
        """Return whether the file can have a touched key, by its bounds. If several logs share a task, always true:
        their keys begin with the log, so bounds do not apply."""
        return len(self.task.works) > 1 or file.may_hold_keys(self.touched.low, self.touched.high)


def read_dirty_part(task: LogTask, io: FileIO, keys: TaskKeys) -> DirtyPart:
    """Read the dirty part, [first dirty offset, end) of each log, and number its keys."""
    first = _FirstPass(task, io)
    touched = keys.number(first.batches())
    if task.max_keys is not None and first.last_keyed >= 0:
        [work] = task.works
        end = round_end(keys.offset_of_key(task.max_keys), first.last_keyed, work.end_offset)
        if end < work.end_offset:
            task, touched = replace(task, works=(work.ending_at(end),)), keys.leave_below(end)
    copies, last = first.offsets.copies(task.files), None
    if first.by_offset and not copies:
        by_number = keys.last_offsets()
        last = LastRecords(by_number, OffsetSet(by_number), first.files)
    return DirtyPart(task, touched, copies, first.offsets.records, last)


class _FirstPass:
    """Reads the dirty records once, and keeps what later steps need.

    `last_keyed`: the highest offset of a record with a key, if the map's keys are limited; -1 without any.
    `by_offset`: the last dirty record of each key wins. `files`: as in LastRecords.
    """

    def __init__(self, task: LogTask, io: FileIO) -> None:
        self.offsets, self.last_keyed, self.by_offset = DirtyOffsets(), -1, _by_offset(task)
        self.files: dict[FileName, list[Records]] = {}
        self._task, self._io = task, io

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the keys and offsets of the records, as TaskKeys takes them."""
        for file, records in dirty_records(self._task, self._io):
            if len(records):
                self._keep(file, records)
            yield pa.RecordBatch.from_arrays([records.key, pa.array(records.offset)], schema=KEY_AND_OFFSET)

    def _keep(self, file: LogFile, records: Records) -> None:
        self.offsets.add(file, records)
        keyless = records.keyless
        self.by_offset = self.by_offset and not keyless.any()
        if self._task.max_keys is not None and not keyless.all():
            self.last_keyed = max(self.last_keyed, int(records.offset[~keyless].max()))
        if self.by_offset and _is_dirty_file(self._task, file):
            self.files.setdefault(name_of(file), []).append(replace(records, key=None))


def _by_offset(task: LogTask) -> bool:
    """Return whether the task allows LastRecords: one log, strategy `offset`, no remembered deletions, and no limit
    on the map's keys."""
    by_offset = task.configs.compaction_strategy == "offset" and not task.remembered.files
    return by_offset and len(task.works) == 1 and task.max_keys is None


def _is_dirty_file(task: LogTask, file: LogFile) -> bool:
    """Return whether all records of the file are dirty, by its bounds."""
    [work] = task.works
    return file.log is not None and file.lies_in(work.first_dirty_offset, work.end_offset)


def decided_records(
    dirty: DirtyPart, io: FileIO, file: LogFile, keep: Booleans, tombstones: bool = False
) -> Iterator[tuple[Records, Booleans]]:
    """Yield the records of a file that the dirty part decides, without their keys, and which of them win. The file is
    read again only if `tombstones` is set and the file may have some."""
    assert dirty.last is not None, "the caller has checked decides(file, keep)"
    met: Iterable[Records] = dirty.last.files[name_of(file)]
    if tombstones and file.null_values != 0:
        met = records_of(io, dirty.task, file, keep, keys=False, tombstones=True)
    for records in met:
        if len(records):
            yield records, dirty.last.winners.among(records.offset)


def dirty_records(task: LogTask, io: FileIO) -> Iterator[tuple[LogFile, Records]]:
    """Yield the records of the dirty part that the base has, batch by batch."""
    bounds = Bounds.of(task)
    low, end = int(bounds.first.min()), int(bounds.end.max())
    for _, file in task.numbered_files():
        if file.may_hold(low, end):
            keep = alive(file.records, read_deletes_in_task(io, file.before, file))
            for records in records_of(io, task, file, keep):
                yield file, records.where(is_dirty(records, bounds))


def is_dirty(records: Records, bounds: Bounds) -> Booleans:
    """Return which records lie in the dirty part."""
    inside: Booleans = np.logical_and(
        records.offset >= bounds.first[records.log], records.offset < bounds.end[records.log]
    )
    return inside
