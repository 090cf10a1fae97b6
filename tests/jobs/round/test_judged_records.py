"""The records of a topic's own checks: they are read once for all queries, and nothing of them is kept afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from cleantail.lake.evaluate import evaluate_topic
from spark_jobs.round import approvals as module
from spark_jobs.round.approvals import judged_records, read_once
from spark_jobs.round.make import compact_unit
from tests.jobs.round.test_rounds import NOW, record


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


def test_of_logs_that_the_plan_knows_to_be_many_records_no_file_is_listed_for_it(workshop, table_of, monkeypatch):
    topic = workshop.topic("listed")
    workshop.ok("ingest", topic, "--file", workshop.file("listed.jsonl", [record(n, "k", "v") for n in range(3)]))
    table, _platform = table_of(topic), workshop.platform()
    [unit] = evaluate_topic(table.topic, now_ms=NOW, force=True).units
    staged = compact_unit(table, unit)
    staged = replace(staged, head_snapshot_id=table.head_of(staged.branch))
    with judged_records(table, staged, unit.partitions) as records:
        assert records.is_cached
        assert [(row.offset, row.key, row.value) for row in records.collect()] == [(2, "k", "v")]
    monkeypatch.setattr(module, "FEW_RECORDS", 2)
    monkeypatch.delattr(module, "are_few")
    with judged_records(table, staged, unit.partitions) as records:
        assert not records.is_cached
        assert [row.offset for row in records.collect()] == [2]
