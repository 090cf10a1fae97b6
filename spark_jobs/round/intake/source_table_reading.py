"""Append what a topic's source table has and its own table has not: portion by portion, each one commit.

1. What is new is told by the source's snapshots (cleantail.log.snapshot_plan), without Spark.
2. Spark's tasks read the files of these snapshots, put the records in the order of their logs, each once, and write
   them onto a branch of the topic's own table.
3. They are compared with what the table has at their offsets, and come onto `main` together with the position, and only
   onto the position that was planned on.
4. A portion that another ingestion has overtaken is planned anew from where that one has come. The source is only read.

Spark writes the records of a portion log by log, in offset order, each once (`once_each`). Where the table has files
with offsets between theirs, both are compared. A record that differs from the table's is refused. One that the table
has already, hidden ones included, is left out, and what is left is written again.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cleantail.config.topic import Topic
from cleantail.config.topic_table import COLUMNS, OFFSET, PARTITION
from cleantail.config.unholdable import HELD, UNHELD
from cleantail.errors import CleantailError, ContradictionError, SourceError, UnholdableError
from cleantail.home.home_folder import exclusive
from cleantail.lake.pending_input import PlannedRead, described_source, own_position, planned_read, table_source_of
from cleantail.log.log_state import late_warnings
from cleantail.log.partition_state import LeftOut, PartitionState, states_of_properties
from cleantail.log.rules import OTHERS
from cleantail.log.snapshot_plan import SnapshotPlan, SourceTable, lost_of
from cleantail.log.source_position import PROPERTY_SNAPSHOT_POSITION, SnapshotGap, SnapshotPosition
from cleantail.retries import ROUNDS
from cleantail.rounds.commit_summaries import OPERATION
from cleantail.rounds.evidence_row import EvidenceRow
from cleantail.rounds.past_ingestions import INGEST, SOURCES, Sources, TableRead
from cleantail.rounds.past_rounds import GAP, PUBLISHED
from cleantail.rounds.station_results import OffsetRange, TableIngestResult
from spark_jobs.engine.workers.environment import require_workers
from spark_jobs.iceberg.commits import Advance, append_and_advance
from spark_jobs.iceberg.iceberg_reads import texts
from spark_jobs.iceberg.tables import DELETED, TopicTable, branch_name, span_condition
from spark_jobs.round.evidence import append_once
from spark_jobs.round.intake.new_records import (
    NO_RECORDS,
    NewRecords,
    Ranges,
    contradictions_of,
    leave_out,
    overlaps_of,
    record_left_out,
    staged_on,
)
from spark_jobs.round.intake.source_frames import SessionTable, SourceFrames, once_each, raised
from spark_jobs.round.latest_view import ensure_latest_view
from spark_jobs.round.released_logs import note_before_intake


@dataclass(frozen=True, slots=True)
class TablePortion:
    """Says what one commit of a read has appended, up to which snapshot of the source, and what was passed over. After
    a `last` one there is nothing left of the read."""

    snapshot_id: int
    records: int
    ranges: Ranges
    gaps: tuple[SnapshotGap, ...] = ()
    warnings: tuple[str, ...] = ()
    last: bool = False


def read_result(topic: Topic, portions: Sequence[TablePortion]) -> TableIngestResult:
    """Returns what the whole read has done."""
    spans: dict[int, tuple[int, int]] = {}
    for portion in portions:
        for partition, (low, end) in portion.ranges.items():
            known = spans.get(partition, (low, end))
            spans[partition] = (min(known[0], low), max(known[1], end))
    gaps = [gap.text for portion in portions for gap in portion.gaps]
    return TableIngestResult(
        table=table_source_of(topic).named_in(topic.platform.catalog.name),
        snapshot_id=portions[-1].snapshot_id if portions else None,
        records=sum(portion.records for portion in portions),
        commits=len(portions),
        partitions=tuple(OffsetRange(p, low, end) for p, (low, end) in sorted(spans.items())),
        gaps=tuple(gaps),
        warnings=(*gaps, *(text for portion in portions for text in portion.warnings)),
    )


def record_changes(table: TopicTable, gaps: Sequence[SnapshotGap]) -> None:
    """Appends a row for each of the gaps that the evidence does not have yet. `gaps` are those of the table's position,
    which has them since the commit that went on behind them: a crash right after it loses no row."""
    append_once(table, [_row(gap) for gap in gaps], identified_by=("base_snapshot_id", "note"))


def _row(gap: SnapshotGap) -> EvidenceRow:
    """Returns a row without a partition: nobody knows whose records they were."""
    return {
        "round": "",
        "kind": GAP,
        "outcome": PUBLISHED,
        "note": gap.text,
        "now_ms": gap.at_ms,
        "base_snapshot_id": gap.snapshot_id,
    }


AGAIN = "_again"
"""What the name of the second branch adds to that of the first."""


@dataclass(frozen=True, slots=True)
class FreshRecords:
    """Says what a read brings. `came`: where the records lie that the source has, also those that the table had
    before. `left_out`: those that it cannot hold."""

    records: NewRecords
    came: Ranges
    left_out: tuple[LeftOut, ...] = ()


def write_fresh(table: TopicTable, branch: str, frame: DataFrame, source: str) -> FreshRecords:
    """Writes the records onto the branch, or onto the one that is called AGAIN. Raises SourceError for a record that no
    table can hold, and ContradictionError for two different ones at an offset. `source`: its name for people."""
    records = _written(table, branch, once_each(frame), source)
    _require_one_record_an_offset(table, branch, records, source)
    overlaps = overlaps_of(table, table.load(), records.ranges)
    if not overlaps:
        return FreshRecords(records, records.ranges)
    staged, there = staged_on(table, table.load(), branch).select(*COLUMNS), _there(table, overlaps)
    if staged.where(span_condition(overlaps)).join(there, [PARTITION, OFFSET], "left_semi").isEmpty():
        return FreshRecords(records, records.ranges)
    fresh = once_each(staged.join(there, [PARTITION, OFFSET], "left_anti"))
    return FreshRecords(_written(table, branch + AGAIN, fresh, source), records.ranges)


def _written(table: TopicTable, branch: str, frame: DataFrame, source: str) -> NewRecords:
    """Appends records to a new branch. Without one Spark makes no commit, and the branch has none of its own."""
    table.create_branch(branch, None)
    before = table.load().snapshot(branch)
    try:
        table.append_to(branch, frame, as_it_is=True)
    except PySparkException as e:
        if (error := raised(str(e), source)) is None:
            raise
        raise error from None
    head = table.load().snapshot(branch)
    if before is not None and int(before.snapshotId()) == int(head.snapshotId()):
        return NO_RECORDS
    return NewRecords.of_branch(table, branch, once=True)


def _there(table: TopicTable, overlaps: Ranges) -> DataFrame:
    """Returns partition and offset of what the table has in the ranges, with what rounds have hidden there."""
    records = table.with_hidden_at(int(table.load().currentSnapshot().snapshotId())).where(span_condition(overlaps))
    # the deleted records come only where that column is read
    return records.where(F.col(DELETED) | (F.col(OFFSET) >= 0)).select(PARTITION, OFFSET)


def _require_one_record_an_offset(table: TopicTable, branch: str, records: NewRecords, source: str) -> None:
    contradictions = contradictions_of(table, branch, records)
    if not contradictions:
        return
    first = contradictions[0]
    raise ContradictionError(
        f"{source}: partition {first.partition}, offset {first.first_offset}: {OTHERS[first.other]}: "
        f"{first.difference}; nothing was appended. An offset has one record: is the source of another topic? See "
        '"Two different records at one offset" in docs/operations.md',
        contradictions,
    )


logger = logging.getLogger("cleantail.source_table")
Progress = Callable[[str], None]


def read_source_table(
    spark: SparkSession, topic: Topic, now_ms: int, progress: Progress, lock_within_s: float | None = None
) -> TableIngestResult:
    """Reads the source table to its newest snapshot. `lock_within_s`: as in ingest_files. Raises
    CleantailError, and whatever Spark raises: then the portion at hand has appended nothing. A table that this made
    stays: another ingestion may have filled it."""
    with exclusive(topic.platform.home, f"ingest-{topic.topic}", lock_within_s):
        progress("looking at the source table")
        # what is wrong is told before a table is made
        table = TopicTable.of(spark, topic)
        note_before_intake(table, now_ms)
        if planned_read(topic, now_ms).plan is None:
            return read_result(topic, [])
        table.ensure()
        portions = SourceTableRead(table, now_ms).run(progress)
        ensure_latest_view(table)
    return read_result(topic, portions)


@dataclass(frozen=True, slots=True)
class SourceTableRead:
    """Reads one topic once."""

    table: TopicTable
    now_ms: int

    @property
    def topic(self) -> Topic:
        return self.table.topic

    def run(self, progress: Progress) -> list[TablePortion]:
        """Appends all portions up to the newest snapshot. Raises CleantailError; what was committed stays."""
        require_workers(self.table.spark.sparkContext, self.table.platform, self._cores)
        position = own_position(self.topic).position
        record_changes(self.table, position.gaps if position else ())
        record_left_out(self.table)
        portions: list[TablePortion] = []
        while portion := self._portion(progress):
            portions.append(portion)
            if portion.last:
                break
        return portions

    def _portion(self, progress: Progress) -> TablePortion | None:
        """Appends the next portion, planned anew where another ingestion was faster; returns None where nothing is
        left to do."""
        return ROUNDS.run(
            lambda: self._try_portion(progress),
            lambda tries, e: logger.info("try %s was overtaken, the portion is planned anew: %s", tries, e),
        )

    def _try_portion(self, progress: Progress) -> TablePortion | None:
        planned = planned_read(self.topic, self.now_ms)
        if planned.plan is None:
            return None
        progress(f"reading up to snapshot {planned.plan.end.snapshot_id}")
        portion = self._appended(planned, planned.plan, progress)
        record_changes(self.table, planned.plan.gaps)
        record_left_out(self.table)
        return portion

    def _appended(self, planned: PlannedRead, plan: SnapshotPlan, progress: Progress) -> TablePortion:
        """Stages what the plan names and commits it with the position."""
        read_id = uuid.uuid4().hex
        branch = branch_name(f"in_{read_id[:16]}_{os.getpid()}")
        try:
            fresh = self._fresh(planned, plan, branch)
            position = self._position(planned, plan, fresh, read_id)
            states = states_of_properties(texts(self.table.load().properties()), self.table.name)
            late = late_warnings(fresh.records.lowest, states, self.topic.config)
            self._require_unchanged(planned)
            progress("committing")
            summary = {OPERATION: INGEST, SOURCES: self._sources(planned, plan, fresh, states).packed()}
            at = planned.at
            advance = Advance(
                at.text, position.as_json(), summary, at.snapshot_id, PROPERTY_SNAPSHOT_POSITION, fresh.left_out
            )
            append_and_advance(self.table, fresh.records.files, advance)
        finally:
            self.table.drop_branches([branch, branch + AGAIN])
        warnings = (*late, *(entry.text for entry in fresh.left_out))
        return TablePortion(plan.end.snapshot_id, fresh.records.count, fresh.came, plan.gaps, warnings, plan.is_last)

    def _fresh(self, planned: PlannedRead, plan: SnapshotPlan, branch: str) -> FreshRecords:
        """Writes what the plan brings onto the branch; rewrites alone bring nothing, and are not looked at."""
        if not plan.brings_records:
            return FreshRecords(NO_RECORDS, {})
        source = table_source_of(self.topic)
        known = planned.at.position.next_offsets if planned.at.position else {}
        try:
            table = SessionTable.of(self.table.spark, source, self.table.platform)
            frames = SourceFrames.of(table, table.load(planned.source.uuid), source.columns)
            try:
                return write_fresh(self.table, branch, frames.records(plan, known), planned.source.name)
            except UnholdableError:
                if self.topic.config.cleantail_unholdable_policy == "fail":
                    raise
            self.table.drop_branches([branch, branch + AGAIN])
            left_out = leave_out(self.table, frames.records(plan, known, UNHELD), self.now_ms)
            fresh = write_fresh(self.table, branch, frames.records(plan, known, HELD), planned.source.name)
            return replace(fresh, left_out=left_out)
        except CleantailError:
            raise
        except Exception:
            # what Spark and Iceberg say of a snapshot that is gone is different for each way to read one
            self._require_kept(planned.source, plan)
            raise

    def _require_kept(self, source: SourceTable, plan: SnapshotPlan) -> None:
        """Raises SourceError where a snapshot of the plan is not there any more."""
        lost = lost_of(plan, source, described_source(self.topic))
        if lost is not None:
            raise SourceError(
                f"snapshot {lost} of {source.name} expired while it was read; nothing was appended"
            ) from None

    def _position(
        self, planned: PlannedRead, plan: SnapshotPlan, fresh: FreshRecords, read_id: str
    ) -> SnapshotPosition:
        source, before = planned.source, planned.at.position
        ends = dict(before.next_offsets) if before else {}
        came = ((partition, end) for partition, (_, end) in fresh.came.items())
        left_out = ((entry.partition, entry.last_offset + 1) for entry in fresh.left_out)
        for partition, end in (*came, *left_out):
            ends[partition] = max(ends.get(partition, 0), end)
        return SnapshotPosition(
            catalog=source.catalog,
            table=source.table,
            table_uuid=source.uuid,
            branch=source.branch,
            snapshot_id=plan.end.snapshot_id,
            snapshot_ms=plan.end.at_ms,
            next_offsets=dict(sorted(ends.items())),
            read_id=read_id,
            read_at_ms=self.now_ms,
            gaps=(*(before.gaps if before else ()), *plan.gaps),
        )

    def _require_unchanged(self, planned: PlannedRead) -> None:
        """Raises SourceError where the source was recreated while it was read: records of two tables may be staged."""
        now = described_source(self.topic)
        if now.uuid != planned.source.uuid:
            raise SourceError(f"{now.name} was recreated while it was read; nothing was appended")

    def _sources(
        self, planned: PlannedRead, plan: SnapshotPlan, fresh: FreshRecords, states: dict[int, PartitionState]
    ) -> Sources:
        """Returns what is needed to take the ingestion back."""
        spans = dict(sorted(fresh.records.ranges.items()))
        ends = {p: states.get(p, PartitionState()).log_end_offset for p in spans}
        return Sources((), ends, TableRead(spans, planned.at.text, planned.source.name, plan.end.snapshot_id))

    @property
    def _cores(self) -> int:
        return int(self.table.spark.sparkContext.defaultParallelism)
