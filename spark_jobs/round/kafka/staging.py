"""The records of a portion on a branch of which readers see nothing, compared with what the table has there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.errors import PythonException

from cleantail.config.platform import Platform
from cleantail.errors import ContradictionError
from cleantail.kafka.read_plan import Range, task_ranges
from cleantail.log.contradictions import OTHERS
from spark_jobs.iceberg.iceberg_reads import added_data_files
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.intake.record_files import UnwritableError, append_written, file_target, new_paths, run_writers
from spark_jobs.round.intake.staged_records import contradictions_with_table
from spark_jobs.round.kafka.records import ArrowReader, RangesTask, raised, read_frame, write_ranges

logger = logging.getLogger("cleantail.kafka")


@dataclass(frozen=True, slots=True)
class Staging:
    """Stages records of one topic. A task calls `open_reader`, which travels to it inside of the plan: Spark shows that
    without its values."""

    table: TopicTable
    platform: Platform
    open_reader: Callable[[], ArrowReader]
    cores: int

    def append(self, branch: str, ranges: Sequence[Range]) -> tuple[list[Any], int]:
        """Creates the branch and appends the ranges' records to it. Returns its data files, and how many records they
        have: none where there were only markers and aborted records. Raises SourceError, SourceUnreachableError and
        ContradictionError."""
        self.table.create_branch(branch, None)
        before = self.table.head_of(branch)
        self._write(branch, task_ranges(ranges, self.cores))
        if self.table.head_of(branch) == before:
            return [], 0
        self._require_one_record_an_offset(branch)
        return added_data_files(self.table.load(), branch), self.table.added_records(branch)

    def _write(self, branch: str, tasks: Sequence[Sequence[Range]]) -> None:
        """Appends what the tasks read: they write it themselves, and where they cannot, Spark does."""
        try:
            target = file_target(self.table, self.platform)
            paths = new_paths(self.table, sorted({each.partition for ranges in tasks for each in ranges}))
            work = partial(write_ranges, self.open_reader, target)
            written = run_writers(self.table, self.platform, work, [_task(r, paths) for r in tasks], "read Kafka's log")
            append_written(self.table, branch, written)
        except UnwritableError as e:
            logger.info("Spark writes the records of %s: %s", self.table.topic.topic, e)
            self._write_by_spark(branch, tasks)

    def _write_by_spark(self, branch: str, tasks: Sequence[Sequence[Range]]) -> None:
        frame = read_frame(self.table.spark, tasks, self.open_reader)
        try:
            self.table.append_to(branch, frame, as_it_is=True)
        except PythonException as e:
            error = raised(e)
            if error is None:
                raise
            raise error from None

    def _require_one_record_an_offset(self, branch: str) -> None:
        contradictions = contradictions_with_table(self.table, branch)
        if not contradictions:
            return
        first = contradictions[0]
        raise ContradictionError(
            f"topic {self.table.topic.kafka_topic}: partition {first.partition}, offset {first.first_offset}: "
            f"{OTHERS[first.other]}: {first.difference}; nothing was appended. An offset has one record: is the table "
            'of another topic? See "Two different records at one offset" in docs/operations.md',
            contradictions,
        )


def _task(ranges: Sequence[Range], paths: Mapping[int, str]) -> RangesTask:
    return RangesTask(tuple(ranges), {each.partition: paths[each.partition] for each in ranges})
