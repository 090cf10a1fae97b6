"""Rewriting by Spark, onto a branch: for files that the tasks of spark_jobs.engine.rewrites refuse."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import functions as F

from cleantail.config.columns import quoted
from cleantail.config.topic_table import OFFSET, PARTITION
from cleantail.errors import TableError
from cleantail.log.segments import DataFile
from spark_jobs.iceberg.branches import branch_name
from spark_jobs.iceberg.tables import TopicTable


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
