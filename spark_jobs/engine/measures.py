"""Says what a round has done to its logs, measured on base and branch: violations of each rule, and the new state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.platform import Platform
from cleantail.config.topic_table import KEY, PARTITION
from cleantail.log.partition_state import PartitionState, states_of_properties
from cleantail.log.round_state import proof_due
from cleantail.log.rules import Contradiction, LogMeasure
from cleantail.log.work_units import PartitionWork, WorkUnit
from cleantail.rounds.checked_round import StagedUnit
from cleantail.rounds.publications import COUNTS
from spark_jobs.engine.expiry import judge_expiry
from spark_jobs.engine.judgement import decide_bucket, judge, read_share
from spark_jobs.engine.late_contradictions import late_files, of_expiry, of_round
from spark_jobs.engine.log_task import LogCounts, LogTask, merged_counts
from spark_jobs.engine.registrations import on_branch, records_again
from spark_jobs.engine.removals import COPIES
from spark_jobs.engine.shared.shares import run_apart
from spark_jobs.engine.shared.work import Work, run_work
from spark_jobs.engine.tasks import log_tasks
from spark_jobs.engine.tombstone_entries import Ledgers
from spark_jobs.engine.tombstones import ledgers_of, next_ledger, with_tombstones
from spark_jobs.engine.transforms.spans import below_end
from spark_jobs.iceberg.iceberg_reads import BranchChange, branch_change, texts
from spark_jobs.iceberg.log_files import FileDeletes, with_branch
from spark_jobs.iceberg.snapshot_files import SnapshotFiles
from spark_jobs.iceberg.tables import TopicTable

HASH = "ct_hash"
NO_COUNTS = LogCounts(-1, {}, {})


def measure_unit(
    table: TopicTable, platform: Platform, unit: StagedUnit, expiring: bool, iceberg: Any = None
) -> list[LogMeasure]:
    """Returns the measures of each log of the unit: violations of each rule, and what publish puts into its state.
    `iceberg`: the table, where it was loaded for this round's check already."""
    iceberg = iceberg or table.load()
    states = states_of_properties(texts(iceberg.properties()), table.name)
    states = {w.partition: states.get(w.partition, PartitionState()) for w in unit.partitions}
    change, base, branch = files_of_round(table, unit, iceberg)
    late_by_log = {
        w.partition: [] if expiring else late_files(table, unit, w, states[w.partition]) for w in unit.partitions
    }
    next_ledgers = {
        w.partition: next_ledger(table, unit, w, states[w.partition], late_by_log, expiring) for w in unit.partitions
    }
    ledgers = ledgers_of(unit, states, next_ledgers, expiring)
    planned = log_tasks(table, platform, unit, base)
    deletes = branch.deletes_by_path()
    again = [records_again(table, platform, tasks) for tasks in (planned, on_branch(planned, deletes))]
    tasks = [with_branch_deletes(task, deletes) for task in planned]
    if expiring:
        of_share = partial(judge_expiry, ledgers=ledgers)
        counted = run_apart(table, platform, of_share, merged_logs, tasks, "count what an expiry has done")
    else:
        counted = run_work(table, platform, judging(ledgers), tasks)
    by_log = {log.partition: log for logs in counted for log in logs}
    proofs = {} if expiring else _proofs_due(table.topic.config, unit, states)
    proven = _proven(table, unit, proofs)
    has_copies = any(log.counts.get(COPIES) for log in by_log.values())
    if expiring:  # shares of a log are not compared with each other
        may_differ = has_copies or any(task.shares > 1 for task in tasks)
        contradictions = of_expiry(table, unit, states, base) if may_differ else {}
    else:
        contradictions = of_round(table, unit, late_by_log, has_copies, base)
    measures = []
    for work_of_log in unit.partitions:
        p = work_of_log.partition
        log = by_log.get(p, NO_COUNTS)
        measure = measure_of_log(
            work_of_log, log.counts, proven[p].twice if p in proven else 0, unit, change.data_files_changed
        )
        measure = replace(measure, proven_ms=_proven_ms(work_of_log, states[p], proofs, unit.now_ms))
        measure = with_registrations(measure, *(records.get(p, 0) for records in again))
        measure = _with_contradiction(measure, contradictions.get(p))
        measures.append(with_tombstones(measure, next_ledgers[p], log.tombstones))
    return measures


def judging(ledgers: Ledgers) -> Work[list[LogCounts]]:
    """Returns the work of a check: it counts what a round has done."""
    return Work(
        "count what a round has done",
        partial(judge, ledgers=ledgers),
        partial(read_share, ledgers=ledgers),
        partial(decide_bucket, ledgers=ledgers),
        merged_logs,
    )


def merged_logs(parts: Iterable[Sequence[LogCounts]]) -> list[LogCounts]:
    """Returns one entry for each log, of what several tasks have counted."""
    return merged_counts(log for part in parts for log in part)


def files_of_round(
    table: TopicTable, unit: WorkUnit, iceberg: Any
) -> tuple[BranchChange, SnapshotFiles, SnapshotFiles]:
    """Reads what the branch changed, the files of the base, and those of the branch: all from manifests, at the same
    time. `iceberg`: the table as it was loaded."""
    with ThreadPoolExecutor(3) as threads:
        change = threads.submit(branch_change, iceberg, unit.branch, unit.base_snapshot_id)
        base = threads.submit(table.files_at, unit.base_snapshot_id, iceberg)
        branch = threads.submit(table.files_at, table.head_of(unit.branch, iceberg), iceberg)
        return change.result(), base.result(), branch.result()


def with_branch_deletes(task: LogTask, deletes: Mapping[str, FileDeletes]) -> LogTask:
    """Returns the task with what is deleted of its files on the branch."""
    return replace(task, files=tuple(with_branch(task.files, deletes)))


def _proven(table: TopicTable, unit: StagedUnit, proofs: Mapping[int, int]) -> dict[int, KeyCounts]:
    """Returns partition -> its keys, of the logs whose full proof is due."""
    works = [w for w in unit.partitions if w.partition in proofs]
    return prove_keys(table.at_branch(unit.branch), works) if works else {}


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """Says how many keys a log has, and how many of them more than one record has."""

    keys: int
    twice: int


def prove_keys(records: DataFrame, works: Sequence[PartitionWork]) -> dict[int, KeyCounts]:
    """Count the keys of the logs in [log start, end), whatever was proven before, as Spark's Iceberg reader sees them.

    Equal keys have equal hashes, so a first plan shuffles eight bytes of a key. Only if a hash occurs twice, a second
    one compares the keys that have such a hash.
    """
    hashed = below_end(records, works).where(F.col(KEY).isNotNull()).withColumn(HASH, F.xxhash64(KEY))
    by_hash = hashed.groupBy(PARTITION, HASH).agg(F.count("*").alias("records"))
    repeated = F.count_if(F.col("records") > 1).alias("repeated")
    counted = by_hash.groupBy(PARTITION).agg(F.sum("records").alias("records"), repeated).collect()
    more: dict[int, tuple[int, int]] = {}
    if any(row["repeated"] for row in counted):
        same_hash = hashed.join(by_hash.where("records > 1").select(PARTITION, HASH), [PARTITION, HASH], "left_semi")
        by_key = same_hash.groupBy(PARTITION, KEY).agg(F.count("*").alias("records")).where("records > 1")
        rows = by_key.groupBy(PARTITION).agg(F.sum("records").alias("records"), F.count("*").alias("keys")).collect()
        more = {row[PARTITION]: (row["records"] - row["keys"], row["keys"]) for row in rows}
    by_log = {row[PARTITION]: row["records"] for row in counted}
    proven = ((work.partition, *more.get(work.partition, (0, 0))) for work in works)
    return {log: KeyCounts(by_log.get(log, 0) - again, twice) for log, again, twice in proven}


def _proofs_due(configs: KafkaConfigs, unit: WorkUnit, states: dict[int, PartitionState]) -> dict[int, int]:
    """Returns partition -> end of the logs of which all keys were last proven unique too long ago."""
    interval_ms = configs.cleantail_full_proof_interval_ms
    return {
        w.partition: w.end_offset
        for w in unit.partitions
        if not _all_dirty(w) and proof_due(states[w.partition].proven_ms, unit.now_ms, interval_ms)
    }


def _all_dirty(work: PartitionWork) -> bool:
    """Returns whether the round reads the whole log as dirty: such a round proves every key by itself."""
    return work.first_dirty_offset <= work.log_start_offset


def _proven_ms(work: PartitionWork, state: PartitionState, proofs: dict[int, int], now_ms: int) -> int | None:
    return now_ms if work.partition in proofs or _all_dirty(work) else state.proven_ms


def measure_of_log(
    work: PartitionWork,
    counts: Mapping[str, int],
    proven_twice: int,
    unit: StagedUnit,
    data_files_changed: int,
) -> LogMeasure:
    """Returns the measures of one log: `counts` by measure, and the keys that a proof has met twice."""
    measures = {name: count for name, count in counts.items() if name != COPIES}
    fields: dict[str, Any] = {**dict.fromkeys(COUNTS, 0), **measures, PARTITION: work.partition}
    measure = LogMeasure(**fields)
    deleted = {reason: by_log.get(work.partition, 0) for reason, by_log in unit.counts.deleted.items()}
    return replace(
        measure,
        duplicate_keys=measure.duplicate_keys + proven_twice,
        data_files_changed=data_files_changed,
        imbalance=measure.records_in - sum(deleted.values()) - measure.records_out,
        deleted=deleted,
    )


def with_registrations(measure: LogMeasure, before: int, after: int) -> LogMeasure:
    """Counts what further registrations of files show again, `before` the round and `after` it: none may be left."""
    return replace(
        measure,
        records_in=measure.records_in + before,
        records_out=measure.records_out + after,
        duplicate_keys=measure.duplicate_keys + after,
        imbalance=measure.imbalance + before - after,
    )


def _with_contradiction(measure: LogMeasure, contradiction: Contradiction | None) -> LogMeasure:
    if contradiction is None:
        return measure
    return replace(measure, contradicting_offsets=contradiction.offsets, first_contradiction=contradiction.text)
