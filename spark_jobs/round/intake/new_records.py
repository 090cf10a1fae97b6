"""The records that an ingestion brings, compared with what the table has before anything is appended.

1. They are data files that no reader sees yet. The files' metadata tells which offsets they share with the table's.
   Where records only follow on what is there, none is read.
2. Records that a round has hidden count as well, as long as their data files are there (semantics.md 3.5): the first
   offsets of a topic that was recreated are mostly of records that were superseded long ago.
3. A record that a topic's table cannot hold goes to its side table, and is counted (`cleantail.unholdable.policy`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cleantail.config.input_limits import InputLimits
from cleantail.config.topic_table import OFFSET, PARTITION, UNHOLDABLE_SUFFIX
from cleantail.errors import CleantailError, ContradictionError, UnknownCommitError
from cleantail.log.partition_state import DELETED_REASON, LeftOut, left_out_of
from cleantail.log.rules import Contradiction, refusal
from cleantail.log.source_position import Gap, read_position_of
from cleantail.rounds.evidence_row import DELETED_JSON, EvidenceRow
from cleantail.rounds.past_rounds import GAP, PUBLISHED
from cleantail.sources.kcat import read_records
from spark_jobs.engine.contradictions import all_candidates, contradictions_in, with_parts
from spark_jobs.iceberg.commits import append_to_branch
from spark_jobs.iceberg.iceberg_reads import added_data_files, partition_of, texts
from spark_jobs.iceberg.jvm.java_collections import each
from spark_jobs.iceberg.jvm.manifest_threads import scanning
from spark_jobs.iceberg.jvm.many_calls import ask, facts_of
from spark_jobs.iceberg.snapshot_files import are_few, offset_bounds
from spark_jobs.iceberg.tables import TopicTable, span_condition
from spark_jobs.round.evidence import append_once
from spark_jobs.round.intake.record_batches import UNHELD_COLUMNS
from spark_jobs.round.intake.record_files import WrittenLog, data_files, delete_written

SAME = ["partition", "offset", "timestamp_ms", "reason"]
"""What tells a record of the side table from the others."""


def leave_out(table: TopicTable, unheld: DataFrame, now_ms: int) -> tuple[LeftOut, ...]:
    """Moves these records to the side table, if that is the policy, and returns what they are.

    They are moved before the commit that goes on behind them. After a crash between the two the next ingestion finds
    them again, and leaves out what is in the side table already.
    """
    policy = table.topic.config.cleantail_unholdable_policy
    assert policy != "fail", "the first such record has raised an error"
    if policy == "quarantine":
        name = f"{table.name[:-1]}{UNHOLDABLE_SUFFIX}`"
        columns = ", ".join(f"`{column}` {kind}" for column, kind in UNHELD_COLUMNS.items())
        table.ensure_side_table(name, columns, "'format-version'='3'")
        held = table.spark.table(name).select(*SAME)
        same = [F.col(f"new.{column}").eqNullSafe(F.col(f"held.{column}")) for column in SAME]
        fresh = unheld.dropDuplicates(SAME).alias("new").join(held.alias("held"), same, "left_anti")
        table.append_beside(name, fresh)
    counts = unheld.groupBy("partition", "reason").agg(
        F.countDistinct("offset").alias("records"), F.min("offset").alias("first"), F.max("offset").alias("last")
    )
    return tuple(
        sorted(
            LeftOut(row["partition"], row["first"], row["last"], row["records"], row["reason"], policy, now_ms)
            for row in counts.collect()
        )
    )


def record_gaps(table: TopicTable, entries: Sequence[Gap | LeftOut]) -> None:
    """Appends to the evidence a row for each of these that it does not have yet: offsets that had gone from Kafka, and
    records that the table cannot hold. The table has them since the commit that went on behind them: a crash right
    after it loses no row."""
    columns = ("partition", "first_dirty_offset", "end_offset", "note")
    append_once(table, [_row(entry) for entry in entries], identified_by=columns)


def record_left_out(table: TopicTable) -> None:
    """Does the same of what the table's properties say was left out."""
    record_gaps(table, left_out_of(texts(table.load().properties()), table.name))


def _row(entry: Gap | LeftOut) -> EvidenceRow:
    of_entry: EvidenceRow = {
        "round": "",
        "kind": GAP,
        "outcome": PUBLISHED,
        "note": entry.text,
        "now_ms": entry.at_ms,
        "partition": entry.partition,
    }
    if isinstance(entry, Gap):
        return of_entry | {"first_dirty_offset": entry.from_offset, "end_offset": entry.to_offset}
    deleted = DELETED_JSON.text({DELETED_REASON: entry.records})
    return of_entry | {
        "first_dirty_offset": entry.first_offset,
        "end_offset": entry.last_offset + 1,
        "deleted": deleted,
    }


def require_one_record_an_offset(
    table: TopicTable, branch: str, records: NewRecords, files: list[Path], encoding: str, limits: InputLimits
) -> None:
    """Raises ContradictionError, naming the files that the records are of, where one differs from another one of its
    offset, that comes with it or is in the table."""
    contradictions = contradictions_of(table, branch, records)
    if contradictions:
        first = contradictions[0]
        holders = files_with(table, files, encoding, limits, first.partition, first.first_offset)
        raise ContradictionError(refusal(contradictions, holders), contradictions)


def contradictions_of(table: TopicTable, branch: str, records: NewRecords) -> list[Contradiction]:
    """Returns by log where a record differs from another one of its offset, that comes with it or is in the table.

    Nothing is read where each offset comes once and the table has no file with such offsets. Else the records are
    staged on the branch, for Spark.
    """
    iceberg = table.load()
    there = files_between(table, iceberg, records.ranges)
    overlaps = _shared(table, iceberg, there, records.ranges)
    if records.once and not overlaps:
        return []
    records.stage(table, branch)
    sizes = facts_of([*records.files, *there], "recordCount", "fileSizeInBytes")
    few = are_few((int(count), int(size)) for count, size in sizes)
    return contradictions_in(_compared(table, branch, overlaps), few)


def require_below_position(table: TopicTable, ranges: Ranges) -> None:
    """Raises CleantailError where a table that is read from Kafka, or from a table, would get records of a file that
    are still to come from there, and so twice. Below its position files may fill in what is missing, and where the
    source is files again they go on beyond it."""
    source = table.topic.source
    position = read_position_of(texts(table.load().properties()), table.topic.table)
    if source.table is not None and position is None and ranges:
        raise CleantailError(
            f"topic {table.topic.topic} is read from {source.table.name}, and has read nothing yet: with records of "
            "files in it that could not begin; nothing was appended"
        )
    if position is None or (source.kafka is None and source.table is None):
        return
    origin = "Kafka" if source.kafka else "its source table"
    for partition, (_, end) in sorted(ranges.items()):
        if end > (next_offset := position.next_offsets.get(partition, 0)):
            raise CleantailError(
                f"topic {table.topic.topic} is read from {origin}, up to offset {next_offset} of partition "
                f"{partition}: the files have records up to {end - 1}, which would come a second time; nothing was "
                "appended"
            )


def _compared(table: TopicTable, branch: str, overlaps: Ranges) -> DataFrame:
    """Returns the staged records and, where their offsets overlap with the table's, those of the table, hidden ones
    too."""
    iceberg = table.load()
    staged = all_candidates(staged_on(table, iceberg, branch))
    if not overlaps:
        return staged
    here = table.with_hidden_at(int(iceberg.currentSnapshot().snapshotId())).where(span_condition(overlaps))
    return staged.unionByName(with_parts(here, F.lit(True)))


def staged_on(table: TopicTable, iceberg: Any, branch: str) -> DataFrame:
    """Returns the records that the branch's one commit appended: the branch itself begins with all that `main` has."""
    head = iceberg.snapshot(branch)
    span = {"start-snapshot-id": str(head.parentId()), "end-snapshot-id": str(head.snapshotId())}
    return table.spark.read.options(**span).table(table.name)


def overlaps_of(table: TopicTable, iceberg: Any, staged: Ranges) -> Ranges:
    """Returns where the table has files with offsets between those that are staged."""
    return _shared(table, iceberg, files_between(table, iceberg, staged), staged)


def files_between(table: TopicTable, iceberg: Any, staged: Ranges) -> list[Any]:
    """Returns the table's data files that may have offsets between those that are staged: Iceberg prunes by its
    manifests."""
    if iceberg.currentSnapshot() is None or not staged:
        return []
    tasks = scanning(iceberg).filter(_inside(table, sorted(staged.items()))).includeColumnStats().planFiles()
    try:
        return ask(each(tasks), "file")
    finally:
        tasks.close()


def _shared(table: TopicTable, iceberg: Any, files: list[Any], staged: Ranges) -> Ranges:
    """Returns where the offsets of the files lie between those that are staged."""
    there = ranges_of(table, iceberg, files)
    shared = {p: (max(low, staged[p][0]), min(end, staged[p][1])) for p, (low, end) in there.items() if p in staged}
    return {p: (low, end) for p, (low, end) in shared.items() if low < end}


def _inside(table: TopicTable, ranges: list[tuple[int, tuple[int, int]]]) -> Any:
    """Iceberg's expression, by halves: of thousands of logs one in the other would be too deep."""
    expressions = table.jvm.org.apache.iceberg.expressions.Expressions
    if len(ranges) > 1:
        half = len(ranges) // 2
        return getattr(expressions, "or")(_inside(table, ranges[:half]), _inside(table, ranges[half:]))
    ((partition, (low, end)),) = ranges
    both = getattr(expressions, "and")
    span = both(expressions.greaterThanOrEqual(OFFSET, low), expressions.lessThan(OFFSET, end))
    return both(expressions.equal(PARTITION, partition), span)


def files_with(
    table: TopicTable, files: list[Path], encoding: str, limits: InputLimits, partition: int, offset: int
) -> list[Path]:
    """Returns those of the files that have a record at the offset; one task reads one file."""

    def holders(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch.column(0).to_pylist():
                records = read_records(Path(path), encoding, limits=limits)
                if any((r.partition, r.offset) == (partition, offset) for r in records):
                    yield pa.RecordBatch.from_pydict({"path": [path]})

    paths = table.spark.createDataFrame([(str(f),) for f in files], "path string").repartition(len(files))
    names = {row["path"] for row in paths.mapInArrow(holders, "path string").collect()}
    return [file for file in files if str(file) in names]


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
