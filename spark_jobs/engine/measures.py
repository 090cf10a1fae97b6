"""What a round has done to its logs, measured on base and branch: violations of each rule, and the new state."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cleantail.config.platform import Platform
from cleantail.config.settings.kafka_configs import KafkaConfigs
from cleantail.config.topic_table import OFFSET, PARTITION
from cleantail.log.contradictions import Contradiction
from cleantail.log.log_measure import LogMeasure
from cleantail.log.partition_state import PartitionState, states_of_properties
from cleantail.log.policy.join_plans import resolve_join
from cleantail.log.round_state import proof_due
from cleantail.log.work_units import PartitionWork, WorkUnit
from cleantail.rounds.checked.staged_units import StagedUnit
from cleantail.rounds.last_compaction import COUNTS
from spark_jobs.engine.deleted_versions import remembered
from spark_jobs.engine.late_contradictions import late_files, of_expiry, of_round
from spark_jobs.engine.log_round import judge
from spark_jobs.engine.tasks import task_results
from spark_jobs.engine.tombstones import next_ledger, tombstones_of, with_tombstones
from spark_jobs.engine.transforms.record_bits import (
    base_bits,
    expiry_measures,
    full_proof,
    live_bits,
    round_measures,
    tombstones_by_entry,
    with_live_bits,
)
from spark_jobs.engine.transforms.winners import KEEP, ROW_ID, columns_of, copies_of, offset_map, with_winner
from spark_jobs.iceberg.iceberg_reads import BranchChange, texts
from spark_jobs.iceberg.session import grouped_by_log
from spark_jobs.iceberg.snapshot_files import SnapshotFiles, with_position
from spark_jobs.iceberg.tables import TopicTable


def measure_unit(table: TopicTable, platform: Platform, unit: StagedUnit, expiring: bool) -> list[LogMeasure]:
    """Returns the measures of each log of the unit: violations of each rule, and what publish puts into its state."""
    states = states_of_properties(texts(table.load().properties()), table.name)
    states = {w.partition: states.get(w.partition, PartitionState()) for w in unit.partitions}
    plan = resolve_join(unit, platform, table.topic.config, table.topic.columns is not None)
    change, files, after = _planned(table, unit, plan.columnar and not expiring)
    late_by_log = {
        w.partition: [] if expiring else late_files(table, unit, w, states[w.partition]) for w in unit.partitions
    }
    ledgers = {
        w.partition: next_ledger(table, unit, w, states[w.partition], late_by_log, expiring) for w in unit.partitions
    }
    proofs = {} if expiring else _proofs_due(table.topic.config, unit, states)
    counted = task_results(table, platform, unit, judge, files, after) if after is not None else None
    has_copies = False  # where tasks judge the logs by columns there are none
    with grouped_by_log(table.spark, plan.grouped):
        tombstones = tombstones_of(table, unit, files, states, ledgers, expiring)
        if isinstance(counted, list):
            by_log = {log.partition: dict(log.counts) for log in counted}
            by_entry = _tombstones_by_columns(table, unit, tombstones)
        else:
            bits, has_copies = _round_bits(table, unit, expiring, plan.hint)
            by_log, by_entry = _measured(bits, tombstones, table.topic.config, expiring)
        proven = rows_by_log(full_proof(table.at_branch(unit.branch), proofs)) if proofs else {}
        contradictions = of_expiry(table, unit, states) if expiring else of_round(table, unit, late_by_log, has_copies)
    measures = []
    for work in unit.partitions:
        p, state = work.partition, states[work.partition]
        measure = _measure(work, by_log.get(p, {}), proven.get(p, {}), unit, change.data_files_changed)
        measure = replace(measure, proven_ms=_proven_ms(work, state, proofs, unit.now_ms))
        measures.append(with_tombstones(_with_contradiction(measure, contradictions.get(p)), ledgers[p], by_entry))
    return measures


def _planned(
    table: TopicTable, unit: WorkUnit, by_columns: bool
) -> tuple[BranchChange, SnapshotFiles, SnapshotFiles | None]:
    """Reads what the branch changed, the files of the base, and those of the branch where the columns of both are read.
    All three are read from manifests, at the same time."""
    with ThreadPoolExecutor(3) as threads:
        change = threads.submit(table.changes_of, unit.branch, unit.base_snapshot_id)
        base = threads.submit(table.files_at, unit.base_snapshot_id)
        branch = threads.submit(table.files_at, table.head_of(unit.branch)) if by_columns else None
        return change.result(), base.result(), branch.result() if branch else None


def _tombstones_by_columns(table: TopicTable, unit: WorkUnit, tombstones: DataFrame | None) -> list[Any]:
    """Counts tombstones by entry of the ledger. Where tasks judge the logs, only this reads records of the branch
    again."""
    if tombstones is None:
        return []
    return tombstones_by_entry(live_bits(table.at_branch(unit.branch), unit.partitions), tombstones).collect()


def _measured(
    bits: DataFrame, tombstones: DataFrame | None, configs: KafkaConfigs, expiring: bool
) -> tuple[dict[int, dict[str, int]], list[Any]]:
    """Returns violations and counts by log, and tombstones by entry of the ledger. The bits are computed once for
    both."""
    if tombstones is None:
        return rows_by_log(round_measures(bits, configs)), []
    bits = bits.persist()
    try:
        rules = expiry_measures(bits, tombstones) if expiring else round_measures(bits, configs)
        return rows_by_log(rules), tombstones_by_entry(bits, tombstones).collect()
    finally:
        bits.unpersist()


def _round_bits(table: TopicTable, unit: WorkUnit, expiring: bool, hint: str) -> tuple[DataFrame, bool]:
    """Returns base and branch as bits (transforms.record_bits), and whether an offset of the dirty part occurs twice.
    An expiry has no dirty part, so no key is in its offset map."""
    works, configs = unit.partitions, table.topic.config
    logs = F.col(PARTITION).isin([w.partition for w in works])
    base = table.at_snapshot(unit.base_snapshot_id).where(logs)
    placed = with_position(base, *columns_of(configs), ROW_ID).withColumn("is_copy", F.lit(False))
    copies = None
    if expiring:
        flagged = placed.withColumn(KEEP, F.lit(None).cast("bigint"))
    else:
        records = base.select(*columns_of(configs), ROW_ID)
        arrivals = partial(table.arrivals_at, unit.base_snapshot_id)
        copies = copies_of(base.select(PARTITION, OFFSET, ROW_ID, "_file"), works, arrivals)
        if copies is not None:
            records = records.join(copies.select(ROW_ID), ROW_ID, "left_anti")
            later = copies.select(ROW_ID, F.lit(True).alias("later"))
            placed = placed.join(later, ROW_ID, "left").withColumn("is_copy", F.coalesce("later", F.lit(False)))
        winners = offset_map(records, works, configs, unit.now_ms, remembered(table, unit.now_ms))
        flagged = with_winner(placed, winners, hint)
    bits = base_bits(flagged, works, configs, unit.now_ms)
    return with_live_bits(bits, table.at_branch(unit.branch), works, configs), copies is not None


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


def rows_by_log(frame: DataFrame) -> dict[int, dict[str, int]]:
    """Runs the plan, which has one row a log."""
    return {row[PARTITION]: row.asDict() for row in frame.collect()}


def _measure(
    work: PartitionWork,
    counts: Mapping[str, int],
    proof: Mapping[str, int],
    unit: StagedUnit,
    data_files_changed: int,
) -> LogMeasure:
    """Returns the measures of one log: `counts` by measure, where a record was read, and what a proof of all keys
    adds."""
    fields: dict[str, Any] = {**dict.fromkeys(COUNTS, 0), **counts, PARTITION: work.partition}
    measure = LogMeasure(**fields)
    deleted = {reason: by_log.get(work.partition, 0) for reason, by_log in unit.counts.deleted.items()}
    return replace(
        measure,
        duplicate_keys=measure.duplicate_keys + proof.get("duplicate_keys", 0),
        data_files_changed=data_files_changed,
        imbalance=measure.records_in - sum(deleted.values()) - measure.records_out,
        deleted=deleted,
    )


def _with_contradiction(measure: LogMeasure, contradiction: Contradiction | None) -> LogMeasure:
    if contradiction is None:
        return measure
    return replace(measure, contradicting_offsets=contradiction.offsets, first_contradiction=contradiction.text)
