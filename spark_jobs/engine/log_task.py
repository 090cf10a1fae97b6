"""Arguments and results of one task of the engine. A task has the files of one log, or of logs that share files.

Arguments and results can be pickled, and contain only positions and counts of records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pyroaring import BitMap64

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.log.task_shares import bucket_count
from cleantail.log.winners import Longs
from cleantail.log.work_units import PartitionWork
from spark_jobs.iceberg.file_columns import Layout
from spark_jobs.iceberg.log_files import LogFile

NOTHING = -1
"""Sentinel below every offset."""
SMALL_RECORDS, SMALL_KEY_BYTES = 100_000, 16 << 20
"""Limits of a small task: the records and the key bytes of its files."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """The files of the side table of deleted versions for a task's logs."""

    files: tuple[LogFile, ...] = ()
    layout: Layout = field(default_factory=dict)

    def of(self, works: Sequence[PartitionWork]) -> Remembered:
        logs = {work.partition for work in works}
        return replace(self, files=tuple(file for file in self.files if file.log in logs))


@dataclass(frozen=True, slots=True)
class LogTask:
    """One task. `works` are ordered by partition. A record's log is its place among them.

    files         the data files at the base snapshot that can have records of these logs
    layout        places of a topic table's columns in the files
    now_ms        clock of the round
    threads       of the task's database
    memory_bytes  maximum memory of the task's database
    location      any path in the store of the files, by which the file IO is chosen
    max_keys      a round ends when its map has this number of keys; None for no limit
    shares        number of tasks that read the files
    share         numbers of the files that this task reads; None for all
    ships_map     whether the offset map of all shares fits into each of them
    """

    works: tuple[PartitionWork, ...]
    files: tuple[LogFile, ...]
    layout: Layout
    configs: KafkaConfigs
    now_ms: int
    threads: int
    memory_bytes: int
    location: str
    remembered: Remembered = Remembered()
    max_keys: int | None = None
    shares: int = 1
    share: tuple[int, ...] | None = None
    ships_map: bool = False

    def numbered_files(self) -> Iterator[tuple[int, LogFile]]:
        for number in range(len(self.files)) if self.share is None else self.share:
            yield number, self.files[number]

    @property
    def is_first_share(self) -> bool:
        """Return whether this task does the work that is done once for all shares."""
        return self.share is None or 0 in self.share

    @property
    def buckets(self) -> int:
        """Return the number of tasks to which records of touched keys are shuffled."""
        return bucket_count(sum(work.records for work in self.works), self.shares, self.memory_bytes, self.key_bytes)

    @property
    def key_bytes(self) -> int:
        return sum({file.path: file.key_bytes for file in self.files}.values())

    @property
    def is_small(self) -> bool:
        """Return whether opening a database would be most of the task's work."""
        return sum(file.records for file in self.files) <= SMALL_RECORDS and self.key_bytes <= SMALL_KEY_BYTES

    @property
    def dirty_records(self) -> int:
        return sum(work.dirty_records for work in self.works)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a task's logs, by a log's place. Retention removes records below `retained`."""

    first: Longs
    end: Longs
    start: Longs
    retained: Longs

    @classmethod
    def of(cls, task: LogTask) -> Bounds:
        start = _longs(work.log_start_offset for work in task.works)
        retained = start if task.configs.deletes else np.full_like(start, NOTHING)
        return cls(
            _longs(w.first_dirty_offset for w in task.works), _longs(w.end_offset for w in task.works), start, retained
        )


def _longs(numbers: Iterable[int]) -> Longs:
    return np.fromiter(numbers, np.int64)


@dataclass(frozen=True, slots=True)
class LogRemovals:
    """The records that a round removes from the logs of a task.

    `positions`: reason -> (partition, hash of the file's name) -> the positions, as a serialized BitMap64. `keyless`:
    partition -> number of records without a key below the planned end, and the offset of the first. `ends`: partition
    -> the end of its round, if a full map ended it early. `last`: partition -> the highest offset that an expiry
    removes.
    """

    positions: Mapping[str, Mapping[tuple[int, int], bytes]]
    keyless: Mapping[int, tuple[int, int]]
    ends: Mapping[int, int]
    last: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class EntryCounts:
    """Numbers of tombstones of one entry of the ledger: `before` in the base, `after` on the branch. `guards`: due
    tombstones that guard a key, the first at offset `guard_from`."""

    before: int = 0
    after: int = 0
    guards: int = 0
    guard_from: int | None = None

    def __add__(self, other: EntryCounts) -> EntryCounts:
        first = [at for at in (self.guard_from, other.guard_from) if at is not None]
        return EntryCounts(
            self.before + other.before,
            self.after + other.after,
            self.guards + other.guards,
            min(first, default=None),
        )


@dataclass(frozen=True, slots=True)
class LogCounts:
    """Counts of a log after a round, by the names of LogMeasure's fields. `tombstones`: by the end of their entry."""

    partition: int
    counts: Mapping[str, int]
    tombstones: Mapping[int | None, EntryCounts]


def merged_removals(parts: Iterable[LogRemovals]) -> LogRemovals:
    positions: dict[str, dict[tuple[int, int], bytes]] = {}
    keyless: dict[int, tuple[int, int]] = {}
    ends: dict[int, int] = {}
    last: dict[int, int] = {}
    for part in parts:
        for reason, by_file in part.positions.items():
            of_reason = positions.setdefault(reason, {})
            for name, bitmap in by_file.items():
                both = [BitMap64.deserialize(each) for each in (of_reason.get(name), bitmap) if each is not None]
                of_reason[name] = BitMap64.union(*both).serialize()
        for log, (count, first) in part.keyless.items():
            before = keyless.get(log, (0, first))
            keyless[log] = (before[0] + count, min(before[1], first))
        ends |= part.ends
        last |= {log: max(offset, last.get(log, NOTHING)) for log, offset in part.last.items()}
    return LogRemovals(positions, keyless, ends, last)


def merged_counts(parts: Iterable[LogCounts]) -> list[LogCounts]:
    counts: dict[int, Counter[str]] = {}
    tombstones: dict[int, dict[int | None, EntryCounts]] = {}
    for part in parts:
        counts.setdefault(part.partition, Counter()).update(part.counts)
        entries = tombstones.setdefault(part.partition, {})
        for end, added in part.tombstones.items():
            entries[end] = entries.get(end, EntryCounts()) + added
    return [LogCounts(log, dict(sums), tombstones[log]) for log, sums in counts.items()]
