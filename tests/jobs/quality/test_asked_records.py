"""The records of a topic's own checks: few are read once for all questions, and nothing of them is kept afterwards."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from spark_jobs.quality.asked_records import FEW_BYTES, read_once


@pytest.fixture
def counted(spark):  # type: ignore[no-untyped-def]
    """Gives a frame of six records in two parts, and how many were read of it so far."""
    read = spark.sparkContext.accumulator(0)

    def note(number: int) -> int:
        read.add(1)
        return number

    records = spark.range(0, 6, 1, 2).select(F.udf(note, LongType())("id").alias("offset"))
    return records, read


@pytest.mark.parametrize(("live_bytes", "reads"), [(0, 1), (FEW_BYTES, 1), (FEW_BYTES + 1, 3)])
def test_few_records_are_read_once_for_all_questions_and_many_for_each(counted, live_bytes, reads):
    records, read = counted
    with read_once(records, live_bytes) as asked:
        assert sorted(row.offset for row in asked.collect()) == list(range(6))
        assert asked.agg(F.sum("offset")).first()[0] == 15
        assert asked.where("offset > 3").count() == 2
    assert read.value == 6 * reads


def test_nothing_is_kept_once_the_questions_are_answered_nor_where_one_fails(spark, counted):
    records, _ = counted
    with pytest.raises(RuntimeError, match="a question fails"), read_once(records, 0) as asked:
        assert asked.count() == 6
        assert asked.is_cached
        raise RuntimeError("a question fails")
    assert not asked.is_cached
    assert spark.sparkContext._jsc.getPersistentRDDs().isEmpty()
