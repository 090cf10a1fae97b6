"""The records that an ingestion brings: data files that no reader sees yet, and where they lie in their logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cleantail.errors import UnknownCommitError
from spark_jobs.iceberg.commits import append_to_branch
from spark_jobs.iceberg.iceberg_reads import added_data_files, partition_of
from spark_jobs.iceberg.jvm.many_calls import ask
from spark_jobs.iceberg.snapshot_files import offset_bounds
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.intake.record_files import WrittenLog, data_files, delete_written

Ranges = Mapping[int, tuple[int, int]]
"""Partition -> [from, to) of offsets."""


@dataclass(frozen=True, slots=True)
class NewRecords:
    """Holds some records. `files`: Iceberg's `DataFile`s. `once`: whether each of their offsets is known to be among
    them once. `written`: what tasks have written of them; it is empty where Spark has, on a branch."""

    files: tuple[Any, ...]
    ranges: Ranges
    once: bool
    written: tuple[WrittenLog, ...] = ()

    @classmethod
    def of_tasks(cls, table: TopicTable, logs: Sequence[WrittenLog]) -> NewRecords:
        """Returns what tasks have written, and no snapshot has."""
        ranges: dict[int, tuple[int, int]] = {}
        for log in logs:
            if log.files:
                low, end = ranges.get(log.partition, (log.low, log.high + 1))
                ranges[log.partition] = (min(low, log.low), max(end, log.high + 1))
        return cls(tuple(data_files(table, logs)), ranges, all(log.once for log in logs), tuple(logs))

    @classmethod
    def of_branch(cls, table: TopicTable, branch: str, once: bool = False) -> NewRecords:
        """Returns what Spark has appended to the branch by its last commit."""
        iceberg = table.load()
        files = tuple(added_data_files(iceberg, branch))
        return cls(files, ranges_of(table, iceberg, files), once)

    @property
    def count(self) -> int:
        """Returns how many records there are."""
        return sum(int(count) for count in ask(self.files, "recordCount"))

    def stage(self, table: TopicTable, branch: str) -> None:
        """Puts what tasks have written onto a new branch, where Spark can read it. What Spark has written is there."""
        if not self.written:
            return
        append_to_branch(table, branch, self.files)

    @property
    def lowest(self) -> dict[int, int]:
        """Returns partition -> the lowest offset."""
        return {partition: low for partition, (low, _) in self.ranges.items()}

    @contextmanager
    def deleted_unless_staged(self, table: TopicTable, branch: str) -> Iterator[None]:
        """Deletes the files after an error, as far as that can be done, unless a snapshot of the branch has them. It is
        for what is done before their commit is begun."""
        try:
            yield
        except UnknownCommitError:
            raise
        except BaseException:
            if not table.load().refs().containsKey(branch):
                delete_written(table, self.written)
            raise


NO_RECORDS = NewRecords((), {}, True)


def ranges_of(table: TopicTable, iceberg: Any, files: Iterable[Any]) -> dict[int, tuple[int, int]]:
    """Returns the offsets of each log's files, by their bounds."""
    ranges: dict[int, tuple[int, int]] = {}
    for file in files:
        low, high = offset_bounds(table.jvm, iceberg.schema(), file)
        before = ranges.get(partition_of(file), (low, high + 1))
        ranges[partition_of(file)] = (min(before[0], low), max(before[1], high + 1))
    return ranges
