"""Compare the new records of an ingestion with the table before they are appended.

1. New records are in data files that no reader sees yet. The files' metadata shows which offsets the table may share.
   If all new offsets are above the table's, no record is read.
2. Records that a round has hidden are compared too, as long as their data files exist (semantics.md 3.5). This detects
   a recreated topic, because most records at the first offsets were superseded long ago.
3. A record that a topic's table cannot hold goes to a side table and is counted (`cleantail.unholdable.policy`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cleantail.config.input_limits import InputLimits
from cleantail.config.topic_table import UNHOLDABLE_SUFFIX
from cleantail.errors import CleantailError, ContradictionError
from cleantail.log.partition_state import LeftOut, left_out_of
from cleantail.log.rules import OTHERS, Contradiction, refusal
from cleantail.log.source_position import Gap, read_position_of
from cleantail.rounds.evidence_row import DELETED_JSON, EvidenceRow
from cleantail.rounds.past_rounds import GAP, PUBLISHED
from cleantail.sources.kcat import read_records
from spark_jobs.engine.contradictions import all_candidates, contradictions_in, with_parts
from spark_jobs.iceberg.iceberg_reads import added_by, asked_again, partition_of, tasks_of
from spark_jobs.iceberg.java_calls import each
from spark_jobs.iceberg.snapshot_files import are_few, offset_bounds
from spark_jobs.iceberg.tables import Spans, TopicTable, span_condition, span_expression
from spark_jobs.round.evidence import append_once
from spark_jobs.round.intake.denylist import Denylist, Erased, SideRows, left_out_by, merged
from spark_jobs.round.intake.record_batches import UNHELD_COLUMNS
from spark_jobs.round.intake.record_files import WrittenLog, data_files, delete_written

SAME = ["partition", "offset", "timestamp_ms", "reason"]
"""Columns that identify a record of the side table."""


def leave_out(table: TopicTable, unheld: DataFrame, denylist: Denylist, now_ms: int) -> tuple[LeftOut, ...]:
    """Copy these records to the side table, if that is the policy, and return their counts.

    Records of erased keys are only counted. The copy precedes the commit that advances the position. After a crash in
    between, the next ingestion finds the records again, and copies only records that the side table lacks.
    """
    unheld, behind = denylist.without_erased(unheld)
    policy = table.topic.config.cleantail_unholdable_policy
    assert policy != "fail", "the first such record raised an error"
    if policy == "quarantine":
        name = f"{table.name[:-1]}{UNHOLDABLE_SUFFIX}`"
        columns = ", ".join(f"`{column}` {kind}" for column, kind in UNHELD_COLUMNS.items())
        table.ensure_side_table(name, columns, "'format-version'='3'")
        held = asked_again(lambda: table.spark.table(name)).select(*SAME)
        same = [F.col(f"new.{column}").eqNullSafe(F.col(f"held.{column}")) for column in SAME]
        fresh = unheld.dropDuplicates(SAME).alias("new").join(held.alias("held"), same, "left_anti")
        table.append_rows(name, fresh, partial(denylist.require_known, table))
    counts = unheld.groupBy("partition", "reason").agg(
        F.countDistinct("offset").alias("records"), F.min("offset").alias("first"), F.max("offset").alias("last")
    )
    left_out = sorted(
        LeftOut(row["partition"], row["first"], row["last"], row["records"], row["reason"], policy, now_ms)
        for row in counts.collect()
    )
    return (*left_out, *left_out_by(behind.erased, now_ms))


def record_gaps(table: TopicTable, entries: Sequence[Gap | LeftOut]) -> None:
    """Append entries that the evidence lacks: offsets missing from Kafka, and records that the table cannot hold. They
    are in the table's properties since the same commit, so a crash after it loses no row."""
    columns = ("partition", "first_dirty_offset", "end_offset", "note")
    append_once(table, [_row(entry) for entry in entries], identified_by=columns)


def record_left_out(table: TopicTable, properties: Mapping[str, str]) -> None:
    """Append to the evidence the missing entries of records that were left out, from the table's properties."""
    record_gaps(table, left_out_of(properties, table.name))


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
    return of_entry | {
        "first_dirty_offset": entry.first_offset,
        "end_offset": entry.last_offset + 1,
        "deleted": DELETED_JSON.text({entry.counted_as: entry.records}),
    }


def require_one_record_an_offset(
    table: TopicTable, branch: str, records: NewRecords, files: list[Path], encoding: str, limits: InputLimits
) -> Spans:
    """Raise ContradictionError, with the records' files, if two records at one offset differ.

    Compares new records with each other and with the table's. Returns the offset ranges that the table's files share
    with the new records."""
    contradictions, overlaps = contradictions_of(table, branch, records)
    if contradictions:
        first = contradictions[0]
        holders = files_with(table, files, encoding, limits, first.partition, first.first_offset)
        raise ContradictionError(refusal(contradictions, holders), contradictions)
    return overlaps


def require_agreement(table: TopicTable, branch: str, records: NewRecords, source: str, question: str) -> None:
    """Raise ContradictionError if a record differs from the table's at its offset. `source`: its name for people.
    `question`: text about the likely cause."""
    contradictions, _ = contradictions_of(table, branch, records)
    if not contradictions:
        return
    first = contradictions[0]
    raise ContradictionError(
        f"{source}: partition {first.partition}, offset {first.first_offset}: {OTHERS[first.other]}: "
        f"{first.difference}; nothing was appended. An offset has one record: {question} See "
        '"Two different records at one offset" in docs/operations.md',
        contradictions,
    )


def contradictions_of(table: TopicTable, branch: str, records: NewRecords) -> tuple[list[Contradiction], Spans]:
    """Return, by log, different records at one offset, with at least one new record; and the result of overlaps_of.

    Reads no record if each offset occurs once and the table has no file with such offsets. Otherwise Spark reads the
    new files, which are in no commit yet if tasks wrote them.
    """
    iceberg = table.load()
    there = files_between(table, iceberg, records.ranges)
    overlaps = _shared(table, iceberg, there, records.ranges)
    if records.once and not overlaps:
        return [], overlaps
    few = are_few((int(file.recordCount()), int(file.fileSizeInBytes())) for file in (*records.files, *there))
    if not records.written:
        return contradictions_in(_compared(table, staged_on(table, iceberg, branch), overlaps), few), overlaps
    with table.reading(iceberg, tasks_of(table.jvm, iceberg, records.files)) as new:
        return contradictions_in(_compared(table, new, overlaps), few), overlaps


def require_below_position(table: TopicTable, properties: Mapping[str, str], ranges: Spans) -> None:
    """Raise CleantailError if files have records that Kafka or the source table will still deliver.

    Below the position, files may fill gaps. If files are the topic's source again, they may continue beyond the
    position."""
    source = table.topic.source
    position = read_position_of(properties, table.topic.table)
    if source.table is not None and position is None and ranges:
        raise CleantailError(
            f"topic {table.topic.topic} is read from {source.table.name}, and has read nothing yet: records of files "
            "would prevent its first read; nothing was appended"
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


def _compared(table: TopicTable, new: DataFrame, overlaps: Spans) -> DataFrame:
    """Return the new records, and the table's records in the overlaps, including hidden ones."""
    candidates = all_candidates(new)
    if not overlaps:
        return candidates
    here = table.with_hidden_at(int(table.load().currentSnapshot().snapshotId())).where(span_condition(overlaps))
    return candidates.unionByName(with_parts(here, F.lit(True)))


def staged_on(table: TopicTable, iceberg: Any, branch: str) -> DataFrame:
    """Return the records that the branch's only commit appended. The branch also has the records of `main`."""
    head = iceberg.snapshot(branch)
    span = {"start-snapshot-id": str(head.parentId()), "end-snapshot-id": str(head.snapshotId())}
    return table.spark.read.options(**span).table(table.name)


def overlaps_of(table: TopicTable, iceberg: Any, staged: Spans) -> Spans:
    return _shared(table, iceberg, files_between(table, iceberg, staged), staged)


def files_between(table: TopicTable, iceberg: Any, staged: Spans) -> list[Any]:
    """Return the table's data files that may have offsets in the staged ranges, by Iceberg's manifests."""
    if iceberg.currentSnapshot() is None or not staged:
        return []
    tasks = (
        iceberg.newScan().filter(span_expression(table.jvm, sorted(staged.items()))).includeColumnStats().planFiles()
    )
    try:
        return [task.file() for task in each(tasks)]
    finally:
        tasks.close()


def _shared(table: TopicTable, iceberg: Any, files: list[Any], staged: Spans) -> Spans:
    there = ranges_of(table, iceberg, files)
    shared = {p: (max(low, staged[p][0]), min(end, staged[p][1])) for p, (low, end) in there.items() if p in staged}
    return {p: (low, end) for p, (low, end) in shared.items() if low < end}


def files_with(
    table: TopicTable, files: list[Path], encoding: str, limits: InputLimits, partition: int, offset: int
) -> list[Path]:
    """Return the files that have a record at the offset. One task reads one file."""

    def holders(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch.column(0).to_pylist():
                records = read_records(Path(path), encoding, limits=limits)
                if any((r.partition, r.offset) == (partition, offset) for r in records):
                    yield pa.RecordBatch.from_pydict({"path": [path]})

    paths = table.spark.createDataFrame([(str(f),) for f in files], "path string").repartition(len(files))
    names = {row["path"] for row in paths.mapInArrow(holders, "path string").collect()}
    return [file for file in files if str(file) in names]


@dataclass(frozen=True, slots=True)
class NewRecords:
    """New records in data files.

    files    Iceberg's `DataFile` objects
    once     whether each offset is known to occur once
    written  files that tasks wrote; empty if Spark wrote them to a branch
    erased   records that were left out, because their keys were erased
    """

    files: tuple[Any, ...]
    ranges: Spans
    once: bool
    written: tuple[WrittenLog, ...] = ()
    erased: Erased = field(default_factory=dict)

    @classmethod
    def of_tasks(cls, table: TopicTable, logs: Sequence[WrittenLog]) -> NewRecords:
        ranges: dict[int, tuple[int, int]] = {}
        erased: Erased = {}
        for log in logs:
            erased = merged(erased, log.erased)
            if log.files:
                low, end = ranges.get(log.partition, (log.low, log.high + 1))
                ranges[log.partition] = (min(low, log.low), max(end, log.high + 1))
        return cls(tuple(data_files(table, logs)), ranges, all(log.once for log in logs), tuple(logs), erased)

    @classmethod
    def by_spark(
        cls,
        table: TopicTable,
        branch: str,
        frame: DataFrame,
        behind: SideRows,
        sort: bool = False,
    ) -> NewRecords:
        """Let Spark append the records to a new branch. `behind`: records that the frame left out. `sort`: the records
        are in any order. Else each task has one log, in offset order, each offset once."""
        table.create_branch(branch, None)
        before = table.head_of(branch)
        table.append_to(branch, frame, as_it_is=not sort)
        iceberg = table.load()
        if table.head_of(branch, iceberg) == before:  # without records Spark makes no commit
            return replace(NO_RECORDS, erased=behind.erased)
        files = tuple(added_by(iceberg, branch))
        return cls(files, ranges_of(table, iceberg, files), not sort, erased=behind.erased)

    @property
    def count(self) -> int:
        return sum(int(file.recordCount()) for file in self.files)

    @property
    def lowest(self) -> dict[int, int]:
        return {partition: low for partition, (low, _) in self.ranges.items()}

    @contextmanager
    def deleted_on_error(self, table: TopicTable) -> Iterator[None]:
        """Delete files of tasks after an error in the block. Use this only before the files are committed to `main`."""
        try:
            yield
        except BaseException:
            delete_written(table, self.written)
            raise


NO_RECORDS = NewRecords((), {}, True)


def ranges_of(table: TopicTable, iceberg: Any, files: Iterable[Any]) -> dict[int, tuple[int, int]]:
    """Return partition -> [from, to) of offsets, by the bounds of the files."""
    ranges: dict[int, tuple[int, int]] = {}
    for file in files:
        low, high = offset_bounds(table.jvm, iceberg.schema(), file)
        before = ranges.get(partition_of(file), (low, high + 1))
        ranges[partition_of(file)] = (min(before[0], low), max(before[1], high + 1))
    return ranges
