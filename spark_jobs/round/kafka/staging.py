"""The records of a portion, written where readers see nothing, and compared with what the table has there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.errors import PythonException
from pyspark.sql import DataFrame

from cleantail.config.platform import Platform
from cleantail.config.unholdable import UNHELD, Keep
from cleantail.errors import ContradictionError
from cleantail.kafka.read_plan import Range, task_ranges
from cleantail.log.rules import OTHERS
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.intake.new_records import NO_RECORDS, NewRecords
from spark_jobs.round.intake.record_files import UnwritableError, file_target, new_paths, run_writers
from spark_jobs.round.intake.staged_records import contradictions_of
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

    def write(self, branch: str, ranges: Sequence[Range], keep: Keep) -> NewRecords:
        """Writes the ranges' records: tasks do it themselves, and where they cannot, Spark appends them to the branch.
        There are none where there were only markers and aborted records. Raises SourceError, UnholdableError and
        SourceUnreachableError."""
        tasks = task_ranges(ranges, self.cores)
        try:
            target = file_target(self.table, self.platform)
            paths = new_paths(self.table, sorted({each.partition for each in ranges}))
            work = partial(write_ranges, self.open_reader, target, keep)
            written = run_writers(self.table, self.platform, work, [_task(r, paths) for r in tasks], "read Kafka's log")
            return NewRecords.of_tasks(self.table, written)
        except UnwritableError as e:
            logger.info("Spark writes the records of %s: %s", self.table.topic.topic, e)
            return self._write_by_spark(branch, tasks, keep)

    def unheld(self, ranges: Sequence[Range]) -> DataFrame:
        """Returns the ranges' records that the table cannot hold."""
        return read_frame(self.table.spark, task_ranges(ranges, self.cores), self.open_reader, UNHELD)

    def _write_by_spark(self, branch: str, tasks: Sequence[Sequence[Range]], keep: Keep) -> NewRecords:
        self.table.create_branch(branch, None)
        before = self.table.head_of(branch)
        frame = read_frame(self.table.spark, tasks, self.open_reader, keep)
        try:
            self.table.append_to(branch, frame, as_it_is=True)
        except PythonException as e:
            error = raised(e)
            if error is None:
                raise
            raise error from None
        if self.table.head_of(branch) == before:
            return NO_RECORDS
        return NewRecords.of_branch(self.table, branch, once=True)

    def require_one_record_an_offset(self, branch: str, records: NewRecords) -> None:
        """Raises ContradictionError where a record differs from what the table has at its offset."""
        contradictions = contradictions_of(self.table, branch, records)
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
