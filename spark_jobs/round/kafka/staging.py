"""The records of a portion on a branch of which readers see nothing, compared with what the table has there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PythonException

from cleantail.errors import ContradictionError
from cleantail.kafka.range_reader import RangeReader
from cleantail.kafka.read_plan import Range, task_ranges
from cleantail.log.contradictions import OTHERS
from spark_jobs.iceberg.iceberg_reads import added_data_files
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.intake.staged_records import contradictions_with_table
from spark_jobs.round.kafka.records import raised, read_frame


@dataclass(frozen=True, slots=True)
class Staging:
    """Stages records of one topic. `settings` are the client's, with its login: they are neither logged nor shown."""

    table: TopicTable
    settings: Mapping[str, str] = field(repr=False)
    cores: int

    def append(self, branch: str, ranges: Sequence[Range]) -> tuple[list[Any], int]:
        """Creates the branch and appends the ranges' records to it. Returns its data files, and how many records they
        have: none where there were only markers and aborted records. Raises SourceError, SourceUnreachableError and
        ContradictionError."""
        self.table.create_branch(branch, None)
        before = self.table.head_of(branch)
        frame = read_frame(self.table.spark, task_ranges(ranges, self.cores), self._open_reader())
        try:
            self.table.append_to(branch, frame, as_it_is=True)
        except PythonException as e:
            error = raised(e)
            if error is None:
                raise
            raise error from None
        if self.table.head_of(branch) == before:
            return [], 0
        self._require_one_record_an_offset(branch)
        return added_data_files(self.table.load(), branch), self.table.added_records(branch)

    def _open_reader(self) -> Callable[[], RangeReader]:
        """Returns what a task calls; it travels to the task inside of the plan, which Spark shows without its
        values."""
        topic = self.table.topic
        settings, name, isolation = dict(self.settings), topic.kafka_topic, topic.source.isolation
        stall_ms = topic.stall_timeout_ms
        return lambda: RangeReader(settings, name, isolation, stall_ms)

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
