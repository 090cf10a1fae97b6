"""What a round does to tombstones, and the ledger of their horizons once it is published (semantics.md 3.3).

1. An entry of the ledger holds the tombstones below its end and above that of the entry before; all share a horizon.
2. A round adds an entry up to its end: the clock of the tombstones that it is the first to keep starts with it.
3. So does the clock of late tombstones, which lie below the ledger's end: each gets an entry of its own, and where
   they are more than LATE_LIMIT, one entry with a new horizon takes the place of all.
4. An expiry sweeps due entries, no further than to the first tombstone that a record still needs (2, hazards 2 and 3).
5. Tombstones are counted only where there can be any: in entries that had some, and in what no round has read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from cleantail.config.topic_table import OFFSET, PARTITION, VALUE
from cleantail.log.log_measure import LogMeasure
from cleantail.log.partition_state import (
    Horizon,
    PartitionState,
    spans_with_tombstones,
    with_late_tombstones,
    with_round,
)
from cleantail.log.tombstones import as_due, spans_of, swept
from cleantail.log.work_units import PartitionWork, WorkUnit
from cleantail.sources.kcat import LONG_MAX
from spark_jobs.engine.late_contradictions import LateFiles
from spark_jobs.engine.transforms.needed_tombstones import GUARDS, with_guards
from spark_jobs.engine.transforms.record_bits import ENTRY, tombstone_bits, tombstones_in
from spark_jobs.iceberg.snapshot_files import SnapshotFiles
from spark_jobs.iceberg.tables import TopicTable

LATE_LIMIT = 2_000
"""So many late tombstones get a horizon of their own; beyond it all of the log's are set anew, never too early."""


def tombstones_of(
    table: TopicTable,
    unit: WorkUnit,
    files: SnapshotFiles,
    states: dict[int, PartitionState],
    ledgers: dict[int, tuple[Horizon, ...]],
    expiring: bool,
) -> DataFrame | None:
    """Returns the tombstones where live ones can be: in entries of the ledger that had some, and in what no round has
    read. None where the metadata show that there is not one."""
    logs = {w.partition for w in unit.partitions}
    if not (expiring or files.may_have_null(VALUE, logs)):
        return None
    due = {w.partition: as_due(w, states[w.partition].horizons, unit.now_ms) for w in unit.partitions}
    spans = {}
    for work in unit.partitions:
        horizons = states[work.partition].horizons
        counted = spans_with_tombstones(horizons, work.first_dirty_offset)
        swept = spans_of(work, horizons, unit.now_ms) if expiring else []
        spans[work.partition] = [*counted, *swept, (work.first_dirty_offset, LONG_MAX)]
    base, configs = table.at_snapshot(unit.base_snapshot_id), table.topic.config
    tombstones = tombstones_in(base, spans, configs)
    if expiring:
        tombstones = with_guards(tombstones, base, unit.partitions, configs, unit.now_ms)
    else:
        tombstones = tombstones.withColumn(GUARDS, F.lit(False))
    return tombstone_bits(tombstones, unit.partitions, ledgers, due, unit.now_ms)


def with_tombstones(measure: LogMeasure, ledger: tuple[Horizon, ...], by_entry: Sequence[Row]) -> LogMeasure:
    """Returns the measures of a log with those of its tombstones: `by_entry` are counted for each entry of the ledger.

    An entry is swept no further than to its first guard, a due tombstone that a record below it still needs.
    """
    rows = [row for row in by_entry if row[PARTITION] == measure.partition]
    alive = {row[ENTRY]: row["tombstones_out"] for row in rows}
    guards = {row[ENTRY]: row["guard_from"] for row in rows if row["guards"]}
    return replace(
        measure,
        tombstones_in=sum(row["tombstones_in"] for row in rows),
        tombstones_out=sum(alive.values()),
        guards=sum(row["guards"] for row in rows),
        horizons=tuple(
            replace(
                horizon,
                tombstones=alive.get(horizon.end_offset, 0),
                swept_to=min(horizon.swept_to, guards.get(horizon.end_offset, LONG_MAX)),
            )
            for horizon in ledger
        ),
        head_tombstones=alive.get(None, 0),
    )


def next_ledger(
    table: TopicTable,
    unit: WorkUnit,
    work: PartitionWork,
    state: PartitionState,
    late_by_log: Mapping[int, LateFiles],
    expiring: bool,
) -> tuple[Horizon, ...]:
    """Returns the ledger of horizons as it is once this round is published. The clock of a tombstone that the round is
    the first to keep starts now."""
    if expiring:
        return swept(work, state.horizons, unit.now_ms)
    horizon_ms = min(unit.now_ms + table.topic.config.delete_retention_ms, LONG_MAX)
    tombstones = _late_tombstones(table, unit, work, late_by_log[work.partition])
    if len(tombstones) > LATE_LIMIT:
        return (Horizon(max(work.end_offset, state.ledger_end_offset), horizon_ms),)
    return with_late_tombstones(with_round(state.horizons, work.end_offset, horizon_ms), tombstones, horizon_ms)


def _late_tombstones(table: TopicTable, unit: WorkUnit, work: PartitionWork, ranges: LateFiles) -> list[int]:
    """Returns the offsets of live tombstones below the ledger's end that this round is the first to pass over: their
    clock starts now."""
    if not ranges:
        return []
    spans = [F.col(OFFSET).between(low, high - 1) & F.col("_file").isin(list(files)) for low, high, files in ranges]
    tombstones = table.at_branch(unit.branch).where((F.col(PARTITION) == work.partition) & F.col(VALUE).isNull())
    rows = tombstones.where(reduce(or_, spans)).select(OFFSET).limit(LATE_LIMIT + 1).collect()
    return sorted(row[OFFSET] for row in rows)
