"""The records that a restore writes, pinned by a branch of the table (cleantail.kafka.restore_target).

Of the latest records the branch is made as a round makes its own: what does not win is deleted there. So one place says
which record wins, and every later run of the restore reads what the first one has found.
"""

from __future__ import annotations

from collections.abc import Sequence

from cleantail.config.platform import Platform
from cleantail.kafka.restore_plan import RestorePlan
from cleantail.kafka.restore_target import PIN, RESTORE_PIN_JSON, RestorePin
from cleantail.log.segments import DataFile
from cleantail.log.work_units import PartitionWork, WorkUnit
from spark_jobs.engine.registrations import registered_twice
from spark_jobs.engine.shared.work import run_work
from spark_jobs.engine.tasks import files_of, log_tasks, with_footers
from spark_jobs.iceberg.branches import branch_name
from spark_jobs.iceberg.snapshot_files import union_of
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.restore.ordered_log import LogSource
from spark_jobs.round.make import FIND_REMOVALS, removed_positions


def pin_records(table: TopicTable, platform: Platform, plan: RestorePlan) -> str:
    """Makes the branch, and returns its name."""
    pin, branch = plan.pin, branch_name(plan.stem)
    files = table.files_at(pin.snapshot_id)
    summary = {PIN: RESTORE_PIN_JSON.packed(pin)}
    if pin.mode == "log":
        table.delete_positions(branch, files, {}, (), summary)
        return branch
    unit = WorkUnit("restore", 0, pin.now_ms, pin.snapshot_id, branch, _works(pin, plan.files))
    tasks = log_tasks(table, platform, unit, files)
    removals = run_work(table, platform, FIND_REMOVALS, tasks)
    removed = union_of(removed_positions(removals, {}).values())
    table.delete_positions(branch, files, removed, registered_twice(tasks), summary)
    return branch


def _works(pin: RestorePin, files: Sequence[DataFile]) -> tuple[PartitionWork, ...]:
    """Returns the logs as a round would have them that compacts all of each."""
    return tuple(_work(pin, p, [f for f in files if f.partition == p]) for p in sorted({f.partition for f in files}))


def _work(pin: RestorePin, partition: int, files: Sequence[DataFile]) -> PartitionWork:
    start, end = pin.starts.get(partition, 0), max(f.upper_offset for f in files) + 1
    records = sum(f.records for f in files)
    return PartitionWork(
        partition=partition,
        first_dirty_offset=min(start, end),
        end_offset=end,
        log_start_offset=start,
        log_end_offset=end,
        bytes=sum(f.live_bytes for f in files),
        dirty_records=records,
        dirty_bytes=sum(f.live_bytes for f in files),
        read_bytes=sum(f.live_bytes for f in files),
        records=records,
    )


def pinned_logs(table: TopicTable, platform: Platform, pin: RestorePin, branch: str) -> list[LogSource]:
    """Returns the records of every partition, of those without any, too. Raises ConflictError where the branch is
    gone."""
    files, logs = table.files_at(table.head_of(branch)), set(range(pin.partitions))
    log_files = with_footers(table, platform, files.log_files(logs), files.layout, logs)
    return [
        LogSource(
            partition=partition,
            files=files_of([PartitionWork(partition, 0, 0, 0, 0)], log_files),
            layout=files.layout,
            start=pin.starts.get(partition, 0),
            tombstones=pin.mode == "log",
            location=platform.warehouse,
            memory_bytes=platform.cleaner.cleantail_task_memory_bytes,
        )
        for partition in sorted(logs)
    ]
