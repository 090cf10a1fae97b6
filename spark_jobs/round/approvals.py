"""Says what a checked round needs where it waits for a person: why, a sample of what would go, and what a "no"
leaves."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cleantail.config.platform import Platform
from cleantail.config.topic_table import KEY, OFFSET, PARTITION
from cleantail.log.partition_state import PROPERTY_PARTITION, PartitionState
from cleantail.log.quarantine import replaced
from cleantail.log.work_units import PartitionWork, WorkUnit
from cleantail.rounds.approval import Rejection, after_rejection
from cleantail.rounds.check_results import RemovedRecord
from cleantail.rounds.checked_round import CheckedRound, RoundResult, StagedUnit
from cleantail.rounds.past_rounds import REJECTED, WITHDRAWN
from spark_jobs.engine.transforms.record_positions import FILE, POS, with_position
from spark_jobs.engine.transforms.spans import below_end
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.evidence import append_answer, has_answer
from spark_jobs.round.failed_logs import keep_failed, quarantined
from spark_jobs.round.judged_records import branch_has_few
from spark_jobs.round.released_logs import forget_answered, states_and_releases

SAMPLE_RECORDS, SAMPLE_PER_LOG = 20, 5
KEPT = "kept_offset"
MERGED = "merge"
"""Spark's hint for a join of sorted records: a broadcast would be a job of its own."""


def with_sample(table: TopicTable, checked: CheckedRound) -> CheckedRound:
    """Returns the checked round with a sample of what it removes; with none where nobody is asked."""
    return replace(checked, sample=tuple(sample_of(table, checked.units, checked.green))) if checked.holds else checked


def sample_of(table: TopicTable, units: Sequence[StagedUnit], partitions: Collection[int]) -> list[RemovedRecord]:
    """Returns some of the records that the branches remove: the lowest offsets of each log. Keys never leave Spark: who
    has to see what goes reads it from the table (`cleantail.lake.records.shown_records`).

    Where records are few, one task compares them in one plan. Of many, one plan chooses the sample without reading
    keys, and another reads those of the sample."""
    sample: list[RemovedRecord] = []
    for unit in units:
        works = [w for w in unit.partitions if w.partition in partitions]
        if works and (room := SAMPLE_RECORDS - len(sample)) > 0:
            sampled = sampled_at_once if branch_has_few(table, unit, works) else sampled_by_two_plans
            rows = sampled(table, unit, works, room).collect()
            sample += [RemovedRecord(row[PARTITION], row[OFFSET], row[KEPT]) for row in rows]
    return sorted(sample, key=lambda record: (record.partition, record.offset))


def sampled_at_once(table: TopicTable, unit: WorkUnit, works: Sequence[PartitionWork], room: int) -> DataFrame:
    """Returns (partition, offset, kept offset) of a sample of few records: null is kept where the round leaves no
    record of the key in its log, as of a tombstone that has expired."""
    inside = F.col(PARTITION).isin([w.partition for w in works])
    base = table.at_snapshot(unit.base_snapshot_id).where(inside).coalesce(1)
    branch = table.at_branch(unit.branch).where(inside).coalesce(1)
    sampled = _removed(base, branch.hint(MERGED), KEY).orderBy(PARTITION, OFFSET, FILE, POS).limit(room)
    kept = _kept(below_end(branch, works)).hint(MERGED)
    return sampled.join(kept, _same_key(), "left").select(PARTITION, OFFSET, KEPT)


def sampled_by_two_plans(table: TopicTable, unit: WorkUnit, works: Sequence[PartitionWork], room: int) -> DataFrame:
    """Returns what sampled_at_once returns, of any number of records. It scans keys once more, in a round that waits
    for a person anyway."""
    inside = F.col(PARTITION).isin([w.partition for w in works])
    base, branch = table.at_snapshot(unit.base_snapshot_id), table.at_branch(unit.branch)
    removed = _removed(base.where(inside), branch.where(inside)).collect()
    rows = sorted(removed, key=lambda row: (row[PARTITION], row[OFFSET], row[FILE], row[POS]))[:room]
    positions = [(F.xxhash64("_file") == r[FILE]) & (F.col(POS) == r[POS]) for r in rows]
    offsets = F.col(OFFSET).isin(sorted({r[OFFSET] for r in rows}))
    there = base.where(inside & offsets & reduce(or_, positions, F.lit(False)))
    sampled = with_position(there, PARTITION, OFFSET, KEY).distinct().select(PARTITION, OFFSET, KEY)
    few = F.broadcast(sampled.select(PARTITION, KEY).distinct())
    winners = _kept(below_end(branch, works)).join(few, _same_key(), "left_semi")
    return sampled.join(F.broadcast(winners), _same_key(), "left").select(PARTITION, OFFSET, KEPT)


def _removed(base: DataFrame, branch: DataFrame, *columns: str) -> DataFrame:
    """Returns the first records of each log that are not on the branch any more: (partition, offset, columns…, and
    where they lie, as with_position says)."""
    of_base = with_position(base, PARTITION, OFFSET, *columns)
    # distinct: a file that is registered twice shows each record twice
    removed = of_base.join(with_position(branch), [FILE, POS], "left_anti").distinct()
    rank = F.row_number().over(Window.partitionBy(PARTITION).orderBy(OFFSET, FILE, POS))
    return removed.withColumn("rank", rank).where(F.col("rank") <= SAMPLE_PER_LOG).drop("rank")


def _kept(left: DataFrame) -> DataFrame:
    """Returns (kept_partition, kept_key, kept_offset) of each key: the highest offset that the round leaves."""
    keys = left.select(F.col(PARTITION).alias("kept_partition"), F.col(KEY).alias("kept_key"), OFFSET)
    return keys.groupBy("kept_partition", "kept_key").agg(F.max(OFFSET).alias(KEPT))


def _same_key() -> Column:
    return (F.col(PARTITION) == F.col("kept_partition")) & (F.col(KEY) == F.col("kept_key"))


def set_aside(
    table: TopicTable, platform: Platform, checked: CheckedRound, rejection: Rejection | None, why: str = ""
) -> RoundResult:
    """Drops the branches of a round that is not published; its red logs are quarantined as ever, and the others too
    where a person said no. Nothing else of any log's state changes. A task that died and is tried again does it
    once. `why` is told where it is not a person's answer."""
    before, releases = states_and_releases(table, platform, table.load())
    kept = keep_failed(table, checked)
    new = quarantined(checked, before, kept, platform.cleaner.log_cleaner_backoff_ms)
    if rejection:
        pause_ms = table.topic.config.cleantail_approval_pause_ms
        for work in (work for _, work in checked.works() if work.partition in checked.green):
            state, kind = before.get(work.partition, PartitionState()), checked.kind_of(work)
            new[work.partition] = after_rejection(state, kind, rejection, pause_ms)
    outcome = REJECTED if rejection else WITHDRAWN
    if has_answer(table, platform, checked, outcome):
        new = {}
    else:
        table.set_properties({f"{PROPERTY_PARTITION}{p}": state.as_json() for p, state in new.items()})
        forget_answered(table, platform, releases, new)
        append_answer(table, platform, checked, outcome, rejection.reason if rejection else why)
    table.drop_branches([*(unit.branch for unit in checked.units), *replaced(before, new)])
    if rejection is None:
        return RoundResult.of_check(checked)
    return RoundResult.of_check(checked, rejected=tuple(checked.green), reason=rejection.reason)
