"""Append what a topic in Kafka has and its table has not: portion by portion, each staged, compared and committed.

1. The end of a read is the last stable offset of every partition as the read begins.
2. A portion passes a bounded part of the way, so that neither memory nor what a crash costs grows with the backlog.
3. A portion that another ingestion has overtaken is planned anew from where that one has come.
4. The brokers are asked again before each commit: a topic that was recreated meanwhile is none of the records' own.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from cleantail.config.input_limits import DEFAULT_LIMITS, INGEST_MS, limit_text
from cleantail.config.topic import Topic
from cleantail.config.unholdable import ALL, HELD
from cleantail.errors import CleantailError, OutsideError, SourceError, UnholdableError
from cleantail.home.home_folder import exclusive
from cleantail.kafka.broker_clients import tell_group
from cleantail.kafka.read_plan import (
    PORTION_OFFSETS,
    BrokerTopic,
    CleanerConfigs,
    LogRead,
    Range,
    ReadPlan,
    as_of,
    changed_while_read,
    forgotten_by,
    hindrance_of,
    lowest_retention_ms,
    next_budget,
    portion_ranges,
    with_forgotten,
)
from cleantail.kafka.source_topic import Brokers, Deadline, RangeReader
from cleantail.kafka.table_position import TablePosition, last_look_ms, require_own_table, table_position
from cleantail.log.log_state import late_warnings
from cleantail.log.partition_state import LeftOut, PartitionState, left_out_of, states_of_properties
from cleantail.log.source_position import Gap, SourcePosition
from cleantail.retries import ROUNDS
from cleantail.rounds.commit_summaries import OPERATION
from cleantail.rounds.past_ingestions import INGEST, SOURCES, KafkaRead, Sources
from cleantail.rounds.station_results import KafkaIngestResult, OffsetRange
from spark_jobs.engine.workers.environment import require_workers
from spark_jobs.iceberg.commits import Advance, append_and_advance
from spark_jobs.iceberg.iceberg_reads import partition_of, texts
from spark_jobs.iceberg.tables import TopicTable, branch_name
from spark_jobs.round.intake.kafka_records import ArrowReader, MessageReader, Staging, raised
from spark_jobs.round.intake.new_records import NO_RECORDS, NewRecords, leave_out, record_gaps
from spark_jobs.round.latest_view import ensure_latest_view
from spark_jobs.round.released_logs import note_before_intake


@dataclass(frozen=True, slots=True)
class Portion:
    """Says what one commit of a read has appended: its ranges by partition, records, bytes of data files, and the gaps
    before them. After a `last` one there is nothing left of the read."""

    ranges: tuple[Range, ...]
    records: int
    written_bytes: int
    gaps: tuple[Gap, ...] = ()
    warnings: tuple[str, ...] = ()
    last: bool = False

    @property
    def offsets(self) -> int:
        """Returns how many offsets it has passed."""
        return sum(each.offsets for each in self.ranges)


def offset_spans(ranges: Sequence[Range]) -> dict[int, tuple[int, int]]:
    """Returns partition -> [from, to) of offsets, by partition number. `ranges` follow on one another in each
    partition."""
    spans: dict[int, tuple[int, int]] = {}
    for each in sorted(ranges, key=lambda r: (r.partition, r.start)):
        spans[each.partition] = (spans.get(each.partition, (each.start, 0))[0], each.end)
    return spans


def read_result(topic: Topic, portions: Sequence[Portion]) -> KafkaIngestResult:
    """Returns what the whole read has done."""
    spans = offset_spans([each for portion in portions for each in portion.ranges])
    gaps = [gap for portion in portions for gap in portion.gaps]
    return KafkaIngestResult(
        kafka_topic=topic.kafka_topic,
        records=sum(portion.records for portion in portions),
        commits=len(portions),
        partitions=tuple(OffsetRange(p, low, end) for p, (low, end) in spans.items()),
        gaps=tuple(OffsetRange(gap.partition, gap.from_offset, gap.to_offset) for gap in gaps),
        warnings=(*(gap.text for gap in gaps), *(text for portion in portions for text in portion.warnings)),
    )


@dataclass(frozen=True, slots=True)
class CleanerWatch:
    """Knows of one portion what is needed to tell whether deletions may have gone before it was read.

    `configs` are the brokers', or, where nobody shows them, `compact` with the delete.retention.ms of the topic's YAML;
    `hindrance` is why no reconciliation could mend it. `as_of_ms` says of each log when (Unix ms) the table last had
    all of it. `is_current`: whether a log that is read to its end is all that the brokers had as the read began.
    """

    configs: CleanerConfigs
    retention_ms: int
    hindrance: str
    as_of_ms: Mapping[int, int]
    began_ms: int
    is_current: bool
    at_once: frozenset[int] = frozenset()

    @classmethod
    def of(cls, topic: Topic, source: LogSource, at: TablePosition, plan: ReadPlan, began_ms: int) -> CleanerWatch:
        """Asks the source how the brokers clean, and the catalog when the topic was last looked at."""
        configs = source.cleaner_configs() or CleanerConfigs(frozenset({"compact"}), topic.config.delete_retention_ms)
        retention_ms, look_ms = lowest_retention_ms(configs, at.position), last_look_ms(topic, at.position)
        times = {p: as_of(p, at.position, at.ends.get(p, 0), look_ms, began_ms, retention_ms) for p in plan.starts}
        known = {p for p in plan.starts if at.next_offsets.get(p)}
        at_once = frozenset() if source.is_current else frozenset(plan.starts) - known
        return cls(configs, retention_ms, hindrance_of(topic, configs), times, began_ms, source.is_current, at_once)

    def noted(
        self,
        position: SourcePosition,
        before: SourcePosition | None,
        plan: ReadPlan,
        ranges: Sequence[Range],
        files: Sequence[Any],
        states: Mapping[int, PartitionState],
    ) -> SourcePosition:
        """Returns the position with what this portion tells, once its ranges were read into `files`."""
        records = Counter[int]()
        for file in files:
            records[partition_of(file)] += int(file.recordCount())
        reads = [
            LogRead(p, low, end, records[p], self.as_of_ms[p])
            for p, (low, end) in offset_spans(ranges).items()
            if p not in self.at_once
        ]
        read_ms = max(int(time.time() * 1000), self.began_ms)
        new = forgotten_by(reads, self.configs, self.retention_ms, read_ms, self.hindrance)
        ended = {p for p, end in plan.ends.items() if position.next_offsets[p] >= end}
        # when copies of segments were made nobody knows, so they say nothing of the time
        known = before.as_of_ms if before else {}
        current = {p: self.began_ms if p in ended else ms for p, ms in self.as_of_ms.items()}
        return replace(
            position,
            as_of_ms=current if self.is_current else known,
            delete_retention_ms=self.configs.delete_retention_ms,
            forgotten=with_forgotten(before.forgotten if before else (), new, states),
        )


class LogSource(Protocol):
    """Is what a read asks of the place that has a topic's logs."""

    @property
    def progress_text(self) -> str:
        """Says for people what `describe` does."""

    @property
    def is_one_commit(self) -> bool:
        """Says whether all of it is to come in one commit, or portion by portion."""

    @property
    def is_current(self) -> bool:
        """Says whether its log ends are the brokers' of now, or of a time that nobody knows."""

    def cleaner_configs(self) -> CleanerConfigs | None:
        """Returns how the brokers clean the topic, None where that is not said."""

    def position(self) -> TablePosition:
        """Returns how far the table has come."""

    def describe(self, at: TablePosition) -> BrokerTopic:
        """Returns the topic as it is now, for a table that is at this position. Raises CleantailError."""

    def open_reader(self) -> Callable[[], ArrowReader]:
        """Returns what a task calls to read its ranges."""

    def tell(self, next_offsets: Mapping[int, int]) -> None:
        """Is called after each commit."""


@dataclass(frozen=True, slots=True)
class BrokerLogs:
    """Is a topic at its brokers. `settings` are the client's, with its login: they are neither logged nor shown.
    `most_headers`: of a record; `deadline`: of the read, None if it may take as long as it takes."""

    topic: Topic
    brokers: Brokers
    settings: Mapping[str, str] = field(repr=False)
    most_headers: int = DEFAULT_LIMITS.headers
    deadline: Deadline | None = None
    progress_text: str = "asking the brokers"
    is_one_commit: bool = False
    is_current: bool = True

    def cleaner_configs(self) -> CleanerConfigs | None:
        return self.brokers.cleaner_configs(self.topic.kafka_topic)

    def position(self) -> TablePosition:
        return table_position(self.topic)

    def describe(self, at: TablePosition) -> BrokerTopic:
        return self.brokers.describe(self.topic.kafka_topic)

    def open_reader(self) -> Callable[[], ArrowReader]:
        settings, name, isolation = dict(self.settings), self.topic.kafka_topic, self.topic.source.isolation
        stall_ms, most_headers, deadline = self.topic.stall_timeout_ms, self.most_headers, self.deadline
        return lambda: MessageReader(RangeReader(settings, name, isolation, stall_ms, deadline), most_headers)

    def tell(self, next_offsets: Mapping[int, int]) -> None:
        tell_group(self.settings, self.topic, next_offsets)


logger = logging.getLogger("cleantail.kafka")
Progress = Callable[[str], None]
ALL_OFFSETS = 1 << 62
"""The budget of a read that is one commit."""


def read_topic(
    spark: SparkSession,
    topic: Topic,
    settings: Mapping[str, str],
    now_ms: int,
    progress: Progress,
    lock_within_s: float | None = None,
    within_ms: int | None = None,
) -> KafkaIngestResult:
    """Reads a topic to its end. `lock_within_s`: as in ingest_files; `within_ms`: how long it may take, where others
    wait. Raises CleantailError: then the portion at hand
    has appended nothing. A table that this made stays: another ingestion may have filled it."""
    require_own_table(topic)
    stall_ms = topic.stall_timeout_ms if within_ms is None else min(topic.stall_timeout_ms, within_ms)
    brokers = Brokers(settings, stall_ms)
    deadline = Deadline.after(within_ms) if within_ms is not None else None
    source = BrokerLogs(topic, brokers, settings, topic.platform.limits.record_max_headers, deadline)
    return read_source(spark, topic, source, now_ms, progress, lock_within_s)


def read_source(
    spark: SparkSession,
    topic: Topic,
    source: LogSource,
    now_ms: int,
    progress: Progress,
    lock_within_s: float | None = None,
) -> KafkaIngestResult:
    """Reads a source to its end, as `read_topic` reads brokers."""
    platform = topic.platform
    with exclusive(platform.home, f"ingest-{topic.topic}", lock_within_s):
        progress(source.progress_text)
        # what is wrong is told before a table is made
        table = TopicTable.of(spark, topic)
        note_before_intake(table, now_ms)
        at = source.position()
        at.plan(topic, source.describe(at), now_ms)
        table.ensure()
        portions = TopicRead(table, source, now_ms).run(progress)
        ensure_latest_view(table)
    return read_result(topic, portions)


@dataclass(frozen=True, slots=True)
class TopicRead:
    """Reads one topic once."""

    table: TopicTable
    source: LogSource
    now_ms: int

    @property
    def topic(self) -> Topic:
        return self.table.topic

    def run(self, progress: Progress) -> list[Portion]:
        """Appends all portions up to the ends that the brokers name now. Raises CleantailError; what was committed
        stays."""
        require_workers(self.table.spark.sparkContext, self.table.platform, self._cores)
        at = self.source.position()
        self._record_gaps(at.position)
        ends = at.plan(self.topic, self.source.describe(at), self.now_ms).ends
        portions: list[Portion] = []
        budget = ALL_OFFSETS if self.source.is_one_commit else PORTION_OFFSETS
        while portion := self._portion(ends, budget, progress):
            portions.append(portion)
            if portion.last:
                break
            budget = next_budget(portion.offsets, portion.written_bytes, budget)
            if (deadline := self._deadline) is not None and not deadline.left_ms():
                raise SourceError(
                    f"topic {self.topic.kafka_topic} was not read to its end within {deadline.within_ms} ms: what was "
                    f"appended stays, and the next run goes on there; {limit_text(INGEST_MS)}"
                )
        return portions

    def _portion(self, ends: Mapping[int, int], budget: int, progress: Progress) -> Portion | None:
        """Appends the next portion, planned anew where another ingestion was faster; returns None where nothing is
        left to do."""
        return ROUNDS.run(
            lambda: self._try_portion(ends, budget, progress),
            lambda tries, e: logger.info("try %s was overtaken, the portion is planned anew: %s", tries, e),
        )

    def _try_portion(self, ends: Mapping[int, int], budget: int, progress: Progress) -> Portion | None:
        # 1. what is to be read, from where the table is now
        at = self.source.position()
        broker = self.source.describe(at)
        plan = _up_to(at.plan(self.topic, broker, self.now_ms), ends)
        if at.position is not None and not plan.offsets and not plan.gaps:
            return None
        ranges = portion_ranges(plan, budget, self._cores)
        position = self._position(at, broker, plan, ranges)
        watch = CleanerWatch.of(self.topic, self.source, at, plan, self.now_ms)

        def noted(files: Sequence[Any], states: Mapping[int, PartitionState]) -> SourcePosition:
            return watch.noted(position, at.position, plan, ranges, files, states)

        # 2. on a branch, then onto main with the position
        records, written_bytes, warnings = self._append(at, position.read_id, noted, broker, ranges, progress)
        # 3. who is told of it
        self._record_gaps(position if plan.gaps else None)
        self.source.tell(position.next_offsets)
        is_last = all(position.next_offsets[p] >= end for p, end in plan.ends.items())
        return Portion(ranges, records, written_bytes, plan.gaps, warnings, is_last)

    def _append(
        self,
        at: TablePosition,
        read_id: str,
        noted: Callable[[Sequence[Any], Mapping[int, PartitionState]], SourcePosition],
        broker: BrokerTopic,
        ranges: Sequence[Range],
        progress: Progress,
    ) -> tuple[int, int, tuple[str, ...]]:
        """Stages the ranges and commits them with the position that `noted` makes of their files. Returns how many
        records came, the bytes of their files, and what a person should know of them."""
        branch = branch_name(f"in_{read_id[:16]}_{os.getpid()}")
        staging = Staging(self.table, self.source.open_reader(), self._cores)
        try:
            progress(f"reading {sum(r.offsets for r in ranges):,} offsets")
            records, left_out = self._written(staging, branch, ranges) if ranges else (NO_RECORDS, ())
            with records.deleted_unless_staged(self.table, branch):
                staging.require_one_record_an_offset(branch, records)
                states = self._states()
                position = noted(records.files, states)
                new = [entry for entry in position.forgotten if not at.position or entry not in at.position.forgotten]
                late = late_warnings(records.lowest, states, self.topic.config)
                self._require_unchanged(at, broker)
                summary = {OPERATION: INGEST, SOURCES: self._sources(at, ranges, states).packed()}
            progress("committing")
            advance = Advance(at.text, position.as_json(), summary, at.snapshot_id, left_out=left_out)
            append_and_advance(self.table, records.files, advance)
        finally:
            self.table.drop_branches([branch])
        written_bytes = sum(int(file.fileSizeInBytes()) for file in records.files)
        return (
            records.count,
            written_bytes,
            (*late, *(entry.text for entry in new), *(entry.text for entry in left_out)),
        )

    def _position(
        self, at: TablePosition, broker: BrokerTopic, plan: ReadPlan, ranges: Sequence[Range]
    ) -> SourcePosition:
        next_offsets = plan.next_offsets(ranges)
        return SourcePosition(
            cluster_id=broker.cluster_id,
            topic=broker.topic,
            topic_id=broker.topic_id,
            next_offsets=next_offsets,
            isolation=self.topic.source.isolation,
            read_id=uuid.uuid4().hex,
            read_at_ms=self.now_ms,
            gaps=(*(at.position.gaps if at.position else ()), *plan.gaps),
            open_from={p: log.last_stable for p, log in broker.logs.items() if log.last_stable < next_offsets[p]},
        )

    @property
    def _deadline(self) -> Deadline | None:
        return self.source.deadline if isinstance(self.source, BrokerLogs) else None

    @property
    def _cores(self) -> int:
        return int(self.table.spark.sparkContext.defaultParallelism)

    def _record_gaps(self, position: SourcePosition | None) -> None:
        """Writes what was passed over into the evidence, as the position and the table's properties say it."""
        left_out = left_out_of(texts(self.table.load().properties()), self.table.name)
        record_gaps(self.table, (*(position.gaps if position else ()), *left_out))

    def _written(
        self, staging: Staging, branch: str, ranges: Sequence[Range]
    ) -> tuple[NewRecords, tuple[LeftOut, ...]]:
        """Writes the ranges, and returns what was left out of them. Raises the error that says most: a read often came
        to grief because of what the brokers say of the topic by now."""
        try:
            try:
                return staging.write(branch, ranges, ALL), ()
            except UnholdableError:
                if self.topic.config.cleantail_unholdable_policy == "fail":
                    raise
            self.table.drop_branches([branch])
            left_out = leave_out(self.table, staging.unheld(ranges), self.now_ms)
            return staging.write(branch, ranges, HELD), left_out
        except PythonException as e:
            if (error := raised(e)) is None:
                raise
            raise error from None
        except (SourceError, OutsideError):
            if self._deadline is None or self._deadline.left_ms():
                self._plan_again()
            raise

    def _plan_again(self) -> None:
        """Raises SourceError where a read would not even begin by now; whatever else is wrong is known already."""
        try:
            at = self.source.position()
            at.plan(self.topic, self.source.describe(at), self.now_ms)
        except SourceError:
            raise
        except CleantailError as e:
            logger.info("asked again: %s", e)

    def _require_unchanged(self, at: TablePosition, before: BrokerTopic) -> None:
        """Raises SourceError where the topic was recreated while it was read, or another cluster answers: records of
        two topics may be staged."""
        if problem := changed_while_read(before, self.source.describe(at)):
            raise SourceError(f"{problem}; nothing was appended")

    def _states(self) -> dict[int, PartitionState]:
        return states_of_properties(texts(self.table.load().properties()), self.table.name)

    def _sources(self, at: TablePosition, ranges: Sequence[Range], states: Mapping[int, PartitionState]) -> Sources:
        """Returns what is needed to take the ingestion back."""
        spans = offset_spans(ranges)
        ends = {p: states.get(p, PartitionState()).log_end_offset for p in spans}
        return Sources((), ends, KafkaRead(spans, at.text))


def _up_to(plan: ReadPlan, ends: Mapping[int, int]) -> ReadPlan:
    """Returns the plan with the ends that the logs had when the read began, though they go on growing."""
    bounded = {p: max(plan.starts[p], min(end, ends.get(p, plan.starts[p]))) for p, end in plan.ends.items()}
    return replace(plan, ends=bounded)
