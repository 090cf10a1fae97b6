"""Compact one work unit: find superseded records from key columns, write delete files onto a branch.

The unit came through Airflow's database: its bounds have to be those that the table's metadata give (exit code 5).
Values are never read and `main` is not changed: check_quality reads the branch, publish replays it. A unit that runs
again (a retry, a killed job) starts from the same base snapshot on a fresh branch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from pyroaring import BitMap64
from pyspark.sql import SparkSession

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.lake.runs.planned_units import planned_unit
from cleantail.log.task_shares import ends_where_full, map_slots, task_plan
from cleantail.log.work_units import WorkUnit
from cleantail.rounds.checked_round import STAGED_UNIT_JSON, UNIT, StagedUnit, UnitCounts
from spark_jobs.engine.compared_readers import compare_readers
from spark_jobs.engine.log_task import LogRemovals, merged_removals
from spark_jobs.engine.registrations import records_again, registered_twice, removed_with
from spark_jobs.engine.removals import INVALID, SUPERSEDED, decide_bucket, find_removals, read_share
from spark_jobs.engine.shared.work import Work, run_work
from spark_jobs.engine.tasks import log_tasks
from spark_jobs.iceberg.branches import branch_name
from spark_jobs.iceberg.snapshot_files import RemovedPositions, count_by_log, union_of
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.released_logs import note_rewritten

FIND_REMOVALS = Work("find what a round removes", find_removals, read_share, decide_bucket, merged_removals)


def compact_requested(
    session: Callable[[], SparkSession], topic: Topic, platform: Platform, requested: WorkUnit, clock_ms: int
) -> StagedUnit:
    """Compacts the unit that a task was handed. Raises HeldError before the session is there where it is not as the
    table's metadata plan it (planned_unit)."""
    unit = planned_unit(topic, platform, requested, clock_ms)
    return compact_unit(TopicTable.of(session(), topic, platform), platform, unit)


def compact_unit(table: TopicTable, platform: Platform, unit: WorkUnit) -> StagedUnit:
    """Writes what the unit removes onto a branch of its own, and returns the unit with its counts. Nothing is removed
    from a log that `cleantail.keyless.policy` holds back, or that two readers see differently (compared_readers): the
    counts name it, and its check is red."""
    began_s, began_ms = time.monotonic(), int(time.time() * 1000)
    note_rewritten(table, unit.now_ms)
    files = table.files_at(unit.base_snapshot_id)
    unit = replace(unit, branch=branch_name(unit.branch))
    tasks = log_tasks(table, platform, unit, files, by_rounds=ends_where_full(platform.cleaner))
    plan = task_plan(unit, platform, table.topic.config, any(file.log is None for task in tasks for file in task.files))
    removals = run_work(table, platform, FIND_REMOVALS, tasks)
    # up to the end that was planned: nothing is begun that must fail later
    keyless = {log: records for each in removals for log, records in each.keyless.items()}
    kept = keyless if table.topic.config.cleantail_keyless_policy == "fail" else {}
    retained = {work.partition for work in unit.partitions if work.only_retention}
    compared = compare_readers(table, platform, unit, files, tasks, retained)
    held = {**kept, **compared.blocked}
    by_reason = removed_positions(removals, held)
    unit = with_ends(unit, removals)
    twice = registered_twice(tasks, held)
    counts = UnitCounts(
        deleted={reason: count_by_log(positions) for reason, positions in by_reason.items()}
        | removed_with(twice, records_again(table, platform, tasks, held)),
        hidden_bytes=files.bytes_by_log(positions for reason, positions in by_reason.items() if reason != "retention"),
        saved_bytes=files.bytes_by_log(by_reason.values()),
        plan=plan,
        keyless=kept,
        misread=compared.blocked,
    )
    staged = StagedUnit.of(
        unit,
        counts,
        began_ms=began_ms,
        clean_ms=int((time.monotonic() - began_s) * 1000),
        map_slots=map_slots(platform.cleaner, table.topic.config),
    )
    done = {UNIT: STAGED_UNIT_JSON.packed(staged)}
    table.delete_positions(unit.branch, files, union_of(by_reason.values()), twice, done, compared.properties)
    return staged


def removed_positions(removals: Sequence[LogRemovals], held: Collection[int]) -> dict[str, RemovedPositions]:
    """Returns the positions by reason, without those of logs that are held back."""
    by_reason: dict[str, dict[tuple[int, int], BitMap64]] = {SUPERSEDED: {}}
    for each in removals:
        for reason, positions in each.positions.items():
            kept = {name: BitMap64.deserialize(bits) for name, bits in positions.items() if name[0] not in held}
            by_reason.setdefault(reason, {}).update(kept)
    return {reason: positions for reason, positions in by_reason.items() if positions or reason != INVALID}


def with_ends(unit: WorkUnit, removals: Sequence[LogRemovals]) -> WorkUnit:
    """Returns the unit with the ends at which the maps of its logs were full."""
    ends = {log: end for each in removals for log, end in each.ends.items()}
    works = (w.ending_at(ends[w.partition]) if w.partition in ends else w for w in unit.partitions)
    return replace(unit, partitions=tuple(works))
