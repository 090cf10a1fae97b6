"""What one task of the engine takes, a log of a work unit, and what it gives back. All of it can be pickled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cleantail.log.work_units import PartitionWork
from spark_jobs.iceberg.log_files import KeyColumns, LogFile


@dataclass(frozen=True, slots=True)
class LogTask:
    """One log for one task. `files`: its data files at the base snapshot; `retained`: whether `cleanup.policy` has
    `delete`, so that records below the log start go; `threads`: of the task's database; `location`: any path in the
    store that has the files, by which its file IO is chosen."""

    work: PartitionWork
    files: tuple[LogFile, ...]
    columns: KeyColumns
    retained: bool
    threads: int
    location: str


@dataclass(frozen=True, slots=True)
class LogRemovals:
    """The records that a round removes from a log. `positions`: reason -> hash of the file's name -> the positions in
    the file, as a serialized BitMap64."""

    partition: int
    positions: Mapping[str, Mapping[int, bytes]]


@dataclass(frozen=True, slots=True)
class LogCounts:
    """What a round has done to a log, as counts by the names of LogMeasure's fields."""

    partition: int
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a task cannot do its log, so that Spark's own plan has to."""

    reason: str
