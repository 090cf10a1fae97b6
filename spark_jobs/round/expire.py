"""Expire the tombstones whose horizon has come: branch, check and publish of their own, also without new data.

Which are due is read from the ledgers in the table as it is now (semantics.md 1.5, 3.3, 3.4).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import asdict

from pyspark.sql import functions as F

from cleantail.config.topic_table import OFFSET, PARTITION, VALUE
from cleantail.lake.runs.evaluate import RunPlan
from cleantail.log.reader_positions import hold_offset, left_behind
from cleantail.log.tombstones import spans_of
from cleantail.log.work_units import PartitionWork, WorkUnit
from cleantail.rounds.checked.staged_units import EXPIRED, LeftBehind, StagedUnit, UnitCounts
from spark_jobs.engine.transforms.needed_tombstones import GUARDS, with_guards
from spark_jobs.engine.transforms.winners import columns_of, span_condition
from spark_jobs.iceberg.branches import branch_name
from spark_jobs.iceberg.snapshot_files import count_by_log, with_position
from spark_jobs.iceberg.tables import TopicTable


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


def expire_unit(table: TopicTable, plan: RunPlan, unit: WorkUnit) -> StagedUnit:
    """Deletes due tombstones on the unit's branch; returns the unit with its counts, as compact does, and with the
    readers whose hold was overrun."""
    began_ms = int(time.time() * 1000)
    horizons = {log.partition: log.horizons for log in plan.logs}
    spans = {w.partition: spans_of(w, horizons[w.partition], unit.now_ms) for w in unit.partitions}
    due = " OR ".join(span_condition({p: span}) for p, of_log in spans.items() for span in of_log)
    files = table.files_at(unit.base_snapshot_id)
    tombstones = table.at_snapshot(unit.base_snapshot_id).where(f"`{VALUE}` IS NULL AND ({due})")
    configs, base = table.topic.config, table.at_snapshot(unit.base_snapshot_id)
    columns = [*columns_of(configs), "_file", "_pos"]
    flagged = with_guards(tombstones.select(*columns), base, unit.partitions, configs, unit.now_ms)
    removed = files.positions_in(with_position(flagged.where(f"NOT {GUARDS}"), PARTITION))
    table.delete_positions(unit.branch, files, removed)
    counts = UnitCounts({EXPIRED: count_by_log(removed)}, saved_bytes=files.bytes_by_log([removed]))
    return StagedUnit.of(unit, counts, began_ms=began_ms, left_behind=_left_behind(table, plan, unit, spans))


def _left_behind(
    table: TopicTable, plan: RunPlan, unit: WorkUnit, spans: dict[int, list[tuple[int, int]]]
) -> tuple[LeftBehind, ...]:
    """Readers past whose position tombstones go, since the cap of their hold was reached; `gone_to` is the last."""
    holds = {w.partition: w.hold_offset for w in unit.partitions if w.hold_offset is not None}
    overrun = {p: [s for s in spans[p] if s[1] > hold] for p, hold in holds.items()}
    condition = " OR ".join(span_condition({p: span}) for p, of_log in overrun.items() for span in of_log)
    if not condition:
        return ()
    tombstones = table.at_snapshot(unit.base_snapshot_id).where(f"`{VALUE}` IS NULL AND ({condition})")
    rows = tombstones.groupBy(PARTITION).agg(F.max(OFFSET).alias("last")).collect()
    last = {row[PARTITION]: row["last"] for row in rows}
    return tuple(
        LeftBehind(**asdict(reader), gone_to=last[reader.partition]) for reader in left_behind(plan.readers, last)
    )
