"""Append what a topic in Kafka has and its table has not: round by round, each staged, compared and committed at once.

The end of a read is the last stable offset of every partition as it began. A round passes a bounded part of the way, so
that neither memory nor what a crash costs grows with the backlog. A round that another ingestion has overtaken is
planned anew from where that one has come.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from cleantail.config import Platform, Topic
from cleantail.contradictions import OTHERS
from cleantail.errors import CleantailError, ConflictError, ContradictionError
from cleantail.history import OPERATION
from cleantail.ingestions import INGEST, SOURCES, Sources
from cleantail.kafka.broker_topic import Brokers
from cleantail.kafka.errors import SourceError
from cleantail.kafka.group_progress import tell_group
from cleantail.kafka.positions import Gap, SourcePosition
from cleantail.kafka.range_reader import RangeReader
from cleantail.kafka.read_plan import (
    ROUND_OFFSETS,
    BrokerTopic,
    Range,
    ReadPlan,
    next_budget,
    round_ranges,
    task_ranges,
)
from cleantail.kafka.table_position import TablePosition, table_position
from cleantail.late_arrivals import late_warnings
from cleantail.locks import exclusive
from cleantail.partition_state import PartitionState, states_of_properties
from spark_jobs.changes import added_data_files, texts
from spark_jobs.evidence_of_gaps import append_gaps
from spark_jobs.kafka.position_commit import Advance, append_and_advance
from spark_jobs.kafka.records import raised, read_frame
from spark_jobs.kafka.round_read import RoundRead, read_result
from spark_jobs.latest_view import ensure_latest_view
from spark_jobs.staged_records import contradictions_with_table, lowest_offsets
from spark_jobs.tables import TopicTable, branch_name

logger = logging.getLogger("cleantail.kafka")

CONFLICTS_MAX = 5
"""So often a read starts over because another one was faster."""
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TopicRead:
    """One read of one topic. `settings` are the client's, with its login: they are neither logged nor shown."""

    table: TopicTable
    platform: Platform
    brokers: Brokers
    settings: Mapping[str, str] = field(repr=False)
    now_ms: int

    @property
    def topic(self) -> Topic:
        return self.table.topic

    def run(self, progress: Progress) -> list[RoundRead]:
        """All rounds up to the ends that the brokers name now. Raises CleantailError; what was committed stays."""
        broker = self.brokers.describe(self.topic.kafka_topic)
        goal = table_position(self.topic, self.platform).plan(self.topic, broker, self.now_ms).ends
        rounds: list[RoundRead] = []
        budget, conflicts = ROUND_OFFSETS, 0
        while True:
            try:
                done = self._round(goal, budget, progress)
            except ConflictError:
                conflicts += 1
                if conflicts >= CONFLICTS_MAX:
                    raise
                continue
            if done is None:
                return rounds
            rounds.append(done)
            budget = next_budget(done.offsets, done.written_bytes, budget)

    def _round(self, goal: Mapping[int, int], budget: int, progress: Progress) -> RoundRead | None:
        """None where nothing is left to do."""
        at = table_position(self.topic, self.platform)
        broker = self.brokers.describe(self.topic.kafka_topic)
        plan = _up_to(at.plan(self.topic, broker, self.now_ms), goal)
        if at.position is not None and not plan.offsets and not plan.gaps:
            return None
        ranges = round_ranges(plan, budget, self._cores)
        read_id = uuid.uuid4().hex
        position = self._position(at, broker, plan.next_offsets(ranges), plan.gaps, read_id)
        branch = branch_name(f"in_{read_id[:16]}_{os.getpid()}")
        try:
            progress(f"reading {sum(r.offsets for r in ranges):,} offsets")
            files, records = self._staged(branch, ranges) if ranges else ([], 0)
            warnings = self._warnings(branch) if files else ()
            self._require_unchanged(broker)
            progress("committing")
            summary = {OPERATION: INGEST, SOURCES: self._sources(at, ranges).packed()}
            append_and_advance(self.table, files, Advance(at.text, position.as_json(), summary))
        finally:
            self.table.drop_branch(branch)
        if plan.gaps:
            append_gaps(self.table, self.platform, plan.gaps, self.now_ms)
        tell_group(self.settings, self.topic, position.next_offsets)
        written = sum(int(file.fileSizeInBytes()) for file in files)
        return RoundRead(ranges, records, written, plan.gaps, warnings)

    def _position(
        self, at: TablePosition, broker: BrokerTopic, offsets: Mapping[int, int], gaps: Sequence[Gap], read_id: str
    ) -> SourcePosition:
        known = at.position.gaps if at.position else ()
        isolation = self.topic.source.isolation
        return SourcePosition(
            cluster_id=broker.cluster_id,
            topic=broker.topic,
            topic_id=broker.topic_id,
            next_offsets=offsets,
            isolation=isolation,
            read_id=read_id,
            read_at_ms=self.now_ms,
            gaps=(*known, *gaps),
        )

    @property
    def _cores(self) -> int:
        return int(self.table.spark.sparkContext.defaultParallelism)

    def _staged(self, branch: str, ranges: Sequence[Range]) -> tuple[list[Any], int]:
        """The data files of the ranges' records, on a branch of which readers see nothing, and how many records they
        have. Raises SourceError, SourceUnreachableError and ContradictionError."""
        self.table.create_branch(branch, None)
        before = self.table.head_of(branch)
        frame = read_frame(self.table.spark, task_ranges(ranges, self._cores), self._reader_of_tasks())
        try:
            self.table.append_to(branch, frame, as_it_is=True)
        except PythonException as e:
            known = raised(e)
            if known is None:
                raise
            raise self._clearer(known) from None
        if self.table.head_of(branch) == before:
            return [], 0
        self._require_one_record_an_offset(branch)
        return added_data_files(self.table.load(), branch), self.table.added_records(branch)

    def _reader_of_tasks(self) -> Callable[[], RangeReader]:
        """What a task calls; it travels to the task inside the plan, which Spark shows without its values."""
        settings, topic, isolation = dict(self.settings), self.topic.kafka_topic, self.topic.source.isolation
        stall_ms = self.topic.stall_timeout_ms
        return lambda: RangeReader(settings, topic, isolation, stall_ms)

    def _clearer(self, error: CleantailError) -> CleantailError:
        """A read that came to grief often did so because of what the brokers say of the topic by now."""
        try:
            broker = self.brokers.describe(self.topic.kafka_topic)
            table_position(self.topic, self.platform).plan(self.topic, broker, self.now_ms)
        except SourceError as e:
            return e
        except CleantailError:
            return error
        return error

    def _require_unchanged(self, before: BrokerTopic) -> None:
        """Raises SourceError where the topic was made anew while it was read: records of two topics may be staged."""
        now = self.brokers.describe(before.topic)
        if now.topic_id != before.topic_id:
            raise SourceError(
                f"topic {before.topic} was made anew while it was read: its id was {before.topic_id} and is "
                f"{now.topic_id}; nothing was appended"
            )

    def _require_one_record_an_offset(self, branch: str) -> None:
        found = contradictions_with_table(self.table, branch)
        if found:
            first = found[0]
            raise ContradictionError(
                f"topic {self.topic.kafka_topic}: partition {first.partition}, offset {first.first_offset}: "
                f"{OTHERS[first.other]}: {first.difference}; nothing was appended. An offset has one record: is the "
                'table of another topic? See "Two different records at one offset" in docs/operations.md',
                found,
            )

    def _warnings(self, branch: str) -> tuple[str, ...]:
        states = states_of_properties(texts(self.table.load().properties()), self.table.name)
        return late_warnings(lowest_offsets(self.table, branch), states, self.topic.config)

    def _sources(self, at: TablePosition, ranges: Sequence[Range]) -> Sources:
        """What is needed to take the ingestion back."""
        states = states_of_properties(texts(self.table.load().properties()), self.table.name)
        spans: dict[int, tuple[int, int]] = {}
        for each in ranges:
            spans[each.partition] = (spans.get(each.partition, (each.start, 0))[0], each.end)
        ends = {p: states.get(p, PartitionState()).log_end_offset for p in spans}
        return Sources((), ends, offsets=spans, position_before=at.text)


def _up_to(plan: ReadPlan, goal: Mapping[int, int]) -> ReadPlan:
    """A log that goes on growing is read to the end that it had when the read began."""
    ends = {p: max(plan.starts[p], min(end, goal.get(p, plan.starts[p]))) for p, end in plan.ends.items()}
    return replace(plan, ends=ends)


def read_topic(
    spark: SparkSession, topic: Topic, platform: Platform, settings: Mapping[str, str], now_ms: int, progress: Progress
) -> dict[str, Any]:
    """Reads a topic to its end; gives the job's result. Raises CleantailError: then the round at hand has appended
    nothing, and a table that this made is gone again."""
    if topic.columns is not None:
        raise CleantailError(f"topic {topic.topic} has an adopted table, which its sink fills: nothing was appended")
    brokers = Brokers(settings, topic.stall_timeout_ms)
    with exclusive(platform.home, f"ingest-{topic.topic}"):
        progress("asking the brokers")
        broker = brokers.describe(topic.kafka_topic)
        table_position(topic, platform).plan(topic, broker, now_ms)  # what is wrong is told before a table is made
        table = TopicTable.of(spark, topic, platform)
        is_new = not table.exists()
        table.ensure()
        try:
            rounds = TopicRead(table, platform, brokers, settings, now_ms).run(progress)
        except CleantailError:
            if is_new and table_position(topic, platform).text is None:
                table.drop()
            raise
        ensure_latest_view(table)
    return read_result(topic, rounds)
