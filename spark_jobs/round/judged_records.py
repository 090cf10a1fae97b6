"""The records that a topic's own checks look at: those that a round would publish, as expectations read them.

Great Expectations runs several queries over them, of which each would read them anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cleantail.config.topic_table import KEY, VALUE
from cleantail.log.work_units import PartitionWork
from cleantail.rounds.checked_round import StagedUnit
from spark_jobs.engine.transforms.spans import below_end
from spark_jobs.iceberg.few_records import FEW_RECORDS, are_few
from spark_jobs.iceberg.tables import TopicTable


@contextmanager
def judged_records(table: TopicTable, unit: StagedUnit, works: Sequence[PartitionWork]) -> Iterator[DataFrame]:
    """Gives the records of the works' logs on the unit's branch. Few of them are read once."""
    records = as_text(below_end(table.at_branch(unit.branch), works))
    with read_once(records) if branch_has_few(table, unit, works) else nullcontext(records) as judged:
        yield judged


def branch_has_few(table: TopicTable, unit: StagedUnit, works: Sequence[PartitionWork]) -> bool:
    """Returns whether the branch's files have few records of these logs. Where the plan of the round knows of more, the
    files are not listed once more."""
    if sum(work.records for work in works) > FEW_RECORDS:
        return False
    return are_few(table.files_at(unit.head_snapshot_id).sizes_of([work.partition for work in works]))


def as_text(records: DataFrame) -> DataFrame:
    """Returns the records as the topic's own expectations read them: key and value as UTF-8 text."""
    return records.withColumns({KEY: F.col(KEY).cast("string"), VALUE: F.col(VALUE).cast("string")})


@contextmanager
def read_once(records: DataFrame) -> Iterator[DataFrame]:
    """Gives few records (spark_jobs.iceberg.few_records) for the queries of the block: the first one reads them from
    the table, in one task, and an executor keeps them in its memory until the block ends. Where it has no room for
    them, each query reads them anew; nothing of them comes to a disk."""
    kept = records.coalesce(1).persist(StorageLevel.MEMORY_ONLY)
    try:
        yield kept
    finally:
        kept.unpersist()
