"""Rewriting by Spark, onto a branch: for files that the tasks of spark_jobs.engine.rewrites refuse."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import functions as F

from cleantail.config.columns import quoted
from cleantail.config.topic_table import OFFSET, PARTITION
from cleantail.log.segments import DataFile
from spark_jobs.iceberg.branches import branch_name
from spark_jobs.iceberg.tables import TopicTable


def stage_on_branch(table: TopicTable, group: Sequence[DataFile], base_snapshot_id: int, number: int) -> str:
    """Writes the live records of the group, in offset order, onto a branch, and returns its name. One task of Spark
    reads, sorts and writes them: nothing is shuffled. Of format version 3 the records get new row ids."""
    branch = branch_name(f"rw_{base_snapshot_id}_{number}")
    columns = table.topic.columns
    partition, offset = (columns.partition, columns.offset) if columns else (PARTITION, OFFSET)
    of_log = F.col(quoted(partition)) == group[0].partition
    live = table.stored_at(base_snapshot_id).where(F.col("_file").isin(sorted(f.path for f in group)) & of_log)
    table.create_branch(branch, base_snapshot_id)
    try:
        table.append_to(branch, live.coalesce(1).sortWithinPartitions(quoted(offset)), as_it_is=True)
    except BaseException:
        table.drop_branch(branch)
        raise
    return branch
