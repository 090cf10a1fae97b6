"""Append new records of a topic in Kafka to its table, in portions. Each portion is staged, compared and committed.

1. A read ends at the last stable offset of every partition at its start.
2. Portions are bounded, so that memory and the loss by a crash do not grow with the backlog.
3. A portion that another ingestion overtook is planned again from the new position.
4. The topic is checked again before each commit: the staged records may be of a topic that was recreated meanwhile.
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

from pyspark.sql import SparkSession

from cleantail.codec import FORMAT
from cleantail.config.input_limits import DEFAULT_LIMITS, INGEST_MS, limit_text
from cleantail.config.topic import Topic
from cleantail.config.unholdable import ALL, HELD
from cleantail.errors import CleantailError, OutsideError, SourceError, UnholdableError
from cleantail.home.home_folder import exclusive
from cleantail.kafka.broker_clients import commit_group_offsets
from cleantail.kafka.read_plan import (
    PORTION_OFFSETS,
    BrokerPolicy,
    BrokerTopic,
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
from cleantail.kafka.table_position import TablePosition, last_caught_up_ms, require_own_table, table_position
from cleantail.log.log_state import late_warnings
from cleantail.log.partition_state import LeftOut, PartitionState, left_out_of, states_of_properties
from cleantail.log.source_position import Gap, SourcePosition
from cleantail.retries import ROUNDS
from cleantail.rounds.commit_summaries import OPERATION
from cleantail.rounds.past_ingestions import INGEST, SOURCES, KafkaRead, Sources
from cleantail.rounds.station_results import KafkaIngestResult, OffsetRange
from spark_jobs.engine.workers.environment import require_workers
from spark_jobs.iceberg.commits import Advance, append_and_advance
from spark_jobs.iceberg.iceberg_reads import partition_of
from spark_jobs.iceberg.java_calls import texts
from spark_jobs.iceberg.tables import TopicTable, branch_name
from spark_jobs.round.intake.denylist import Denylist, left_out_by
from spark_jobs.round.intake.kafka_records import ArrowReader, MessageReader, Staging
from spark_jobs.round.intake.new_records import NO_RECORDS, NewRecords, leave_out, record_gaps, require_agreement
from spark_jobs.round.intake.record_batches import task_errors
from spark_jobs.round.latest_view import ensure_latest_view
from spark_jobs.round.released_logs import note_before_intake


@dataclass(frozen=True, slots=True)
class Portion:
    """The result of one commit of a read. `gaps`: missing offsets before the ranges. `last`: the read is complete."""

    ranges: tuple[Range, ...]
    records: int
    written_bytes: int
    gaps: tuple[Gap, ...] = ()
    warnings: tuple[str, ...] = ()
    last: bool = False

    @property
    def offsets(self) -> int:
        return sum(each.offsets for each in self.ranges)


def offset_spans(ranges: Sequence[Range]) -> dict[int, tuple[int, int]]:
    """Return partition -> [from, to) of offsets, sorted. The ranges of a partition are contiguous."""
    spans: dict[int, tuple[int, int]] = {}
    for each in sorted(ranges, key=lambda r: (r.partition, r.start)):
        spans[each.partition] = (spans.get(each.partition, (each.start, 0))[0], each.end)
    return spans


def read_result(topic: Topic, portions: Sequence[Portion]) -> KafkaIngestResult:
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
    """Finds out whether Kafka may have removed tombstones of a portion before they were read.

    configs     the brokers'; if they are unknown, `compact` with the delete.retention.ms of the topic's YAML
    hindrance   reason why a reconciliation cannot repair such a loss
    as_of_ms    partition -> time (Unix ms) at which the table last had the whole log
    is_current  whether the log ends are the brokers' at the start of the read
    at_once     logs that are read for the first time from copies of segments
    """

    configs: BrokerPolicy
    retention_ms: int
    hindrance: str
    as_of_ms: Mapping[int, int]
    began_ms: int
    is_current: bool
    at_once: frozenset[int] = frozenset()

    @classmethod
    def of(cls, topic: Topic, source: LogSource, at: TablePosition, plan: ReadPlan, began_ms: int) -> CleanerWatch:
        """Read the cleaner's configs from the source, and the time of the topic's last read from the catalog."""
        configs = source.cleaner_configs() or BrokerPolicy(frozenset({"compact"}), topic.config.delete_retention_ms)
        retention_ms, caught_up_ms = lowest_retention_ms(configs, at.position), last_caught_up_ms(topic, at.position)
        times = {p: as_of(p, at.position, at.ends.get(p, 0), caught_up_ms, began_ms, retention_ms) for p in plan.starts}
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
        left_out: Sequence[LeftOut],
        states: Mapping[int, PartitionState],
    ) -> SourcePosition:
        """Return the position with the findings of this portion. `files` and `left_out`: the records of its ranges."""
        records = Counter[int]()
        for entry in left_out:  # Kafka still had these records
            records[entry.partition] += entry.records
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
        # the age of copies of segments is unknown
        known = before.as_of_ms if before else {}
        current = {p: self.began_ms if p in ended else ms for p, ms in self.as_of_ms.items()}
        return replace(
            position,
            as_of_ms=current if self.is_current else known,
            delete_retention_ms=self.configs.delete_retention_ms,
            forgotten=with_forgotten(before.forgotten if before else (), new, states),
        )


class LogSource(Protocol):
    """A source of a topic's logs: brokers, or segments of a broker's folders."""

    @property
    def progress_text(self) -> str:
        """Return the progress message for `describe`."""

    @property
    def is_current(self) -> bool:
        """Return whether its log ends are the brokers' current ones. If unknown, the read is one portion."""

    def cleaner_configs(self) -> BrokerPolicy | None:
        """Return the brokers' cleaner configs of the topic, or None if they are unknown."""

    def position(self) -> TablePosition:
        """Return the position of the table."""

    def describe(self, at: TablePosition) -> BrokerTopic:
        """Return the current topic, for a table at this position. Raises CleantailError."""

    def open_reader(self) -> Callable[[], ArrowReader]:
        """Return a function that opens a reader in a task."""

    def note_committed(self, next_offsets: Mapping[int, int]) -> None:
        """Report the position after a commit."""


@dataclass(frozen=True, slots=True)
class BrokerLogs:
    """A topic at its brokers.

    settings      of the Kafka client, with its login: do not log or show them
    most_headers  limit per record
    deadline      of the read, or None
    """

    topic: Topic
    brokers: Brokers
    settings: Mapping[str, str] = field(repr=False)
    most_headers: int = DEFAULT_LIMITS.headers
    deadline: Deadline | None = None
    progress_text: str = "reading offsets from the brokers"
    is_current: bool = True

    def cleaner_configs(self) -> BrokerPolicy | None:
        return self.brokers.cleaner_configs(self.topic.kafka_topic)

    def position(self) -> TablePosition:
        return table_position(self.topic)

    def describe(self, at: TablePosition) -> BrokerTopic:
        return self.brokers.describe(self.topic.kafka_topic)

    def open_reader(self) -> Callable[[], ArrowReader]:
        settings, name, isolation = dict(self.settings), self.topic.kafka_topic, self.topic.source.isolation
        stall_ms, most_headers, deadline = self.topic.stall_timeout_ms, self.most_headers, self.deadline
        return lambda: MessageReader(RangeReader(settings, name, isolation, stall_ms, deadline), most_headers)

    def note_committed(self, next_offsets: Mapping[int, int]) -> None:
        commit_group_offsets(self.settings, self.topic, next_offsets)


logger = logging.getLogger("cleantail.kafka")
Progress = Callable[[str], None]
ALL_OFFSETS = 1 << 62
"""Portion size of a read in one commit."""


def read_topic(
    spark: SparkSession,
    topic: Topic,
    settings: Mapping[str, str],
    now_ms: int,
    progress: Progress,
    lock_within_s: float | None = None,
    within_ms: int | None = None,
) -> KafkaIngestResult:
    """Read a topic to its end. `lock_within_s`: as in ingest_files. `within_ms`: time limit if other topics wait.
    Raises CleantailError: the portion appends nothing, but a new table stays, which others may have filled."""
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
    """Read a source to its end, as `read_topic` reads brokers."""
    with exclusive(topic.platform.home, f"ingest-{topic.topic}", lock_within_s):
        progress(source.progress_text)
        # report problems before creating a table
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
    table: TopicTable
    source: LogSource
    now_ms: int

    @property
    def topic(self) -> Topic:
        return self.table.topic

    def run(self, progress: Progress) -> list[Portion]:
        """Append all portions up to the current ends of the logs. Raises CleantailError; committed portions stay."""
        require_workers(self.table.spark.sparkContext, self.table.platform, self._cores)
        at = self.source.position()
        self._record_gaps(at.position)
        ends = at.plan(self.topic, self.source.describe(at), self.now_ms).ends
        portions: list[Portion] = []
        budget = PORTION_OFFSETS if self.source.is_current else ALL_OFFSETS
        while portion := self._portion(ends, budget, progress):
            portions.append(portion)
            if portion.last:
                break
            budget = next_budget(portion.offsets, portion.written_bytes, budget)
            if (deadline := self._deadline) is not None and not deadline.left_ms():
                raise SourceError(
                    f"topic {self.topic.kafka_topic} was not read to its end within {deadline.within_ms} ms: appended "
                    f"records stay, and the next run continues after them; {limit_text(INGEST_MS)}"
                )
        return portions

    def _portion(self, ends: Mapping[int, int], budget: int, progress: Progress) -> Portion | None:
        """Append the next portion. Plans it again if another ingestion was faster. Returns None if none is left."""
        return ROUNDS.run(
            lambda: self._try_portion(ends, budget, progress),
            lambda tries, e: logger.info("another ingestion overtook attempt %s, planning again: %s", tries, e),
        )

    def _try_portion(self, ends: Mapping[int, int], budget: int, progress: Progress) -> Portion | None:
        # 1. plan the ranges from the table's position; `ends` bound logs that grow during the read
        at = self.source.position()
        broker = self.source.describe(at)
        plan = at.plan(self.topic, broker, self.now_ms)
        bounded = {p: max(plan.starts[p], min(end, ends.get(p, plan.starts[p]))) for p, end in plan.ends.items()}
        plan = replace(plan, ends=bounded)
        if at.position is not None and not plan.offsets and not plan.gaps:
            return None
        ranges = portion_ranges(plan, budget, self._cores)
        position = self._position(at, broker, plan, ranges)
        watch = CleanerWatch.of(self.topic, self.source, at, plan, self.now_ms)

        def noted(
            files: Sequence[Any], left_out: Sequence[LeftOut], states: Mapping[int, PartitionState]
        ) -> SourcePosition:
            return watch.noted(position, at.position, plan, ranges, files, left_out, states)

        # 2. stage them, then commit them with the position
        records, written_bytes, warnings = self._append(at, position.read_id, noted, broker, ranges, progress)
        # 3. report gaps and the position
        self._record_gaps(position if plan.gaps else None)
        self.source.note_committed(position.next_offsets)
        is_last = all(position.next_offsets[p] >= end for p, end in plan.ends.items())
        return Portion(ranges, records, written_bytes, plan.gaps, warnings, is_last)

    def _append(
        self,
        at: TablePosition,
        read_id: str,
        noted: Callable[[Sequence[Any], Sequence[LeftOut], Mapping[int, PartitionState]], SourcePosition],
        broker: BrokerTopic,
        ranges: Sequence[Range],
        progress: Progress,
    ) -> tuple[int, int, tuple[str, ...]]:
        """Stage the ranges and commit them with the position of `noted`. Returns (records, bytes, warnings)."""
        branch = branch_name(f"in_{read_id[:16]}_{os.getpid()}")
        denylist = Denylist.of(self.table)
        staging = Staging(self.table, self.source.open_reader(), self._cores, denylist)
        try:
            progress(f"reading {sum(r.offsets for r in ranges):,} offsets")
            records, left_out = self._written(staging, branch, ranges) if ranges else (NO_RECORDS, ())
            left_out = (*left_out, *left_out_by(records.erased, self.now_ms))
            with records.deleted_on_error(self.table):
                name = f"topic {self.topic.kafka_topic}"
                require_agreement(self.table, branch, records, name, "is the table of another topic?")
                states = states_of_properties(texts(self.table.load().properties()), self.table.name)
                position = noted(records.files, left_out, states)
                new = [entry for entry in position.forgotten if not at.position or entry not in at.position.forgotten]
                late = late_warnings(records.lowest, states, self.topic.config)
                # A recreated topic, or another cluster: records of two topics may be staged.
                if problem := changed_while_read(broker, self.source.describe(at)):
                    raise SourceError(f"{problem}; nothing was appended")
                spans = offset_spans(ranges)
                ends = {p: states.get(p, PartitionState()).log_end_offset for p in spans}
                sources = Sources((), ends, KafkaRead(spans, at.text))
                summary = {OPERATION: INGEST, SOURCES: sources.packed()}
            progress("committing")
            advance = Advance(
                at.text,
                position.as_json(),
                summary,
                at.snapshot_id,
                left_out=left_out,
                denylist=denylist.version,
                branches=(branch,),
            )
            append_and_advance(self.table, records.files, advance)
        except BaseException:
            self.table.drop_branches([branch])
            raise
        written_bytes = sum(int(file.fileSizeInBytes()) for file in records.files)
        warnings = (*late, *(entry.text for entry in new), *(entry.text for entry in left_out))
        return records.count, written_bytes, warnings

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
            version=FORMAT,
        )

    @property
    def _deadline(self) -> Deadline | None:
        return self.source.deadline if isinstance(self.source, BrokerLogs) else None

    @property
    def _cores(self) -> int:
        return int(self.table.spark.sparkContext.defaultParallelism)

    def _record_gaps(self, position: SourcePosition | None) -> None:
        """Record the gaps of the position, and the left out records of the table's properties, in the evidence."""
        left_out = left_out_of(texts(self.table.load().properties()), self.table.name)
        record_gaps(self.table, (*(position.gaps if position else ()), *left_out))

    def _written(
        self, staging: Staging, branch: str, ranges: Sequence[Range]
    ) -> tuple[NewRecords, tuple[LeftOut, ...]]:
        """Write the ranges. Returns the records, and those that were left out. After a failed read, checks the topic
        again first: the brokers' answer often explains the failure better."""
        try:
            try:
                return staging.write(branch, ranges, ALL), ()
            except UnholdableError:
                if self.topic.config.cleantail_unholdable_policy == "fail":
                    raise
            self.table.drop_branches([branch])
            with task_errors():
                left_out = leave_out(self.table, staging.unheld(ranges), staging.denylist, self.now_ms)
            return staging.write(branch, ranges, HELD), left_out
        except (SourceError, OutsideError):
            if self._deadline is None or self._deadline.left_ms():
                self._plan_again()
            raise

    def _plan_again(self) -> None:
        """Raise SourceError if a read could not start now. Only log other errors: the first one is raised anyway."""
        try:
            at = self.source.position()
            at.plan(self.topic, self.source.describe(at), self.now_ms)
        except SourceError:
            raise
        except CleantailError as e:
            logger.info("after a failed read the topic was checked again: %s", e)
