"""Find different records at one offset: in the part that a round reads, in the spans of an expiry, in a whole topic.

1. A compaction compares the live records of its dirty part that share an offset.
2. A compaction also compares late records with those that earlier rounds have hidden at the same offsets.
3. An expiry compares in the spans of due tombstones: a removed one must not have hidden another record. The comparison
   runs only if the check's tasks found an offset twice, or if a log has several tasks: these do not compare with each
   other.
4. A proof of the topic compares everything that readers see.
5. If there are many records, values are read only if an offset occurs twice, and only in the range of such offsets. If
   there are few (spark_jobs.iceberg.snapshot_files), one task compares them with their values at once.
6. Records are compared by digests (cleantail.log.rules). The shuffle sends the SHA-256 of a value of any length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import dropwhile
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cleantail.config.topic_table import HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, VALUE
from cleantail.log.horizons import spans_of
from cleantail.log.partition_state import PartitionState
from cleantail.log.round_state import late_spans
from cleantail.log.rules import CANDIDATE, COMPARED, HIDDEN, LIVE, Contradiction
from cleantail.log.work_units import PartitionWork, WorkUnit
from cleantail.rounds.commit_summaries import BEFORE, OPERATION, logs_of
from spark_jobs.iceberg.iceberg_reads import history
from spark_jobs.iceberg.snapshot_files import SnapshotFiles, are_few
from spark_jobs.iceberg.tables import DELETED, TopicTable, span_condition

PART = "part"
COLUMNS = (PARTITION, OFFSET, *COMPARED, PART)


def spans_twice(records: DataFrame) -> DataFrame:
    """Return (partition, low, high): each log's range of the candidates' repeated offsets, rounded to 64. Reads neither
    keys nor values."""
    bits = F.bit_or(F.expr(f"shiftleft(1L, cast(`{OFFSET}` & 63 AS int))")).alias("bits")
    bits_of_offsets = records.groupBy(PARTITION, F.shiftright(OFFSET, 6).alias("word")).agg(
        F.count("*").alias("records"), bits, F.min(PART).alias(PART)
    )
    repeated = bits_of_offsets.where(f"records > bit_count(bits) AND {PART} = {CANDIDATE}").groupBy(PARTITION)
    return repeated.agg((F.min("word") * 64).alias("low"), (F.max("word") * 64 + 63).alias("high"))


def contradicting(records: DataFrame) -> DataFrame:
    """Return one row for each offset with two different records, if one is a candidate.

    Columns: partition, offset, for each of COMPARED whether they differ in it, and the highest part. `records`:
    COLUMNS.
    """
    digests = records.select(PARTITION, OFFSET, PART, *(_digest(name).alias(name) for name in COMPARED))
    by_offset = digests.groupBy(PARTITION, OFFSET).agg(
        *((F.min(name) != F.max(name)).alias(name) for name in COMPARED),
        F.max(PART).alias(PART),
        F.min(PART).alias("lowest_part"),
    )
    differ = reduce(or_, (F.col(name) for name in COMPARED))
    return by_offset.where((F.col("lowest_part") == CANDIDATE) & differ).drop("lowest_part")


def _digest(name: str) -> Column:
    """Return a text that is equal only for equal fields. A null has the empty text."""
    column = F.col(name)
    text = {
        KEY: F.sha2(column, 256),
        VALUE: F.sha2(column, 256),
        TIMESTAMP: F.unix_micros(column).cast("string"),
        HEADERS: F.sha2(F.to_json(F.coalesce(column, F.array())).cast("binary"), 256),
    }[name]
    return F.coalesce(text, F.lit(""))


def first_by_log(contradictions: DataFrame) -> DataFrame:
    """Return one row for each log with a contradiction: (partition, number of offsets, row of the lowest offset)."""
    first = F.min(F.struct(OFFSET, *COMPARED, PART))
    return contradictions.groupBy(PARTITION).agg(F.count("*").alias("offsets"), first.alias("first"))


Spans = Mapping[int, Sequence[tuple[int, int]]]
LateFiles = Sequence[tuple[int, int, Sequence[str]]]
"""Ranges [from, to) of a log's offsets that an earlier round has read, and the files that were added after it."""


def contradictions_in(records: DataFrame, few: bool = False) -> list[Contradiction]:
    """Return the contradictions in the order of the logs' numbers. `records`: COLUMNS.

    `few` records are compared by one plan of one task. Otherwise a plan reads offsets. Another plan reads keys and
    values only if an offset occurs twice.
    """
    if few:
        compared = records.coalesce(1)
    else:
        twice = {row[PARTITION]: (row["low"], row["high"] + 1) for row in spans_twice(records).collect()}
        if not twice:
            return []
        inside = records.where(span_condition(twice))
        by_offset = inside.groupBy(PARTITION, OFFSET).agg(F.count("*").alias("records"), F.min(PART).alias(PART))
        repeated = by_offset.where(f"records > 1 AND {PART} = {CANDIDATE}").select(PARTITION, OFFSET)
        compared = inside.join(repeated, [PARTITION, OFFSET], "left_semi")
    rows = first_by_log(contradicting(compared)).collect()
    return sorted((Contradiction.of_row(row.asDict()) for row in rows), key=lambda c: c.partition)


def all_candidates(records: DataFrame) -> DataFrame:
    return records.withColumn(PART, F.lit(CANDIDATE)).select(*COLUMNS)


def with_parts(records: DataFrame, passed: Column) -> DataFrame:
    """Mark the part of each record in a comparison.

    Deleted records are hidden. Others that an earlier round has read (`passed`) are live. The rest are candidates.
    `records`: with `_deleted`.
    """
    # not a literal: Spark would drop `_deleted`, and Iceberg returns deleted records only if that column is read
    part = F.when(F.col(DELETED), HIDDEN).when(passed, LIVE).otherwise(CANDIDATE)
    return records.withColumn(PART, part).select(*COLUMNS)


def late_files(table: TopicTable, unit: WorkUnit, work: PartitionWork, state: PartitionState) -> LateFiles:
    """Return the ranges of offsets that this round reads again, because files were added after an earlier round."""
    spans = ((*span, sequence_number) for *span, sequence_number in late_spans(work, state))
    ranges = [
        (low, high, table.files_after(unit.base_snapshot_id, work.partition, sequence_number))
        for low, high, sequence_number in spans
    ]
    return [(low, high, files) for low, high, files in ranges if files]


def of_round(
    table: TopicTable, unit: WorkUnit, late_by_log: Mapping[int, LateFiles], has_copies: bool, base: SnapshotFiles
) -> dict[int, Contradiction]:
    """Return the contradictions in the dirty part of a compaction.

    Live records are compared with each other. Late records are also compared with those that earlier rounds have hidden
    at the same offsets, as long as their files are kept. `has_copies`: an offset occurs twice among live records.
    `base`: the files that the round has read.

    A topic that was created again reuses the offsets of records that were removed long ago. Without the hidden records
    its new ones would count as late, and lose.
    """
    if has_copies:
        spans = {w.partition: [(w.first_dirty_offset, w.end_offset)] for w in unit.partitions}
    else:
        spans = {p: [(low, high) for low, high, _ in ranges] for p, ranges in late_by_log.items() if ranges}
    if not spans:
        return {}
    # the records that an earlier round has read, at offsets that this round reads again
    read_before = [
        (F.col(PARTITION) == p) & F.col(OFFSET).between(low, high - 1) & ~F.col("_file").isin(list(files))
        for p, ranges in late_by_log.items()
        for low, high, files in ranges
    ]
    passed = reduce(or_, read_before, F.lit(False))
    updated = _updated_since_round(table, late_by_log, unit.base_snapshot_id)
    records = table.with_hidden_at(unit.base_snapshot_id).where(_inside(spans))
    records = records.where(~F.col(DELETED) | (passed & ~F.col(PARTITION).isin(list(updated))))
    compared = with_parts(records, passed)
    for snapshot_id in set(updated.values()):
        of_logs = {p: span for p, span in spans.items() if updated.get(p) == snapshot_id}
        compared = compared.unionByName(with_parts(_hidden_by_rounds(table, snapshot_id, of_logs, passed), passed))
    return _by_log(compared, unit, base)


def _updated_since_round(table: TopicTable, logs: Iterable[int], base_snapshot_id: int) -> dict[int, int]:
    """Return partition -> snapshot of its last round, for logs that another engine had changed since, at the base.

    An UPDATE deletes a record and appends its successor at the same offset. If the round's snapshot expired, it is the
    oldest snapshot that is kept.
    """
    left, since, foreign = set(logs), dict[int, int](), False
    oldest = None
    commits = history(table.load()) if left else iter(())
    for commit in dropwhile(lambda commit: commit.snapshot_id != base_snapshot_id, commits):
        if commit.is_round and (text := commit.summary.get(BEFORE)):
            of_round = left & logs_of(text, f"{BEFORE} of snapshot {commit.snapshot_id}")
            since |= dict.fromkeys(of_round if foreign else (), commit.snapshot_id)
            left -= of_round
        if not left:
            return since
        foreign |= commit.operation in ("overwrite", "delete") and OPERATION not in commit.summary
        oldest = commit.snapshot_id
    return since | (dict.fromkeys(left, oldest) if foreign and oldest is not None else {})


def _hidden_by_rounds(table: TopicTable, snapshot_id: int, spans: Spans, passed: Column) -> DataFrame:
    """Return the records that were hidden at a snapshot, at offsets without a live record. If an offset had a live
    record, another engine has deleted it since. Then that engine's record is the record of the offset."""
    records = table.with_hidden_at(snapshot_id).where(_inside(spans)).where(passed)
    alive = records.where(~F.col(DELETED)).select(PARTITION, OFFSET)
    return records.where(F.col(DELETED)).join(alive, [PARTITION, OFFSET], "left_anti")


def of_expiry(
    table: TopicTable, unit: WorkUnit, states: Mapping[int, PartitionState], base: SnapshotFiles
) -> dict[int, Contradiction]:
    """Return the contradictions in the spans of due tombstones: a removed tombstone must not have hidden another record
    at its offset. `base`: as in of_round."""
    spans = {w.partition: spans_of(w, states[w.partition].horizons, unit.now_ms) for w in unit.partitions}
    return _by_log(all_candidates(table.at_snapshot(unit.base_snapshot_id).where(_inside(spans))), unit, base)


def of_topic(table: TopicTable, snapshot_id: int, starts: Mapping[int, int]) -> list[Contradiction]:
    """Return the contradictions among all records that readers see, also the head. `starts`: log -> its start."""
    past = " OR ".join(span_condition({p: (0, start)}) for p, start in starts.items() if start) or "false"
    return contradictions_in(all_candidates(table.at_snapshot(snapshot_id).where(f"NOT ({past})")))


def _by_log(records: DataFrame, unit: WorkUnit, base: SnapshotFiles) -> dict[int, Contradiction]:
    few = are_few(base.sizes_of([work.partition for work in unit.partitions]))
    return {c.partition: c for c in contradictions_in(records, few)}


def _inside(spans: Spans) -> str:
    return " OR ".join(span_condition({p: span}) for p, inside in spans.items() for span in inside) or "false"
