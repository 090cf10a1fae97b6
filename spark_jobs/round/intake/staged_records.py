"""Says what an ingestion brings, compared with what the table has at the same offsets before anything is appended.

Which offsets those are is told by the files' metadata: where records only follow on what is there, none is read.
Records that a round has hidden count as well, as long as their data files are there (semantics.md 3.5): the first
offsets of a topic that was recreated are mostly of records that were superseded long ago.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cleantail.config.input_limits import InputLimits
from cleantail.config.topic_table import OFFSET, PARTITION
from cleantail.errors import CleantailError, ContradictionError
from cleantail.log.rules import Contradiction, refusal
from cleantail.log.source_position import read_position_of
from cleantail.sources.kcat import read_records
from spark_jobs.engine.late_contradictions import all_candidates, contradictions_in, with_parts
from spark_jobs.engine.transforms.spans import span_condition
from spark_jobs.iceberg.few_records import are_few
from spark_jobs.iceberg.iceberg_reads import texts
from spark_jobs.iceberg.jvm.java_collections import each
from spark_jobs.iceberg.jvm.manifest_threads import scanning
from spark_jobs.iceberg.jvm.many_calls import ask, facts_of
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.intake.new_records import NewRecords, Ranges, ranges_of


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
