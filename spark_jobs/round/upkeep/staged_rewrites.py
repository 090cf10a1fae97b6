"""Groups of files, rewritten and not yet on `main`: what they are made of, and how they are dropped again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

from pyspark.errors import PySparkException

from cleantail.config.platform import Platform
from cleantail.errors import ConflictError, TableError
from cleantail.human import counted
from cleantail.lake.runs.reclaim_plan import Group
from spark_jobs.engine.rewrites.new_files import WrittenFile
from spark_jobs.engine.rewrites.rewrite_task import rewrite_all
from spark_jobs.engine.rewrites.table_files import new_data_files
from spark_jobs.engine.rewrites.written_schema import RefusedError
from spark_jobs.engine.tasks import run_tasks
from spark_jobs.iceberg.iceberg_reads import added_data_files
from spark_jobs.iceberg.jvm.many_calls import ask
from spark_jobs.iceberg.planned_files import PlannedFile, by_path, planned_files
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.upkeep.branch_rewriting import stage_on_branch
from spark_jobs.round.upkeep.task_files import rewrite_task

logger = logging.getLogger("cleantail.reclaim")

PLAN_S = 60
"""A plan of the table serves the groups of so many seconds. An older one conflicts more often with what others commit;
a new one costs a scan of all manifests."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Holds a snapshot, and the registrations that it has of the files of all groups, by path."""

    snapshot_id: int
    files: Mapping[str, Sequence[PlannedFile]]

    def of(self, group: Group) -> list[PlannedFile]:
        """Returns the group's files, in offset order. Raises ConflictError where one is gone, or was registered again:
        that one waits for a round that keeps it once."""
        for file in group:
            registrations = self.files.get(file.path, ())
            if len(registrations) != 1:
                happened = "registered again" if registrations else "rewritten"
                raise ConflictError(f"{file.path} was {happened} after the run had begun")
        ordered = sorted(group, key=lambda f: (f.lower_offset, f.upper_offset, f.path))
        return [self.files[file.path][0] for file in ordered]


class Plans:
    """Plans the table anew when the last plan is older than PLAN_S, and not for every group."""

    def __init__(self, table: TopicTable, groups: Iterable[Group]) -> None:
        self._table, self._lock = table, threading.Lock()
        self._paths = {file.path for group in groups for file in group}
        self._plan: Plan | None = None
        self._planned_s = 0.0

    def now(self) -> Plan:
        with self._lock:
            if self._plan is None or time.monotonic() - self._planned_s > PLAN_S:
                iceberg = self._table.load()
                snapshot_id = int(iceberg.currentSnapshot().snapshotId())
                planned = planned_files(iceberg, self._table.jvm, snapshot_id)
                files = by_path(file for file in planned if file.path in self._paths)
                self._plan, self._planned_s = Plan(snapshot_id, files), time.monotonic()
            return self._plan


@dataclass(frozen=True, slots=True)
class Staged:
    """Holds the live records of some groups in new files, of which `main` knows nothing yet. `old`: the files of
    the groups, as the snapshot has them. `branch`: the one that has the new files, or None."""

    snapshot_id: int
    old: Sequence[PlannedFile]
    new: Sequence[Any]
    branch: str | None = None


def stage(table: TopicTable, platform: Platform, batch: Sequence[Group], plans: Plans, number: int) -> Staged:
    """Writes the live records of each group into new files, in offset order. `number`: of the batch in this run.

    Raises ConflictError where a group is not what it was when the run began, RefusedError where one of several groups
    cannot be rewritten by a task, and TableError when the new files have not as many records as live in the old ones.
    No new file is left then.
    """
    plan = plans.now()
    old = [plan.of(group) for group in batch]
    try:
        return _by_task(table, platform, batch, plan, old)
    except RefusedError as e:
        if len(batch) > 1:
            raise
        logger.info("Spark rewrites %s: %s", counted(len(old[0]), "file"), e)
        return _by_spark(table, batch[0], plan, old[0], number)


def _by_task(
    table: TopicTable, platform: Platform, batch: Sequence[Group], plan: Plan, old: Sequence[Sequence[PlannedFile]]
) -> Staged:
    """Returns what a task of spark_jobs.engine.rewrites has written."""
    written: list[WrittenFile] = []
    try:
        iceberg = table.load()
        for group in batch if table.topic.columns is None or table.topic.columns.has_offsets else ():
            _require_no_overlap(group)
        tasks = [rewrite_task(table, platform, iceberg, files) for files in old]
        try:
            [rewritten] = run_tasks(table, platform, rewrite_all, [tasks], "rewrite files without deleted records")
        except PySparkException:
            _require_there(table, old)
            raise
        written = [file for one in rewritten for file in one.files]
        if refusal := rewritten[-1].refusal:
            raise RefusedError(refusal)
        partitions = ask(ask([files[0].task for files in old], "file"), "partition")
        by_partition = [(of, one.files) for of, one in zip(partitions, rewritten, strict=True)]
        new = new_data_files(table, iceberg, iceberg.spec(), by_partition)
        in_order = iter(new)
        for group, one in zip(batch, rewritten, strict=True):
            _require_all_records(group, list(islice(in_order, len(one.files))), one.live_records)
        return Staged(plan.snapshot_id, [file for files in old for file in files], new)
    except BaseException:
        delete_files(table, [file.path for file in written])
        raise


def _require_there(table: TopicTable, old: Iterable[Sequence[PlannedFile]]) -> None:
    """Raises ConflictError if another process has taken one of the files out of the table: then it may be deleted."""
    iceberg = table.load()
    now = {f.path for f in planned_files(iceberg, table.jvm, int(iceberg.currentSnapshot().snapshotId()))}
    if gone := sorted({file.path for files in old for file in files} - now):
        raise ConflictError(f"{gone[0]} was rewritten by another process while this one rewrote it")


def _require_no_overlap(group: Group) -> None:
    """Raises RefusedError where files of the group overlap: a task does not sort."""
    ordered = sorted(group, key=lambda f: (f.lower_offset, f.upper_offset))
    if any(after.lower_offset < before.upper_offset for before, after in pairwise(ordered)):
        raise RefusedError("their offsets overlap")


def _by_spark(table: TopicTable, group: Group, plan: Plan, old: Sequence[PlannedFile], number: int) -> Staged:
    branch = stage_on_branch(table, group, plan.snapshot_id, number)
    try:
        new = added_data_files(table.load(), branch)
        _require_all_records(group, new)
        return Staged(plan.snapshot_id, old, new, branch)
    except BaseException:
        table.drop_branches([branch])
        raise


def _require_all_records(group: Group, new: Sequence[Any], live_records: int | None = None) -> None:
    """Raises ConflictError or TableError unless the new files have the live records of the group. `live_records`: those
    that a task has found in its files."""
    written, expected = sum(int(file.recordCount()) for file in new), sum(f.live_records for f in group)
    if live_records not in (None, expected):
        raise ConflictError("records of these files were deleted after the run had begun")
    if written != expected:
        raise TableError(
            f"rewriting {counted(len(group), 'file')} gave {counted(written, 'record')} for {expected}; "
            "nothing was changed"
        )


def drop_staged(table: TopicTable, staged: Staged) -> None:
    """Drops the branch, whose files go when its snapshot expires, or deletes the files that nothing knows of."""
    if staged.branch is not None:
        table.drop_branches([staged.branch])
    else:
        delete_files(table, [str(file.location()) for file in staged.new])


def delete_files(table: TopicTable, paths: Collection[str]) -> None:
    """Deletes files that no snapshot knows, as far as that can be done: what is left is an orphan."""
    for path in paths:
        try:
            table.load().io().deleteFile(path)
        except Exception as e:
            logger.warning("%s is left, and no snapshot knows it: %s", path, type(e).__name__)
