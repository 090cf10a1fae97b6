"""Copies: records of one log at one offset, of which the one that came first survives (semantics.md 3.5).

Records come in the order of their files, and in a file in its own. A file comes before another by its data sequence
number, which a rewrite keeps, then by the row id of its first record, then by its name. So of each file it is enough to
know which of its offsets an earlier file has, too: a few bits for each record, as offsets have few gaps. The pieces of
a file that several tasks read are as files of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from pyroaring import BitMap64

from cleantail.lake.position_deletes import bitmap_of
from cleantail.log.winners import Booleans, Longs
from spark_jobs.engine.columns.records import Records
from spark_jobs.iceberg.log_files import LogFile

FileOfLog = tuple[int, int, int]
"""The place of a log among a task's works, the hash of a file's name, and the number of its piece."""


@dataclass(slots=True)
class DirtyOffsets:
    """Collects the offsets of records by log and file: of the dirty ones in a round, of those in which tombstones may
    be due in an expiry. `repeated`: those that one file has more than once."""

    offsets: dict[FileOfLog, BitMap64] = field(default_factory=dict)
    repeated: dict[FileOfLog, BitMap64] = field(default_factory=dict)
    records: dict[int, int] = field(default_factory=dict)

    def add(self, file: LogFile, records: Records) -> None:
        """Adds records of one file, in the file's order."""
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
        """Returns this and what another task has collected of other files."""
        records = Counter(self.records) + Counter(other.records)
        return DirtyOffsets(self.offsets | other.offsets, self.repeated | other.repeated, dict(records))

    def packed(self) -> DirtyOffsets:
        """Returns the same, with neighbouring offsets as runs: a dirty part has few gaps."""
        for offsets in self.offsets.values():
            offsets.run_optimize()
        return self

    def copies(self, files: Iterable[LogFile]) -> Copies:
        """Returns which records are later copies. `files`: all that were added."""
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
    """Returns what files are ordered by, in the order in which they came."""
    return file.arrived, -1 if file.first_row_id is None else file.first_row_id, file.path, file.piece


@dataclass(frozen=True, slots=True)
class Copies:
    """Holds the offsets at which a file's records are later copies: `earlier` of a record of another file, `repeated`
    of one in the file itself."""

    earlier: Mapping[FileOfLog, BitMap64] = field(default_factory=dict)
    repeated: Mapping[FileOfLog, BitMap64] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.logs)

    @property
    def logs(self) -> set[int]:
        """Returns the places of the logs, among the task's works, in which an offset occurs twice."""
        return {log for log, _, _ in (*self.earlier, *self.repeated)}

    def of(self, file: LogFile) -> CopiesInFile:
        """Returns what tells the copies of a file whose records are gone through in their order."""
        return CopiesInFile(
            {log: _longs(bits) for (log, *name), bits in self.earlier.items() if name == [file.hash, file.piece]},
            {log: _longs(bits) for (log, *name), bits in self.repeated.items() if name == [file.hash, file.piece]},
        )


def _longs(bits: BitMap64) -> Longs:
    return np.array(bits.to_array(), np.int64)


@dataclass(slots=True)
class CopiesInFile:
    """Tells the later copies of one file. It remembers which of the offsets that the file repeats it has met."""

    earlier: Mapping[int, Longs]
    repeated: Mapping[int, Longs]
    _met: dict[int, set[int]] = field(default_factory=dict)

    def among(self, records: Records, dirty: Booleans) -> Booleans:
        """Returns which of the records are later copies. `dirty`: which lie in the dirty part; others are none."""
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
