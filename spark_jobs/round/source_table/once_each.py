"""Records of a source table once each, and in the order of their logs: DataFrame -> DataFrame, in one shuffle.

Sinks deliver at least once. A copy, which is equal in all that is compared (semantics.md 3.5), is left out; a second
record that differs ends the plan.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from cleantail.config.topic_table import COLUMNS, HEADERS, OFFSET, PARTITION
from cleantail.log.rules import COMPARED
from spark_jobs.round.source_table.guards import differing

_FIRST, _NUMBER = "ct_first", "ct_number"


def once_each(records: DataFrame) -> DataFrame:
    """Returns the records log by log, a log in one task and in the order of its offsets, each offset once."""
    same_offset = Window.partitionBy(PARTITION, OFFSET).orderBy(OFFSET)
    up_to_here = same_offset.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    by_log = records.withColumn(HEADERS, F.coalesce(HEADERS, F.array())).repartition(PARTITION)
    numbered = by_log.select(
        *COLUMNS,
        F.row_number().over(up_to_here).alias(_NUMBER),
        F.first(F.struct(*COMPARED)).over(up_to_here).alias(_FIRST),
    )
    same = " AND ".join(f"{name} <=> {_FIRST}.{name}" for name in COMPARED)
    is_first = f"CASE WHEN {_NUMBER} = 1 THEN true WHEN {same} THEN false ELSE {differing(_FIRST)} END"
    return numbered.where(is_first).select(*COLUMNS)
