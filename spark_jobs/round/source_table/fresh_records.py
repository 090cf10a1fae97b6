"""The records of a read, on a branch where no reader sees them, and of these only what the topic's table has not.

1. Spark writes them log by log, in offset order, each once (`once_each`).
2. Where the table has files with offsets between theirs, both are compared: a record that differs from the table's is
   refused, and one that the table has already, hidden ones included, is left out. Then what is left is written anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cleantail.config.topic_table import COLUMNS, OFFSET, PARTITION
from cleantail.errors import ContradictionError
from cleantail.log.partition_state import LeftOut
from cleantail.log.rules import OTHERS
from spark_jobs.engine.transforms.spans import span_condition
from spark_jobs.iceberg.tables import DELETED, TopicTable
from spark_jobs.round.intake.new_records import NO_RECORDS, NewRecords, Ranges
from spark_jobs.round.intake.staged_records import contradictions_of, overlaps_of, staged_on
from spark_jobs.round.source_table.guards import raised
from spark_jobs.round.source_table.once_each import once_each

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
