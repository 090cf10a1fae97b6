"""The records of a topic's own checks: they are read once for all queries, and nothing of them is kept afterwards."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from spark_jobs.quality.asked_records import read_once


@pytest.fixture
def counted(spark):  # type: ignore[no-untyped-def]
    """Gives a frame of six records in two parts, and how many were read of it so far."""
    read = spark.sparkContext.accumulator(0)

    def note(number: int) -> int:
        read.add(1)
        return number

    records = spark.range(0, 6, 1, 2).select(F.udf(note, LongType())("id").alias("offset"))
    return records, read


def test_few_records_are_read_once_for_all_queries_and_by_one_task(counted):
    records, read = counted
    with read_once(records) as asked:
        assert asked.rdd.getNumPartitions() == 1
        assert sorted(row.offset for row in asked.collect()) == list(range(6))
        assert asked.agg(F.sum("offset")).first()[0] == 15
        assert asked.where("offset > 3").count() == 2
    assert read.value == 6


def test_nothing_is_kept_once_the_queries_are_answered_nor_where_one_fails(spark, counted):
    records, _ = counted
    with pytest.raises(RuntimeError, match="a query fails"), read_once(records) as asked:
        assert asked.count() == 6
        assert asked.is_cached
        raise RuntimeError("a query fails")
    assert not asked.is_cached
    assert spark.sparkContext._jsc.getPersistentRDDs().isEmpty()
