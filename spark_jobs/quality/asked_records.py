"""The records that Great Expectations looks at for a topic's own checks. It runs several queries, of which each would
read them anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.sql import DataFrame


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
