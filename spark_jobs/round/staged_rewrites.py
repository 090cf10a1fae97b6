"""Rewrite groups of files into new files that are not yet on `main`, and drop them if they are not needed."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cleantail.config.topic_table import OFFSET, PARTITION, TOMBSTONE, quoted
from cleantail.errors import ConflictError, TableError
from cleantail.human import counted
from cleantail.log.segments import DataFile
from cleantail.rounds.run_plan import Group
from spark_jobs.engine.rewrite_task import RewriteSource, RewriteTask, rewrite_all
from spark_jobs.engine.table_files import delete_files, new_data_files, offset_paths, write_settings
from spark_jobs.engine.tasks import run_tasks
from spark_jobs.engine.written_files import RefusedError, TableSchema, WrittenFile
from spark_jobs.iceberg.commits import Load, Replacement, create_branch, drop_branches, replace_files, write_onto
from spark_jobs.iceberg.file_columns import layout_of
from spark_jobs.iceberg.iceberg_reads import added_by, files_with_deletes, iceberg_table, require_own_deletes
from spark_jobs.iceberg.java_calls import each, schema_json, texts
from spark_jobs.iceberg.log_files import LogFile, format_version
from spark_jobs.iceberg.snapshot_files import PlannedFile, by_path, planned_files
from spark_jobs.iceberg.tables import AS_PARQUET, TopicTable, branch_name

SMALL_BYTES = 384 * 1024 * 1024
"""Size below which files are merged."""


def merge_small_files(table: TopicTable, name: str, of: Any | None, least: int) -> int:
    """Merge small files of a side table. Returns their number; 0 if they are fewer than `least`.

    `name`: quoted name of the table. `of`: expression; files that may have matching rows are merged. Without `of`,
    files with deleted rows are merged. Raises ConflictError if another writer was faster.

    Spark writes to a branch, and Cleantail's own commit swaps the files. Iceberg's action would delete the new files if
    the catalog refused a commit that had already succeeded."""
    load: Load = partial(iceberg_table, table.spark, name)
    base = int(load().currentSnapshot().snapshotId())
    planned = [(f, d) for f, d in files_with_deletes(load(), base, of) if int(f.fileSizeInBytes()) < SMALL_BYTES]
    old = planned if of is not None else [(file, deletes) for file, deletes in planned if deletes]
    if len(old) < least:
        return 0
    branch, paths = branch_name("rw_beside"), sorted({str(file.location()) for file, _ in old})
    create_branch(load, branch, base)
    try:
        rows = table.spark.read.option("versionAsOf", str(base)).table(name).where(F.col("_file").isin(paths))
        onto = rows.coalesce(1).writeTo(f"{name}.`branch_{branch}`").option(*AS_PARQUET)
        write_onto(load, branch, onto.append)
        written = load()
        new = added_by(written, branch) if int(written.snapshot(branch).snapshotId()) != base else []
        replace_files(table, Replacement(None, old, new), base, {}, load, [branch])
    except BaseException:
        drop_branches(load, [branch])
        raise
    return len(old)


def stage_on_branch(table: TopicTable, group: Sequence[DataFile], base_snapshot_id: int, number: int) -> str:
    """Write the group's live records, in offset order, to a branch, and return its name. One Spark task reads, sorts
    and writes them, without a shuffle. In format version 3 they get new row ids."""
    branch = branch_name(f"rw_{base_snapshot_id}_{number}")
    columns = table.topic.columns
    if columns is not None and not columns.has_offsets:
        raise TableError(
            f"table {table.topic.table} has files that reclaim cannot rewrite with their row ids, and its records have "
            "no other offset; the files stay. Iceberg's own action keeps row ids: "
            "CALL system.rewrite_data_files(table => …)"
        )
    _, offset = columns.partition_and_offset if columns else (PARTITION, OFFSET)
    live = live_rows(table, group, base_snapshot_id).coalesce(1)
    table.create_branch(branch, base_snapshot_id)
    try:
        table.append_to(branch, live.sortWithinPartitions(quoted(offset)), as_it_is=True)
    except BaseException:
        table.drop_branches([branch])
        raise
    return branch


def live_rows(table: TopicTable, group: Sequence[DataFile], snapshot_id: int) -> DataFrame:
    columns = table.topic.columns
    partition, _ = columns.partition_and_offset if columns else (PARTITION, OFFSET)
    of_log = F.col(quoted(partition)) == group[0].partition
    return table.stored_at(snapshot_id).where(F.col("_file").isin(sorted(f.path for f in group)) & of_log)


def rewrite_task(table: TopicTable, iceberg: Any, files: Sequence[PlannedFile]) -> RewriteTask:
    """Return the task that rewrites these files, which are in offset order. Raises RefusedError if it does not support
    the table, ConflictError if a delete file covers other files."""
    deletes = [list(each(file.task.deletes())) for file in files]
    require_own_deletes(table.jvm, zip((file.path for file in files), deletes, strict=True))
    version = format_version(iceberg)
    _require_plain(iceberg, files)
    first = files[0].task.file()
    spec, columns = iceberg.specs().get(first.specId()), table.topic.columns
    schema = schema_json(iceberg.schema())
    own = columns is None and iceberg.schema().findField(TOMBSTONE) is not None
    name = f"rewritten-{uuid.uuid4()}"  # differs by group, because a table may choose folders by it
    place = (name,) if spec.isUnpartitioned() else (spec, first.partition(), name)
    log_files = [
        LogFile.without_log(f.path, f.facts.records, before=f.delete_files, first_row_id=f.facts.first_row_id)
        for f in files
    ]
    return RewriteTask(
        sources=tuple(RewriteSource(log_file, f.updated) for log_file, f in zip(log_files, files, strict=True)),
        schema=TableSchema(schema, version, TOMBSTONE if own else ""),
        layout=layout_of(iceberg, offset_paths(columns)),
        in_order=columns is None or columns.has_offsets,
        settings=write_settings(texts(iceberg.properties()), table.platform.cleaner.cleantail_task_memory_bytes),
        new_path=str(iceberg.locationProvider().newDataLocation(*place)),
        location=table.platform.warehouse,
    )


def _require_plain(iceberg: Any, files: Sequence[PlannedFile]) -> None:
    """Raise RefusedError unless the files are unencrypted Parquet in one partition of the table's current spec."""
    partitions = {file.facts.partition_key for file in files}
    if len(partitions) > 1 or files[0].facts.spec_id != int(iceberg.spec().specId()):
        raise RefusedError("the table's partitioning changed after the files were written")
    if any(not file.facts.is_parquet for file in files):
        raise RefusedError("not all files are Parquet")
    encrypted = str(iceberg.encryption().getClass().getSimpleName()) != "PlaintextEncryptionManager"
    if encrypted or any(file.facts.key_metadata for file in files):
        raise RefusedError("the files are encrypted")


logger = logging.getLogger("cleantail.reclaim")

PLAN_S = 60
"""Age after which the table is planned again. An older plan conflicts more often with other commits; a new one scans
all manifests."""


@dataclass(frozen=True, slots=True)
class RewritePlan:
    """A snapshot. `files`: path -> registrations, for the files of all groups."""

    snapshot_id: int
    files: Mapping[str, Sequence[PlannedFile]]

    def of(self, group: Group) -> list[PlannedFile]:
        """Return the group's files in offset order. Raises ConflictError if a file was removed, or registered again:
        the next round keeps one registration of it."""
        for file in group:
            registrations = self.files.get(file.path, ())
            if len(registrations) != 1:
                happened = "registered again" if registrations else "rewritten"
                raise ConflictError(f"{file.path} was {happened} after the run started")
        ordered = sorted(group, key=lambda f: (f.lower_offset, f.upper_offset, f.path))
        return [self.files[file.path][0] for file in ordered]


class Plans:
    """Shares one plan of the table between groups until it is older than PLAN_S."""

    def __init__(self, table: TopicTable, groups: Iterable[Group]) -> None:
        self._table, self._lock = table, threading.Lock()
        self._paths = {file.path for group in groups for file in group}
        self._plan: RewritePlan | None = None
        self._planned_s = 0.0

    def now(self) -> RewritePlan:
        with self._lock:
            if self._plan is None or time.monotonic() - self._planned_s > PLAN_S:
                iceberg = self._table.load()
                snapshot_id = int(iceberg.currentSnapshot().snapshotId())
                planned = planned_files(iceberg, self._table.jvm, snapshot_id)
                files = by_path(file for file in planned if file.path in self._paths)
                self._plan, self._planned_s = RewritePlan(snapshot_id, files), time.monotonic()
            return self._plan


@dataclass(frozen=True, slots=True)
class Staged:
    """Rewritten groups that are not yet on `main`. `old`: their files in the snapshot. `new`: files with the live
    records, on `branch` if it is not None."""

    snapshot_id: int
    old: Sequence[PlannedFile]
    new: Sequence[Any]
    branch: str | None = None


def stage(table: TopicTable, batch: Sequence[Group], plans: Plans, number: int) -> Staged:
    """Write the live records of each group into new files, in offset order. `number`: of the batch in this run.

    Raises ConflictError if a group changed after the run started, and RefusedError if a task cannot rewrite one of
    several groups. Raises TableError if old and new files differ in their number of live records. No new file remains
    after an error.
    """
    plan = plans.now()
    old = [plan.of(group) for group in batch]
    try:
        return _by_task(table, batch, plan, old)
    except RefusedError as e:
        if len(batch) > 1:
            raise
        logger.info("Spark rewrites %s: %s", counted(len(old[0]), "file"), e)
        return _by_spark(table, batch[0], plan, old[0], number)


def _by_task(
    table: TopicTable, batch: Sequence[Group], plan: RewritePlan, old: Sequence[Sequence[PlannedFile]]
) -> Staged:
    written: list[WrittenFile] = []
    try:
        iceberg = table.load()
        for group in batch if table.topic.columns is None or table.topic.columns.has_offsets else ():
            ordered = sorted(group, key=lambda f: (f.lower_offset, f.upper_offset))
            if any(after.lower_offset < before.upper_offset for before, after in pairwise(ordered)):
                raise RefusedError("their offsets overlap")  # a task does not sort
        tasks = [rewrite_task(table, iceberg, files) for files in old]
        try:
            [rewritten] = run_tasks(table, rewrite_all, [tasks], "rewrite files without deleted records")
        except PySparkException:
            _require_in_table(table, old)
            raise
        written = [file for one in rewritten for file in one.files]
        if refusal := rewritten[-1].refusal:
            raise RefusedError(refusal)
        partitions = [files[0].task.file().partition() for files in old]
        by_partition = [(of, one.files) for of, one in zip(partitions, rewritten, strict=True)]
        new = new_data_files(table, iceberg, iceberg.spec(), by_partition)
        in_order = iter(new)
        for group, one in zip(batch, rewritten, strict=True):
            _require_all_records(group, list(islice(in_order, len(one.files))), one.live_records)
        return Staged(plan.snapshot_id, [file for files in old for file in files], new)
    except BaseException:
        delete_files(table, [file.path for file in written])
        raise


def _require_in_table(table: TopicTable, old: Iterable[Sequence[PlannedFile]]) -> None:
    """Raise ConflictError if another process removed one of the files from the table: it may be deleted by now."""
    iceberg = table.load()
    now = {f.path for f in planned_files(iceberg, table.jvm, int(iceberg.currentSnapshot().snapshotId()))}
    if gone := sorted({file.path for files in old for file in files} - now):
        raise ConflictError(f"{gone[0]} was rewritten by another process while this one rewrote it")


def _by_spark(table: TopicTable, group: Group, plan: RewritePlan, old: Sequence[PlannedFile], number: int) -> Staged:
    branch = stage_on_branch(table, group, plan.snapshot_id, number)
    try:
        new = added_by(table.load(), branch)
        is_whole = _records(new) == _live_records(group)
        _require_all_records(group, new, None if is_whole else live_rows(table, group, plan.snapshot_id).count())
        return Staged(plan.snapshot_id, old, new, branch)
    except BaseException:
        table.drop_branches([branch])
        raise


def _require_all_records(group: Group, new: Sequence[Any], live_records: int | None = None) -> None:
    """Raise ConflictError or TableError unless the new files have the group's live records. `live_records`: number
    found in the old files."""
    written, expected = _records(new), _live_records(group)
    if live_records not in (None, expected):
        raise ConflictError("records of these files were deleted after the run started")
    if written != expected:
        raise TableError(
            f"rewriting {counted(len(group), 'file')} gave {counted(written, 'record')} for {expected}; "
            "nothing was changed"
        )


def _records(files: Iterable[Any]) -> int:
    return sum(int(file.recordCount()) for file in files)


def _live_records(group: Group) -> int:
    return sum(file.live_records for file in group)


def drop_staged(table: TopicTable, staged: Staged) -> None:
    """Drop the branch, whose files are removed when its snapshot expires, or delete the uncommitted files."""
    if staged.branch is not None:
        table.drop_branches([staged.branch])
    else:
        delete_files(table, [str(file.location()) for file in staged.new])
