"""Expire the tombstones whose horizon has come: branch, check and publish of their own, also without new data.

Which are due is read from the ledgers in the table as it is now (semantics.md 1.5, 3.3, 3.4).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import asdict
from functools import partial

from cleantail.config.platform import Platform
from cleantail.lake.runs.run_plan import RunPlan
from cleantail.log.horizons import hold_offset, left_behind, spans_of
from cleantail.log.work_units import PartitionWork, WorkUnit
from cleantail.rounds.checked_round import EXPIRED, LeftBehind, StagedUnit, UnitCounts
from spark_jobs.engine.compared_readers import compare_readers
from spark_jobs.engine.expiry import find_expired
from spark_jobs.engine.log_task import merged_removals
from spark_jobs.engine.registrations import records_again, registered_twice, removed_with
from spark_jobs.engine.shared.shares import run_apart
from spark_jobs.engine.tasks import log_tasks
from spark_jobs.engine.tombstone_entries import TombstoneLedger
from spark_jobs.iceberg.branches import branch_name
from spark_jobs.iceberg.snapshot_files import count_by_log
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.make import removed_positions
from spark_jobs.round.released_logs import note_rewritten


def expiry_unit(
    plan: RunPlan, partitions: Collection[int], base_snapshot_id: int, hold_cap_ms: int, fresh_from: Mapping[int, int]
) -> WorkUnit:
    """Returns the logs with due tombstones as one unit; `end_offset` is the clean point, below which tombstones are
    looked for."""
    works = tuple(
        PartitionWork(
            partition=log.partition,
            first_dirty_offset=log.first_dirty_offset,
            end_offset=log.first_dirty_offset,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            bytes=log.total_bytes,
            records=log.records,
            hold_offset=hold_offset(plan.readers, log.partition),
            hold_cap_ms=hold_cap_ms,
            fresh_from=fresh_from.get(log.partition),
        )
        for log in plan.logs
        if log.partition in plan.sweep and log.partition in partitions
    )
    horizons = {log.partition: log.horizons for log in plan.logs}
    due = tuple(w for w in works if spans_of(w, horizons[w.partition], plan.now_ms))
    return WorkUnit(plan.round, 0, plan.now_ms, base_snapshot_id, branch_name(f"ct_{plan.round}_x0"), due)


def expire_unit(table: TopicTable, platform: Platform, plan: RunPlan, unit: WorkUnit) -> StagedUnit:
    """Deletes due tombstones on the unit's branch; returns the unit with its counts, as compact does, and with the
    readers whose hold was overrun."""
    began_ms = int(time.time() * 1000)
    note_rewritten(table, unit.now_ms)
    horizons = {log.partition: log.horizons for log in plan.logs}
    spans = {w.partition: spans_of(w, horizons[w.partition], unit.now_ms) for w in unit.partitions}
    files = table.files_at(unit.base_snapshot_id)
    ledgers = {w.partition: TombstoneLedger(tuple(spans[w.partition]), clean_to=w.end_offset) for w in unit.partitions}
    work, tasks = partial(find_expired, ledgers=ledgers), log_tasks(table, platform, unit, files)
    expired = run_apart(table, platform, work, merged_removals, tasks, "find what an expiry removes")
    compared = compare_readers(table, platform, unit, files, tasks)
    blocked = compared.blocked
    removed = removed_positions(expired, blocked).get(EXPIRED, {})
    twice = registered_twice(tasks, blocked)
    deleted = {EXPIRED: count_by_log(removed)} | removed_with(twice, records_again(table, platform, tasks, blocked))
    counts = UnitCounts(deleted, saved_bytes=files.bytes_by_log([removed]), misread=blocked)
    table.delete_positions(unit.branch, files, removed, twice, properties=compared.properties)
    last = {log: offset for each in expired for log, offset in each.last.items() if log not in blocked}
    return StagedUnit.of(unit, counts, began_ms=began_ms, left_behind=_left_behind(plan, last))


def _left_behind(plan: RunPlan, last: Mapping[int, int]) -> tuple[LeftBehind, ...]:
    """Returns the readers past whose position tombstones go, since the cap of their hold was reached. `last`: the
    offset of the last tombstone of each log that goes."""
    return tuple(
        LeftBehind(**asdict(reader), gone_to=last[reader.partition]) for reader in left_behind(plan.readers, last)
    )
