"""Compact one work unit: find superseded records from key columns, write delete files onto a branch.

The unit came through Airflow's database: its bounds have to be those that the table's metadata give (exit code 5).
Values are never read and `main` is not changed: check_quality reads the branch, publish replays it. A unit that runs
again (a retry, a killed job) starts from the same base snapshot on a fresh branch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pyroaring import BitMap64
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cleantail.config.platform import Platform
from cleantail.config.topic_table import KEY, OFFSET, PARTITION
from cleantail.log.policy.join_plans import JoinPlan, resolve_join
from cleantail.log.policy.offset_map import keys_in_budget, map_slots, round_end
from cleantail.log.work_units import WorkUnit
from cleantail.rounds.checked.staged_units import STAGED_UNIT_JSON, UNIT, StagedUnit, UnitCounts
from spark_jobs.engine.deleted_versions import remembered
from spark_jobs.engine.log_round import find_removals
from spark_jobs.engine.log_task import LogRemovals, Refusal
from spark_jobs.engine.tasks import task_results
from spark_jobs.engine.touched_keys import touched_keys
from spark_jobs.engine.transforms.winners import (
    ROW_ID,
    below_end,
    columns_of,
    copies_of,
    dirty_part,
    losers,
    offset_map,
    span_condition,
    where_full,
)
from spark_jobs.iceberg.branches import branch_name
from spark_jobs.iceberg.session import grouped_by_log
from spark_jobs.iceberg.snapshot_files import (
    RemovedPositions,
    SnapshotFiles,
    count_by_log,
    union_of,
    with_position,
    without,
)
from spark_jobs.iceberg.tables import TopicTable


def compact_unit(table: TopicTable, platform: Platform, unit: WorkUnit) -> StagedUnit:
    """Writes what the unit removes onto a branch of its own, and returns the unit with its counts. Nothing is removed
    from a log that `cleantail.keyless.policy` holds back: the counts name it, and its check is red."""
    began_s, began_ms = time.monotonic(), int(time.time() * 1000)
    files = table.files_at(unit.base_snapshot_id)
    logs = {w.partition for w in unit.partitions}
    # up to the end that was planned: nothing is begun that must fail later
    keyless = count_keyless(table, unit) if files.may_have_null(KEY, logs) else {}
    held = keyless if table.topic.config.cleantail_keyless_policy == "fail" else {}
    unit = within_budget(table, platform, replace(unit, branch=branch_name(unit.branch)))
    plan = resolve_join(unit, platform, table.topic.config, table.topic.columns is not None)
    cleaned = replace(unit, partitions=tuple(w for w in unit.partitions if w.partition not in held))
    by_reason: dict[str, RemovedPositions] = {"superseded": {}}
    if cleaned.partitions:
        by_reason, plan = removed(table, platform, cleaned, files, bool(keyless), plan)
    counts = UnitCounts(
        deleted={reason: count_by_log(positions) for reason, positions in by_reason.items()},
        hidden_bytes=files.bytes_by_log(positions for reason, positions in by_reason.items() if reason != "retention"),
        saved_bytes=files.bytes_by_log(by_reason.values()),
        plan=plan.reason,
        keyless=held,
    )
    staged = StagedUnit.of(
        unit,
        counts,
        began_ms=began_ms,
        clean_ms=int((time.monotonic() - began_s) * 1000),
        map_slots=map_slots(platform.cleaner, table.topic.config),
    )
    table.delete_positions(unit.branch, files, union_of(by_reason.values()), {UNIT: STAGED_UNIT_JSON.packed(staged)})
    return staged


def removed(
    table: TopicTable, platform: Platform, unit: WorkUnit, files: SnapshotFiles, keyless: bool, plan: JoinPlan
) -> tuple[dict[str, RemovedPositions], JoinPlan]:
    """Returns positions by reason, and the plan by which they were looked for: that of the unit, unless a task refuses
    its log."""
    logs = task_results(table, platform, unit, find_removals, files) if plan.columnar else None
    if isinstance(logs, Refusal):
        plan = replace(plan, reason=f"{plan.reason}; not so, for {logs.reason}: by Spark's join")
    if isinstance(logs, list):
        return removed_by_columns(logs), plan
    return removed_by_spark(table, unit, files, keyless, plan), plan


def removed_by_spark(
    table: TopicTable, unit: WorkUnit, files: SnapshotFiles, keyless: bool, plan: JoinPlan
) -> dict[str, RemovedPositions]:
    """Returns positions by reason; one that has several reasons goes by the first."""
    by_reason: dict[str, RemovedPositions] = {}
    with grouped_by_log(table.spark, plan.grouped):
        for reason, records in removals(table, unit, files, keyless, plan.hint).items():
            by_reason[reason] = without(files.positions_in(records), by_reason.values())
    return by_reason


def removed_by_columns(logs: Sequence[LogRemovals]) -> dict[str, RemovedPositions]:
    """Returns positions by reason, as removed_by_spark does, of what the tasks have returned."""
    by_reason: dict[str, dict[tuple[int, int], BitMap64]] = {"superseded": {}}
    for log in logs:
        for reason, by_file in log.positions.items():
            of_log = {(log.partition, file): BitMap64.deserialize(positions) for file, positions in by_file.items()}
            by_reason.setdefault(reason, {}).update(of_log)
    return dict(by_reason)


def removals(table: TopicTable, unit: WorkUnit, files: SnapshotFiles, keyless: bool, hint: str) -> dict[str, DataFrame]:
    """Returns the records to remove, by reason; one that has several reasons goes by the first. Columns: partition,
    ct_file and _pos, and more.

    1. `retention`: the log start is past their segment.

    2. `copies`: an earlier record of the same offset survives (semantics.md 3.5).

    3. `invalid`: they have no key.

    4. `superseded`: a record of the same key wins (1.4).
    """
    works, configs = unit.partitions, table.topic.config
    base = table.at_snapshot(unit.base_snapshot_id)
    by_reason = {}
    spans = {w.partition: (0, w.log_start_offset) for w in works if w.log_start_offset > 0}
    if configs.deletes and spans:  # whole segments that `delete` in the policy lets go: the log start is past them
        by_reason["retention"] = base.where(span_condition(spans))
    records = base.select(*columns_of(configs), ROW_ID)
    placed = base.select(PARTITION, OFFSET, ROW_ID, "_file", "_pos")
    copies = copies_of(placed, works, partial(table.arrivals_at, unit.base_snapshot_id))
    if copies is not None:
        by_reason["copies"] = copies
        records = records.join(copies.select(ROW_ID), ROW_ID, "left_anti")
    below = base.where(span_condition({w.partition: (0, w.end_offset) for w in works}))
    if keyless:
        by_reason["invalid"] = below.where(F.col(KEY).isNull())
    by_reason = {reason: with_position(records_of_reason, PARTITION) for reason, records_of_reason in by_reason.items()}
    touched = touched_keys(records, unit, files)
    if touched is not None:
        records, below = records.where(touched), below.where(touched)
    winners = offset_map(records, works, configs, unit.now_ms, remembered(table, unit.now_ms))
    return by_reason | {"superseded": losers(with_position(below, PARTITION, OFFSET, KEY), winners, configs, hint)}


def within_budget(table: TopicTable, platform: Platform, unit: WorkUnit) -> WorkUnit:
    """Returns the unit as it is, or, where the budget is kept by rounds, with ends at which each log's map is full."""
    if platform.cleaner.cleantail_over_budget != "rounds":
        return unit
    records = table.at_snapshot(unit.base_snapshot_id).select(PARTITION, OFFSET, KEY)
    keys = keys_in_budget(platform.cleaner, table.topic.config)
    full = {row[PARTITION]: row for row in where_full(dirty_part(records, unit.partitions), keys).collect()}
    works = tuple(
        w.ending_at(round_end(full[w.partition]["full_at"], full[w.partition]["last_keyed"], w.end_offset))
        if w.partition in full
        else w
        for w in unit.partitions
    )
    return replace(unit, partitions=works)


def count_keyless(table: TopicTable, unit: WorkUnit) -> dict[int, tuple[int, int]]:
    """Returns partition -> how many records without a key the log has below its end, and the offset of the first."""
    records = below_end(table.at_snapshot(unit.base_snapshot_id), unit.partitions).where(F.col(KEY).isNull())
    rows = records.groupBy(PARTITION).agg(F.min(OFFSET).alias("first"), F.count("*").alias("count")).collect()
    return {row[PARTITION]: (row["count"], row["first"]) for row in rows}
