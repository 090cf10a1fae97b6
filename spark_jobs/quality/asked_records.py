"""The records that Great Expectations asks Spark about, once for every few numbers that its expectations need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.sql import DataFrame

FEW_BYTES = 16 << 20
"""Records of logs with so many live bytes are few: an executor has room for them as they are."""


@contextmanager
def read_once(records: DataFrame, live_bytes: int) -> Iterator[DataFrame]:
    """Gives the records for the questions of the block. Few of them are read from the table by the first question, and
    kept by one executor, in its memory alone, until the block ends; many are read anew by each."""
    if live_bytes > FEW_BYTES:
        yield records
        return
    kept = records.coalesce(1).persist(StorageLevel.MEMORY_ONLY)
    try:
        yield kept
    finally:
        kept.unpersist()
