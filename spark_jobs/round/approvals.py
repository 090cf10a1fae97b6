"""Prepare a checked round for a person's approval, and record a failed check or a rejection.

1. A waiting round shows its reasons and a sample of the records that it would remove.
2. Logs whose check failed keep a branch for inspection, and enter quarantine.
3. A topic's own checks read the records that the round would publish. Great Expectations runs several queries over
   these records. If they are few, `read_once` keeps them in memory, so that not every query reads the table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import reduce
from operator import or_

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cleantail.config.topic_table import KEY, OFFSET, PARTITION, VALUE
from cleantail.log.log_state import KEYLESS_RULE
from cleantail.log.partition_state import PROPERTY_PARTITION, PartitionState, states_of_properties
from cleantail.log.quarantine import after_failure, failed_name, replaced
from cleantail.log.round_state import COMPACT, ERASE, EXPIRE, RECONCILE
from cleantail.log.work_units import PartitionWork, WorkUnit
from cleantail.rounds.approval import Rejection, after_rejection
from cleantail.rounds.check_results import CheckResult, RemovedRecord
from cleantail.rounds.checked_round import CheckedRound, RoundResult, StagedUnit, keyless_logs, misread_logs
from cleantail.rounds.past_rounds import REJECTED, WITHDRAWN
from spark_jobs.iceberg.java_calls import texts
from spark_jobs.iceberg.snapshot_files import FEW_RECORDS, are_few
from spark_jobs.iceberg.tables import FILE, POS, TopicTable, below_end, spans_read, with_position
from spark_jobs.round.evidence import append_answer, has_answer
from spark_jobs.round.released_logs import forget_answered, states_and_releases

BRANCH_LETTERS = {COMPACT: "u", EXPIRE: "x", RECONCILE: "r", ERASE: "e"}
"""Kind of a round -> letter before the number of the unit in the name of its branch."""


def failed_logs(checked: CheckedRound) -> dict[int, list[str]]:
    """Return partition -> the names of its failed expectations, without logs that only wait for others."""
    return {v.partition: [_named(failure) for failure in v.failures] for v in checked.verdicts if v.failed}


def _named(failure: CheckResult) -> str:
    """Return the expectation's name, with the observed text only if Cleantail wrote it: others may quote records."""
    ours = failure.error or failure.expectation == KEYLESS_RULE
    return f"{failure.expectation} ({failure.observed})" if ours else failure.expectation


def keep_failed(table: TopicTable, checked: CheckedRound) -> dict[int, str]:
    """Keep the branches of units with a failed log under new names for inspection. Returns partition -> that name.

    Omits logs that are blocked for records without a key or for a difference between readers, because they are
    unchanged."""
    if not table.topic.config.cleantail_failed_branch_retention_ms:
        return {}
    kept: dict[int, str] = {}
    red = failed_logs(checked).keys() - keyless_logs(checked.units).keys() - misread_logs(checked.units).keys()
    if red:
        table.commit_staged()
    for unit in checked.units:
        failed = [w.partition for w in unit.partitions if w.partition in red]
        if failed and table.load().refs().containsKey(unit.branch):
            name = failed_name(checked.round, unit.unit, BRANCH_LETTERS[checked.kind], unit.now_ms)
            table.create_branch(name, table.head_of(unit.branch))
            kept |= dict.fromkeys(failed, name)
    return kept


def drop_unnamed(table: TopicTable, branches: Iterable[str]) -> None:
    """Drop the branches that keep_failed created before a failed commit.

    Keeps branches that a quarantine names, because another attempt of the same round may have committed first."""
    states = states_of_properties(texts(table.load().properties()), table.name)
    table.drop_branches(set(branches) - {s.quarantine.branch for s in states.values() if s.quarantine})


def quarantined(
    checked: CheckedRound,
    states: Mapping[int, PartitionState],
    kept: Mapping[int, str],
    backoff_ms: int,
) -> dict[int, PartitionState]:
    """Return the quarantined states of the logs whose check failed. `kept`: result of keep_failed. Omits a log that an
    earlier attempt of this round quarantined, so that no failure counts twice."""
    red, after = failed_logs(checked), {}
    judged = {verdict.partition: verdict.judged_ms for verdict in checked.verdicts}
    for unit, work in checked.works():
        if (expectations := red.get(work.partition)) is not None:
            state, branch = states.get(work.partition, PartitionState()), kept.get(work.partition, "")
            if branch and state.quarantine and state.quarantine.branch == branch:
                continue
            kind = checked.kind_of(work)
            failed_ms = judged[work.partition] or unit.now_ms
            after[work.partition] = after_failure(state, kind, expectations, failed_ms, backoff_ms, branch)
    return after


@contextmanager
def judged_records(table: TopicTable, unit: StagedUnit, works: Sequence[PartitionWork]) -> Iterator[DataFrame]:
    """Yield the records that the topic's own checks read. If they are few, Spark reads them once. The branch's files
    are listed only if the plan has few records."""
    few = sum(work.records for work in works) <= FEW_RECORDS and are_few(
        table.files_at(unit.head_snapshot_id, table.as_staged()).sizes_of([work.partition for work in works])
    )
    with table.on_branch(unit.branch, spans_read(works)) as left:
        records = as_text(left)
        with read_once(records) if few else nullcontext(records) as judged:
            yield judged


def as_text(records: DataFrame) -> DataFrame:
    """Cast key and value to UTF-8 text, as the topic's own expectations read them."""
    return records.withColumns({KEY: F.col(KEY).cast("string"), VALUE: F.col(VALUE).cast("string")})


@contextmanager
def read_once(records: DataFrame) -> Iterator[DataFrame]:
    """Keep few records (spark_jobs.iceberg.snapshot_files) in an executor's memory for the queries of the block.

    One task reads them at the first query. If memory is short, each query reads them again. They are never written to
    disk."""
    kept = records.coalesce(1).persist(StorageLevel.MEMORY_ONLY)
    try:
        yield kept
    finally:
        kept.unpersist()


SAMPLE_RECORDS, SAMPLE_PER_LOG = 20, 5
KEPT = "kept_offset"


def with_sample(table: TopicTable, checked: CheckedRound) -> CheckedRound:
    """Add a sample of the removed records if the round needs approval."""
    if not checked.holds:
        return checked
    table.commit_staged()
    return replace(checked, sample=tuple(sample_of(table, checked.units, checked.green)))


def sample_of(table: TopicTable, units: Sequence[StagedUnit], partitions: Collection[int]) -> list[RemovedRecord]:
    """Return the removed records with the lowest offsets of each log. Keys never leave Spark: an approver reads them
    from the table (`cleantail.lake.records.shown_records`).

    One plan selects the sample without keys, and another reads the keys of the sample."""
    sample: list[RemovedRecord] = []
    for unit in units:
        works = [w for w in unit.partitions if w.partition in partitions]
        if works and (room := SAMPLE_RECORDS - len(sample)) > 0:
            rows = _sampled(table, unit, works, room).collect()
            sample += [RemovedRecord(row[PARTITION], row[OFFSET], row[KEPT]) for row in rows]
    return sorted(sample, key=lambda record: (record.partition, record.offset))


def _sampled(table: TopicTable, unit: WorkUnit, works: Sequence[PartitionWork], room: int) -> DataFrame:
    """Return (partition, offset, kept offset) of at most `room` removed records. The kept offset is null if the round
    leaves no record of the key, as for an expired tombstone."""
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


def _removed(base: DataFrame, branch: DataFrame) -> DataFrame:
    """Return the first records of each log that the branch lacks: (partition, offset, file, position)."""
    of_base = with_position(base, PARTITION, OFFSET)
    # distinct, because a file that is registered twice shows each record twice
    removed = of_base.join(with_position(branch), [FILE, POS], "left_anti").distinct()
    rank = F.row_number().over(Window.partitionBy(PARTITION).orderBy(OFFSET, FILE, POS))
    return removed.withColumn("rank", rank).where(F.col("rank") <= SAMPLE_PER_LOG).drop("rank")


def _kept(left: DataFrame) -> DataFrame:
    """Return (kept_partition, kept_key, kept_offset): the highest offset of each key that the round leaves."""
    keys = left.select(F.col(PARTITION).alias("kept_partition"), F.col(KEY).alias("kept_key"), OFFSET)
    return keys.groupBy("kept_partition", "kept_key").agg(F.max(OFFSET).alias(KEPT))


def _same_key() -> Column:
    return (F.col(PARTITION) == F.col("kept_partition")) & (F.col(KEY) == F.col("kept_key"))


def set_aside(table: TopicTable, checked: CheckedRound, rejection: Rejection | None, why: str = "") -> RoundResult:
    """Drop the branches of a round that is not published. A repeated call changes nothing.

    Quarantines its failed logs, and after a rejection the others too. The states of logs do not change otherwise.
    `why`: the note to record without a rejection.
    """
    before, releases = states_and_releases(table, table.load())
    kept = keep_failed(table, checked)
    new = quarantined(checked, before, kept, table.platform.cleaner.log_cleaner_backoff_ms)
    if rejection:
        pause_ms = table.topic.config.cleantail_approval_pause_ms
        for work in (work for _, work in checked.works() if work.partition in checked.green):
            state, kind = before.get(work.partition, PartitionState()), checked.kind_of(work)
            new[work.partition] = after_rejection(state, kind, rejection, pause_ms)
    outcome = REJECTED if rejection else WITHDRAWN
    if has_answer(table, checked, outcome):
        new = {}
    else:
        table.set_properties({f"{PROPERTY_PARTITION}{p}": state.as_json() for p, state in new.items()})
        forget_answered(table, releases, new)
        append_answer(table, checked, outcome, rejection.reason if rejection else why)
    table.drop_branches([*(unit.branch for unit in checked.units), *replaced(before, new)])
    if rejection is None:
        return RoundResult.of_check(checked)
    return RoundResult.of_check(checked, rejected=tuple(checked.green), reason=rejection.reason)
