"""Find the records that a round removes, in one task.

A record is removed for the first of these reasons that applies (semantics.md 1.4, 3.5, 3.7):

1. `retention`: it is below the log start, and the policy deletes.
2. `copies`: an earlier record of the same offset survives.
3. `invalid`: it has no key, and is below the end.
4. `superseded`: another record of its key wins, or a deletion in the ledger does.

A file is read only if, by its metadata, it can have such a record.

The task first reads the dirty part of its logs. This pass finds the touched keys, the copies, and the offset at which
the map is full. Copies are records of one log at one offset. The first to arrive survives (semantics.md 3.5). Records
arrive in the order of their files, and within a file in the order of its rows. Files are ordered by data sequence
number, which a rewrite keeps, then by the row id of their first record, then by name.

So each file needs only the set of its offsets that an earlier file also has. Such a set takes few bits a record,
because offsets have few gaps. If several tasks read the pieces of a file, each piece counts as a file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io
from pyroaring import BitMap64

from cleantail.lake.position_deletes import bitmap_of
from cleantail.log.task_shares import round_end
from cleantail.log.winners import Booleans, Longs, Ranks, ranks_by_offset
from spark_jobs.engine.log_task import Bounds, LogRemovals, LogTask
from spark_jobs.engine.task_records import (
    DIRTY,
    KEY_AND_OFFSET,
    Records,
    TaskKeys,
    TouchedKeys,
    TouchedRecords,
    batch_of,
    flags_of,
    positions_by_place,
    records_of,
    remembered_ranks,
    task_keys,
    touched_records,
    verdict_of,
    versioned,
)
from spark_jobs.iceberg.log_files import FileName, LogFile, live_before

FLAGS_FOR_EACH = 8
"""Maximum bytes of flags for each offset of a set, so that flags take no more memory than the offsets."""


class OffsetSet:
    """A set of offsets: one flag for each offset of its range, or a sorted array if the offsets are sparse."""

    def __init__(self, offsets: Longs) -> None:
        self._first = int(offsets.min()) if len(offsets) else 0
        width = int(offsets.max()) - self._first + 1 if len(offsets) else 0
        self._flags, self._ordered = np.zeros(0, np.bool_), np.zeros(0, np.int64)
        if width <= FLAGS_FOR_EACH * len(offsets):
            self._flags = np.zeros(width, np.bool_)
            self._flags[offsets - self._first] = True
        else:
            self._ordered = np.sort(offsets)

    def among(self, offsets: Longs) -> Booleans:
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
"""Key of a set of offsets: place of the log among a task's works, hash of the file's name, number of the piece."""


@dataclass(slots=True)
class DirtyOffsets:
    """The offsets of records by log and file. A round collects dirty records, an expiry records in spans of due
    tombstones. `repeated`: offsets that one file has more than once."""

    offsets: dict[FileOfLog, BitMap64] = field(default_factory=dict)
    repeated: dict[FileOfLog, BitMap64] = field(default_factory=dict)
    records: dict[int, int] = field(default_factory=dict)

    def add(self, file: LogFile, records: Records) -> None:
        for log in records.logs():
            offsets = records.offset[records.log == log]
            bitmap, name = bitmap_of(offsets), (log, *file.name)
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
        """Pack neighbouring offsets as runs, in place. A dirty part has few gaps."""
        for offsets in self.offsets.values():
            offsets.run_optimize()
        return self

    def copies(self, files: Iterable[LogFile]) -> Copies:
        """Return which records are later copies. `files`: all files whose records were added."""
        seen: dict[int, BitMap64] = {}
        earlier: dict[FileOfLog, BitMap64] = {}
        ordered = [file.name for file in sorted(files, key=arrival)]
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
    """Offsets of a file's later copies. `earlier`: another file has the first record. `repeated`: the file itself."""

    earlier: Mapping[FileOfLog, BitMap64] = field(default_factory=dict)
    repeated: Mapping[FileOfLog, BitMap64] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.logs)

    @property
    def logs(self) -> set[int]:
        """Return the places of the logs, among the task's works, in which an offset occurs twice."""
        return {log for log, _, _ in (*self.earlier, *self.repeated)}

    def of(self, file: LogFile) -> CopiesInFile:
        """Return the copies in one file. Pass the file's records to the result in their order."""
        earlier, repeated = (
            {log: np.array(bits.to_array(), np.int64) for (log, *name), bits in of.items() if name == [*file.name]}
            for of in (self.earlier, self.repeated)
        )
        return CopiesInFile(earlier, repeated)


@dataclass(slots=True)
class CopiesInFile:
    """The later copies of one file. `_met`: the repeated offsets so far."""

    earlier: Mapping[int, Longs]
    repeated: Mapping[int, Longs]
    _met: dict[int, set[int]] = field(default_factory=dict)

    def among(self, records: Records, dirty: Booleans) -> Booleans:
        """Return, for each record, whether it is a later copy. Only a `dirty` record can be one."""
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


@dataclass(frozen=True, slots=True)
class LastRecords:
    """The last dirty record of each key, for logs in which it always wins (strategy `offset`).

    `offsets`: by the key's number. `winners`: the same offsets as a set. `files`: for files whose bounds allow only
    dirty records, these records without keys. The winners of such a file are known without a second read.
    """

    offsets: Longs
    winners: OffsetSet
    files: Mapping[FileName, Sequence[Records]]


@dataclass(frozen=True, slots=True)
class DirtyPart:
    """The result of the first pass over a task's files.

    `task`: the task, with earlier ends for logs with a full map. `touched`: the keys, numbered by TaskKeys. `last`:
    None if a second read must compare records to find the winners.
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
        met = None if self.last is None else self.last.files.get(file.name)
        return met is not None and sum(map(len, met)) == np.count_nonzero(keep)

    def may_touch(self, file: LogFile) -> bool:
        """Return whether the file can have a touched key, by its bounds. If several logs share a task, always True,
        because their keys begin with the log and bounds do not apply."""
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
    """Reads the dirty records once, and keeps the data that later steps need.

    `last_keyed`: if the map's keys are limited, the highest offset of a record with a key, -1 without one.
    `by_offset`: the last dirty record of each key wins. `files`: as in LastRecords.
    """

    def __init__(self, task: LogTask, io: FileIO) -> None:
        self.offsets, self.last_keyed, self.by_offset = DirtyOffsets(), -1, _by_offset(task)
        self.files: dict[FileName, list[Records]] = {}
        self._task, self._io = task, io

    def batches(self) -> Iterator[pa.RecordBatch]:
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
        if self.by_offset and file.log is not None:
            [work] = self._task.works
            if file.lies_in(work.first_dirty_offset, work.end_offset):
                self.files.setdefault(file.name, []).append(replace(records, key=None))


def _by_offset(task: LogTask) -> bool:
    """Return whether LastRecords applies: one log, strategy `offset`, no ledger, and no limit on the map's keys."""
    by_offset = task.configs.compaction_strategy == "offset" and not task.remembered.files
    return by_offset and len(task.works) == 1 and task.max_keys is None


def decided_records(
    dirty: DirtyPart, io: FileIO, file: LogFile, keep: Booleans, tombstones: bool = False
) -> Iterator[tuple[Records, Booleans]]:
    """Yield the records of a file that the dirty part decides, without keys, each with whether it wins. Reads the file
    again only if `tombstones` is set and it may have some."""
    assert dirty.last is not None, "the caller has checked decides(file, keep)"
    met: Iterable[Records] = dirty.last.files[file.name]
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
            keep = live_before(io, file)
            for records in records_of(io, task, file, keep):
                yield file, records.where(is_dirty(records, bounds))


def is_dirty(records: Records, bounds: Bounds) -> Booleans:
    at_least, below = records.offset >= bounds.first[records.log], records.offset < bounds.end[records.log]
    return at_least & below


RETENTION, COPIES, INVALID, SUPERSEDED = "retention", "copies", "invalid", "superseded"


class Removed:
    """Collects positions by reason, log and file, and the keyless records of each log."""

    def __init__(self) -> None:
        self.positions: dict[str, dict[int, BitMap64]] = {}
        self.keyless: dict[int, tuple[int, int]] = {}
        self.last: dict[int, int] = {}

    def add(self, reason: str, places: Mapping[int, BitMap64]) -> None:
        by_place = self.positions.setdefault(reason, {})
        for place, positions in places.items():
            by_place[place] = by_place[place] | positions if place in by_place else positions

    def add_records(self, reason: str, task: LogTask, file_number: int, records: Records, chosen: Booleans) -> None:
        if chosen.any():
            place = records.log[chosen] * len(task.files) + file_number
            self.add(reason, positions_by_place(place, records.pos[chosen]))

    def add_last(self, records: Records, chosen: Booleans) -> None:
        """Note the highest offset of the chosen records, by log."""
        gone = records.where(chosen)
        for log in gone.logs():
            highest = int(gone.offset[gone.log == log].max())
            self.last[log] = max(self.last.get(log, 0), highest)

    def count_keyless(self, records: Records, chosen: Booleans) -> None:
        for log in np.unique(records.log[chosen]).tolist():
            offsets = records.offset[chosen & (records.log == log)]
            count, first = self.keyless.get(log, (0, int(offsets.min())))
            self.keyless[log] = (count + len(offsets), min(first, int(offsets.min())))

    def result(self, task: LogTask, planned: LogTask) -> LogRemovals:
        """Return the collected records, by partitions and hashes of file names."""
        positions = {reason: _by_log_and_file(task, by_place) for reason, by_place in self.positions.items()}
        keyless = {task.works[log].partition: records for log, records in self.keyless.items()}
        ends = {
            work.partition: work.end_offset
            for work, before in zip(task.works, planned.works, strict=True)
            if work.end_offset != before.end_offset
        }
        last = {task.works[log].partition: offset for log, offset in self.last.items()}
        return LogRemovals(positions, keyless, ends, last)


def _by_log_and_file(task: LogTask, by_place: Mapping[int, BitMap64]) -> dict[tuple[int, int], bytes]:
    """Return the positions by partition and hash of the file's name, with a file's pieces together."""
    files, by_name = len(task.files), dict[tuple[int, int], BitMap64]()
    for place, positions in by_place.items():
        name = task.works[place // files].partition, task.files[place % files].hash
        by_name[name] = by_name[name] | positions if name in by_name else positions
    return {name: positions.serialize() for name, positions in by_name.items()}


def find_removals(properties: Mapping[str, str], task: LogTask) -> LogRemovals:
    """Return the task's removals. `properties`: properties of PyIceberg's FileIO, with the store's secrets."""
    io = load_file_io(dict(properties), task.location)
    with task_keys(task) as keys:
        dirty = read_dirty_part(task, io, keys)
        removed = Removed()
        records = touched_records(dirty.task, keys, competing(dirty, task, io, removed))
        ranks = remembered_ranks(dirty.task, io, keys, dirty.touched.count)
        add_superseded(removed, records, dirty.touched.count, ranks, dirty.best)
        return removed.result(dirty.task, task)


def read_share(dirty: DirtyPart, io: FileIO) -> tuple[Iterator[pa.RecordBatch], Callable[[], LogRemovals]]:
    """Return a share's records that need a decision by key, and a function that returns its other removals."""
    removed = Removed()
    return competing(dirty, dirty.task, io, removed), lambda: removed.result(dirty.task, dirty.task)


def decide_bucket(
    task: LogTask, records: TouchedRecords, count: int, remembered: Ranks | None, best: Ranks | None = None
) -> LogRemovals:
    """Return the superseded records of a bucket. `best`: as in verdict_of."""
    removed = Removed()
    add_superseded(removed, records, count, remembered, best)
    return removed.result(task, task)


def add_superseded(
    removed: Removed, records: TouchedRecords, count: int, remembered: Ranks | None, best: Ranks | None = None
) -> None:
    verdict = verdict_of(records, count, remembered, best)
    loses = verdict.known & ~verdict.winner
    removed.add(SUPERSEDED, positions_by_place(records.place[loses], records.pos[loses]))


def competing(dirty: DirtyPart, planned: LogTask, io: FileIO, removed: Removed) -> Iterator[pa.RecordBatch]:
    """Yield the records with a key below the end. Adds records with another reason to `removed`."""
    task, bounds, ends = dirty.task, Bounds.of(dirty.task), Bounds.of(planned).end
    for number, file in task.numbered_files():
        if not _may_lose(file, dirty, bounds, int(ends.max())):
            continue
        copies = dirty.copies.of(file)
        keep = live_before(io, file)
        if dirty.decides(file, keep):
            for records, wins in decided_records(dirty, io, file, keep):
                removed.add_records(SUPERSEDED, task, number, records, ~wins)
            continue
        for records in records_of(io, task, file, keep, versions=versioned(task)):
            keyless = records.keyless
            below, past = records.offset < bounds.end[records.log], records.offset < bounds.start[records.log]
            retained = records.offset < bounds.retained[records.log]
            in_dirty = is_dirty(records, bounds)
            copy = copies.among(records, in_dirty) & ~retained
            removed.count_keyless(records, keyless & ~past & (records.offset < ends[records.log]))
            removed.add_records(RETENTION, task, number, records, retained)
            removed.add_records(COPIES, task, number, records, copy)
            removed.add_records(INVALID, task, number, records, keyless & below & ~retained & ~copy)
            rest = below & ~retained & ~copy & ~keyless
            flags = flags_of(task, past) + np.where(in_dirty, DIRTY, 0)
            chosen = records.where(rest)
            yield batch_of(task, number, chosen, flags[rest], chosen.versions(task))


def _may_lose(file: LogFile, dirty: DirtyPart, bounds: Bounds, planned_end: int) -> bool:
    """Return whether, by its metadata, the file can have a record that is removed or that blocks its log.

    If a log takes several rounds, a keyless record blocks the log before the first round, even beyond the end of that
    round.
    """
    return (
        file.may_hold(0, int(bounds.retained.max()))
        or (file.null_keys != 0 and file.may_hold(0, planned_end))
        or (file.may_hold(0, int(bounds.end.max())) and (dirty.may_touch(file) or bool(dirty.copies)))
    )
