"""Says what a checked round needs where it waits for a person: why, a sample of what would go, and what a "no"
leaves."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from cleantail.config.platform import Platform
from cleantail.config.topic_table import KEY, OFFSET, PARTITION
from cleantail.log.partition_state import PROPERTY_PARTITION, PartitionState
from cleantail.log.work_units import WorkUnit
from cleantail.rounds.approval import Rejection, after_rejection
from cleantail.rounds.checked.checked_round import CheckedRound
from cleantail.rounds.checked.round_results import RoundResult
from cleantail.rounds.checked.sample import RemovedRecord
from cleantail.rounds.failed_branches import replaced
from cleantail.rounds.past_rounds import REJECTED, WITHDRAWN
from spark_jobs.engine.transforms.record_positions import FILE, POS, with_position
from spark_jobs.engine.transforms.spans import below_end
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.evidence import append_answer, has_answer
from spark_jobs.round.failed_logs import keep_failed, quarantined
from spark_jobs.round.released_logs import forget_answered, states_and_releases

SAMPLE_RECORDS, SAMPLE_PER_LOG = 20, 5
KEPT = "kept_offset"


def with_sample(table: TopicTable, checked: CheckedRound) -> CheckedRound:
    """Returns the checked round with a sample of what it removes; with none where nobody is asked."""
    return replace(checked, sample=tuple(sample_of(table, checked.units, checked.green))) if checked.holds else checked


def sample_of(table: TopicTable, units: Sequence[WorkUnit], partitions: Collection[int]) -> list[RemovedRecord]:
    """Returns some of the records that the branches remove: the lowest offsets of each log. Keys never leave Spark: who
    has to see what goes reads it from the table (`cleantail.lake.records.shown_records`)."""
    sample: list[RemovedRecord] = []
    for unit in units:
        logs = [w.partition for w in unit.partitions if w.partition in partitions]
        if logs and len(sample) < SAMPLE_RECORDS:
            sampled = _removed(table, unit, logs).limit(SAMPLE_RECORDS - len(sample))
            rows = _with_kept(table, unit, logs, sampled).collect()
            sample += [RemovedRecord(row[PARTITION], row[OFFSET], row[KEPT]) for row in rows]
    return sorted(sample, key=lambda record: (record.partition, record.offset))


def _with_kept(table: TopicTable, unit: WorkUnit, logs: list[int], sampled: DataFrame) -> DataFrame:
    """Adds to the sample the offset of the record of the same key that the round leaves in its log: null where it
    leaves none, as of a tombstone that has expired. It scans keys once more, in a round that waits for a person
    anyway."""
    works = [w for w in unit.partitions if w.partition in logs]
    left = below_end(table.at_branch(unit.branch), works)
    kept = left.select(F.col(PARTITION).alias("kept_partition"), F.col(KEY).alias("kept_key"), OFFSET)
    of_key = kept.groupBy("kept_partition", "kept_key").agg(F.max(OFFSET).alias(KEPT))
    few = F.broadcast(sampled.select(PARTITION, KEY).distinct())
    same = (F.col(PARTITION) == F.col("kept_partition")) & (F.col(KEY) == F.col("kept_key"))
    winners = of_key.join(few, same, "left_semi")
    return sampled.join(F.broadcast(winners), same, "left").select(PARTITION, OFFSET, KEPT)


def _removed(table: TopicTable, unit: WorkUnit, logs: list[int]) -> DataFrame:
    """Returns (partition, offset, key) of the sample: it chooses the records without keys first."""
    base, branch = table.at_snapshot(unit.base_snapshot_id), table.at_branch(unit.branch)
    inside = F.col(PARTITION).isin(logs)
    left = with_position(branch.where(inside))
    # distinct: a file that is registered twice shows each record twice
    removed = with_position(base.where(inside), PARTITION, OFFSET).join(left, [FILE, POS], "left_anti").distinct()
    rank = F.row_number().over(Window.partitionBy(PARTITION).orderBy(OFFSET, FILE, POS))
    rows = removed.withColumn("rank", rank).where(F.col("rank") <= SAMPLE_PER_LOG).drop("rank").collect()
    positions = [(F.xxhash64("_file") == r[FILE]) & (F.col(POS) == r[POS]) for r in rows[:SAMPLE_RECORDS]]
    offsets = sorted({r[OFFSET] for r in rows})
    sampled = base.where(inside & F.col(OFFSET).isin(offsets) & reduce(or_, positions, F.lit(False)))
    return with_position(sampled, PARTITION, OFFSET, KEY).distinct().select(PARTITION, OFFSET, KEY)


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
