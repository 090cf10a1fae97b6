"""Says what a round does to tombstones, and the ledger of their horizons once it is published (semantics.md 1.5, 3.3).

1. An entry of the ledger holds the tombstones below its end and above that of the entry before; all share a horizon.
2. A round adds an entry up to its end: the clock of the tombstones that it is the first to keep starts with it.
3. So does the clock of late tombstones, which lie below the ledger's end: each gets an entry of its own, and where
   they are more than LATE_LIMIT, one entry with a new horizon takes the place of all.
4. An expiry sweeps due entries, no further than to the first tombstone that a record still needs (2, hazards 2 and 3).
5. Tombstones are counted only where there can be any: in entries that had some, and in what no round has read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from operator import or_

from pyspark.sql import functions as F

from cleantail.config.topic_table import OFFSET, PARTITION, VALUE
from cleantail.log.horizons import as_due, new_horizon_ms, spans_of, swept
from cleantail.log.partition_state import (
    Horizon,
    PartitionState,
    spans_with_tombstones,
    with_late_tombstones,
    with_round,
)
from cleantail.log.rules import LogMeasure
from cleantail.log.work_units import PartitionWork, WorkUnit
from cleantail.sources.kcat import LONG_MAX
from spark_jobs.engine.late_contradictions import LateFiles
from spark_jobs.engine.log_task import EntryCounts
from spark_jobs.engine.tombstone_entries import TombstoneLedger
from spark_jobs.iceberg.tables import TopicTable

LATE_LIMIT = 2_000
"""So many late tombstones get a horizon of their own; beyond it all of the log's are set anew, never too early."""


def ledgers_of(
    unit: WorkUnit,
    states: Mapping[int, PartitionState],
    next_ledgers: Mapping[int, tuple[Horizon, ...]],
    expiring: bool,
) -> dict[int, TombstoneLedger]:
    """Returns what tasks know of the tombstones of each log. They look where live ones can be: in entries of the ledger
    that had some, and in what no round has read."""
    ledgers = {}
    for work in unit.partitions:
        horizons = states[work.partition].horizons
        counted = spans_with_tombstones(horizons, work.first_dirty_offset)
        swept_spans = spans_of(work, horizons, unit.now_ms) if expiring else []
        ledgers[work.partition] = TombstoneLedger(
            spans=(*counted, *swept_spans, (work.first_dirty_offset, LONG_MAX)),
            entries=next_ledgers[work.partition],
            due=as_due(work, horizons, unit.now_ms),
            clean_to=work.end_offset,
            hold_offset=work.hold_offset,
            hold_cap_ms=work.hold_cap_ms,
        )
    return ledgers


def with_tombstones(
    measure: LogMeasure, ledger: tuple[Horizon, ...], by_entry: Mapping[int | None, EntryCounts]
) -> LogMeasure:
    """Returns the measures of a log with those of its tombstones: `by_entry` are counted for each entry of the ledger.

    An entry is swept no further than to its first guard, a due tombstone that a record below it still needs.
    """
    none = EntryCounts()
    return replace(
        measure,
        tombstones_in=sum(counts.before for counts in by_entry.values()),
        tombstones_out=sum(counts.after for counts in by_entry.values()),
        guards=sum(counts.guards for counts in by_entry.values()),
        horizons=tuple(
            replace(
                horizon,
                tombstones=(counts := by_entry.get(horizon.end_offset, none)).after,
                swept_to=min(
                    horizon.swept_to, LONG_MAX if counts.guard_from is None or not counts.guards else counts.guard_from
                ),
            )
            for horizon in ledger
        ),
        head_tombstones=by_entry.get(None, none).after,
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
    the first to keep starts now (semantics.md 1.5)."""
    if expiring:
        return swept(work, state.horizons, unit.now_ms)
    horizon_ms = new_horizon_ms(table.topic.config, unit.now_ms)
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
