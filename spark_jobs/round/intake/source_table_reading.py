"""Append new records of a topic's source table to its own table, in portions of one commit each.

1. The plan of new snapshots needs only metadata, without Spark (cleantail.log.snapshot_plan).
2. Spark reads the files of these snapshots and writes the records to a branch of the topic's own table. They are
   ordered by log and offset, and each is written once (`once_each`).
3. If the table has files with offsets in the same range, the records are compared. A record that differs from the
   table's is refused. If the table already has some of the records, even hidden ones, only the others are written
   again.
4. One commit adds the records to `main` and advances the position. It fails if the position changed meanwhile.
5. If another ingestion was faster, the portion is planned again from the new position. The source is never changed.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cleantail.codec import FORMAT
from cleantail.config.topic import Topic
from cleantail.config.topic_table import COLUMNS, OFFSET, PARTITION
from cleantail.config.unholdable import HELD, UNHELD
from cleantail.errors import CleantailError, SourceError, UnholdableError
from cleantail.home.home_folder import exclusive
from cleantail.lake.pending_input import PlannedRead, described_source, own_position, planned_read, table_source_of
from cleantail.log.log_state import late_warnings
from cleantail.log.partition_state import LeftOut, PartitionState, states_of_properties
from cleantail.log.snapshot_plan import SnapshotPlan, lost_of
from cleantail.log.source_position import PROPERTY_SNAPSHOT_POSITION, SnapshotGap, SnapshotPosition
from cleantail.retries import ROUNDS
from cleantail.rounds.commit_summaries import OPERATION
from cleantail.rounds.evidence_row import EvidenceRow
from cleantail.rounds.past_ingestions import INGEST, SOURCES, Sources, TableRead
from cleantail.rounds.past_rounds import GAP, PUBLISHED
from cleantail.rounds.station_results import OffsetRange, TableIngestResult
from spark_jobs.engine.workers.environment import require_workers
from spark_jobs.iceberg.commits import Advance, append_and_advance
from spark_jobs.iceberg.java_calls import texts
from spark_jobs.iceberg.tables import DELETED, Spans, TopicTable, branch_name, span_condition
from spark_jobs.round.evidence import append_once
from spark_jobs.round.intake.denylist import Denylist, SideRows, left_out_by
from spark_jobs.round.intake.new_records import (
    NO_RECORDS,
    NewRecords,
    leave_out,
    overlaps_of,
    record_left_out,
    require_agreement,
    staged_on,
)
from spark_jobs.round.intake.record_batches import task_errors
from spark_jobs.round.intake.source_frames import SessionTable, SourceFrames, once_each, raised
from spark_jobs.round.latest_view import ensure_latest_view
from spark_jobs.round.released_logs import note_before_intake


@dataclass(frozen=True, slots=True)
class TablePortion:
    """The result of one commit of a read, up to a snapshot of the source. `gaps`: snapshots without records to read.
    `last`: the read is complete."""

    snapshot_id: int
    records: int
    ranges: Spans
    gaps: tuple[SnapshotGap, ...] = ()
    warnings: tuple[str, ...] = ()
    last: bool = False


def read_result(topic: Topic, portions: Sequence[TablePortion]) -> TableIngestResult:
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
    """Append the gaps of the table's position that the evidence lacks, so that a crash after their commit loses no
    row. A row has no partition, because the partition of the lost records is unknown."""
    common: EvidenceRow = {"round": "", "kind": GAP, "outcome": PUBLISHED}
    rows = [common | {"note": g.text, "now_ms": g.at_ms, "base_snapshot_id": g.snapshot_id} for g in gaps]
    append_once(table, rows, identified_by=("base_snapshot_id", "note"))


AGAIN = "_again"
"""Suffix of the second branch's name."""


@dataclass(frozen=True, slots=True)
class FreshRecords:
    """The new records of a read.

    came      offsets of all records from the source, including records that the table already had
    left_out  records that the table cannot hold
    """

    records: NewRecords
    came: Spans
    left_out: tuple[LeftOut, ...] = ()


def write_fresh(table: TopicTable, branch: str, frame: DataFrame, source: str, denylist: Denylist) -> FreshRecords:
    """Write the records to the branch. If the table has some of them, write the others to the branch with suffix AGAIN.

    `source`: name of the source for people. Raises SourceError for a record that no table can hold, and
    ContradictionError for two different records at an offset."""
    frame, behind = denylist.without_erased(frame)
    records = _written(table, branch, once_each(frame), source)
    left_out = left_out_by(behind.erased, int(time.time() * 1000))
    require_agreement(table, branch, records, source, "is the source of another topic?")
    overlaps = overlaps_of(table, table.load(), records.ranges)
    if not overlaps:
        return FreshRecords(records, records.ranges, left_out)
    staged, there = staged_on(table, table.load(), branch).select(*COLUMNS), _there(table, overlaps)
    if staged.where(span_condition(overlaps)).join(there, [PARTITION, OFFSET], "left_semi").isEmpty():
        return FreshRecords(records, records.ranges, left_out)
    fresh = once_each(staged.join(there, [PARTITION, OFFSET], "left_anti"))
    return FreshRecords(_written(table, branch + AGAIN, fresh, source), records.ranges, left_out)


def _written(table: TopicTable, branch: str, frame: DataFrame, source: str) -> NewRecords:
    with task_errors(lambda e: raised(str(e), source)):
        return NewRecords.by_spark(table, branch, frame, SideRows())


def _there(table: TopicTable, overlaps: Spans) -> DataFrame:
    """Return partition and offset of the table's records in the ranges, including hidden records."""
    records = table.with_hidden_at(int(table.load().currentSnapshot().snapshotId())).where(span_condition(overlaps))
    # Iceberg returns deleted records only if the query reads the column DELETED.
    return records.where(F.col(DELETED) | (F.col(OFFSET) >= 0)).select(PARTITION, OFFSET)


logger = logging.getLogger("cleantail.source_table")
Progress = Callable[[str], None]


def read_source_table(
    spark: SparkSession, topic: Topic, now_ms: int, progress: Progress, lock_within_s: float | None = None
) -> TableIngestResult:
    """Read the source table to its newest snapshot. `lock_within_s`: as in ingest_files.

    Raises CleantailError, and errors of Spark. The current portion then appends nothing. A new table stays, because
    another ingestion may have filled it."""
    with exclusive(topic.platform.home, f"ingest-{topic.topic}", lock_within_s):
        progress("reading the source table's metadata")
        # report problems before creating a table
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
    table: TopicTable
    now_ms: int

    @property
    def topic(self) -> Topic:
        return self.table.topic

    def run(self, progress: Progress) -> list[TablePortion]:
        """Append all portions up to the newest snapshot. Raises CleantailError; committed portions stay."""
        context = self.table.spark.sparkContext
        require_workers(context, self.table.platform, int(context.defaultParallelism))
        position = own_position(self.topic).position
        record_changes(self.table, position.gaps if position else ())
        record_left_out(self.table, texts(self.table.load().properties()))
        portions: list[TablePortion] = []
        while portion := self._portion(progress):
            portions.append(portion)
            if portion.last:
                break
        return portions

    def _portion(self, progress: Progress) -> TablePortion | None:
        """Append the next portion. Plans it again if another ingestion was faster. Returns None if none is left."""
        return ROUNDS.run(
            lambda: self._try_portion(progress),
            lambda tries, e: logger.info("another ingestion overtook attempt %s, planning again: %s", tries, e),
        )

    def _try_portion(self, progress: Progress) -> TablePortion | None:
        planned = planned_read(self.topic, self.now_ms)
        if planned.plan is None:
            return None
        progress(f"reading up to snapshot {planned.plan.end.snapshot_id}")
        portion = self._appended(planned, planned.plan, progress)
        record_changes(self.table, planned.plan.gaps)
        record_left_out(self.table, texts(self.table.load().properties()))
        return portion

    def _appended(self, planned: PlannedRead, plan: SnapshotPlan, progress: Progress) -> TablePortion:
        read_id = uuid.uuid4().hex
        branch = branch_name(f"in_{read_id[:16]}_{os.getpid()}")
        try:
            denylist = Denylist.of(self.table)
            fresh = self._fresh(planned, plan, branch, denylist)
            position = self._position(planned, plan, fresh, read_id)
            states = states_of_properties(texts(self.table.load().properties()), self.table.name)
            late = late_warnings(fresh.records.lowest, states, self.topic.config)
            # If the source was recreated, records of two tables may be staged.
            if (now := described_source(self.topic)).uuid != planned.source.uuid:
                raise SourceError(f"{now.name} was recreated while it was read; nothing was appended")
            progress("committing")
            at, spans = planned.at, dict(sorted(fresh.records.ranges.items()))
            ends = {p: states.get(p, PartitionState()).log_end_offset for p in spans}
            sources = Sources((), ends, TableRead(spans, at.text, planned.source.name, plan.end.snapshot_id))
            summary = {OPERATION: INGEST, SOURCES: sources.packed()}
            advance = Advance(
                at.text,
                position.as_json(),
                summary,
                at.snapshot_id,
                PROPERTY_SNAPSHOT_POSITION,
                fresh.left_out,
                denylist.version,
                (branch, branch + AGAIN),
            )
            append_and_advance(self.table, fresh.records.files, advance)
        except BaseException:
            self.table.drop_branches([branch, branch + AGAIN])
            raise
        warnings = (*late, *(entry.text for entry in fresh.left_out))
        return TablePortion(plan.end.snapshot_id, fresh.records.count, fresh.came, plan.gaps, warnings, plan.is_last)

    def _fresh(self, planned: PlannedRead, plan: SnapshotPlan, branch: str, denylist: Denylist) -> FreshRecords:
        if not plan.brings_records:  # only rewrites of files
            return FreshRecords(NO_RECORDS, {})
        source = table_source_of(self.topic)
        known = planned.at.position.next_offsets if planned.at.position else {}
        try:
            table = SessionTable.of(self.table.spark, source, self.table.platform)
            frames = SourceFrames.of(table, table.load(planned.source.uuid), source.columns)
            try:
                return write_fresh(self.table, branch, frames.records(plan, known), planned.source.name, denylist)
            except UnholdableError:
                if self.topic.config.cleantail_unholdable_policy == "fail":
                    raise
            self.table.drop_branches([branch, branch + AGAIN])
            left_out = leave_out(self.table, frames.records(plan, known, UNHELD), denylist, self.now_ms)
            fresh = write_fresh(self.table, branch, frames.records(plan, known, HELD), planned.source.name, denylist)
            return replace(fresh, left_out=(*left_out, *fresh.left_out))
        except CleantailError:
            raise
        except Exception:
            # Spark and Iceberg have different errors for an expired snapshot.
            lost = lost_of(plan, planned.source, described_source(self.topic))
            if lost is not None:
                raise SourceError(
                    f"snapshot {lost} of {planned.source.name} expired while it was read; nothing was appended"
                ) from None
            raise

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
            version=FORMAT,
        )
