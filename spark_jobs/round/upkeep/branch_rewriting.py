"""Rewriting by Spark, onto a branch: for files that the tasks of spark_jobs.engine.rewrites refuse."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.sql import functions as F

from cleantail.config.topic_table import OFFSET, PARTITION, quoted
from cleantail.errors import TableError
from cleantail.log.segments import DataFile
from spark_jobs.iceberg.branches import branch_name
from spark_jobs.iceberg.commits import Load, create_branch, drop_branches, replace_files, write_onto
from spark_jobs.iceberg.iceberg_reads import added_data_files, files_with_deletes, iceberg_table
from spark_jobs.iceberg.tables import AS_PARQUET, TopicTable

SMALL_BYTES = 384 * 1024 * 1024
"""Files that are merged are smaller."""


def merge_beside(table: TopicTable, name: str, of: Any | None, least: int) -> int:
    """Merge small files of a side table, of that quoted name, that can have rows for which the expression `of` holds;
    without one, files of which rows were deleted. Returns how many; 0 if they are fewer than `least`. Raises
    ConflictError if another writer was faster.

    Spark writes onto a branch, and one commit of ours swaps the files. Iceberg's own action deletes the new files if a
    catalog answers its commit with a refusal after it was taken."""
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
        new = added_data_files(written, branch) if int(written.snapshot(branch).snapshotId()) != base else []
        replace_files(table, new, old, base, None, {}, load)
    finally:
        drop_branches(load, [branch])
    return len(old)


def stage_on_branch(table: TopicTable, group: Sequence[DataFile], base_snapshot_id: int, number: int) -> str:
    """Writes the live records of the group, in offset order, onto a branch, and returns its name. One task of Spark
    reads, sorts and writes them: nothing is shuffled. Of format version 3 the records get new row ids."""
    branch = branch_name(f"rw_{base_snapshot_id}_{number}")
    columns = table.topic.columns
    if columns is not None and not columns.has_offsets:
        raise TableError(
            f"table {table.topic.table} has files that reclaim cannot rewrite with their row ids, and its records have "
            "no other offset; they stay as they are. Iceberg keeps row ids: CALL system.rewrite_data_files(table => …)"
        )
    partition, offset = columns.partition_and_offset if columns else (PARTITION, OFFSET)
    of_log = F.col(quoted(partition)) == group[0].partition
    live = table.stored_at(base_snapshot_id).where(F.col("_file").isin(sorted(f.path for f in group)) & of_log)
    table.create_branch(branch, base_snapshot_id)
    try:
        table.append_to(branch, live.coalesce(1).sortWithinPartitions(quoted(offset)), as_it_is=True)
    except BaseException:
        table.drop_branches([branch])
        raise
    return branch
