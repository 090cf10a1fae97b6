"""Columns of a source table by their names of any time: none is more than a name, and a struct goes with its fields."""

from __future__ import annotations

import pytest

from cleantail.config.topic_table import Columns
from spark_jobs.round.intake.source_frames import SessionTable, SourceFrames
from tests.jobs.source_tables import PLAIN, Sink

HOSTILE = "a` , (SELECT 1) AS `b.c"


def renamed(sink: Sink, spark, name: str) -> None:
    """Renames as a writer does that is not Spark."""
    java = spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, sink.table)
    java.updateSchema().renameColumn("v", name).commit()
    sink.sql("REFRESH TABLE {}")


def test_an_earlier_column_name_is_quoted_and_never_run_as_sql(sink, workshop, reading, records, spark):
    lake = sink("hostile")
    renamed(lake, spark, HOSTILE)
    lake.sql("INSERT INTO {} VALUES (0, 0L, 5L, 'a', 'x')")
    java = spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, lake.table)
    java.updateSchema().renameColumn(HOSTILE, "v").commit()
    topic = reading("hostile-names", lake)
    workshop.ok("ingest", topic)
    assert records(topic) == [(0, 0, 5, "a", "x")]


def test_a_field_that_was_not_there_yet_is_null_whatever_its_type_is_called(sink, workshop, table_of, spark):
    lake = sink("late-struct")
    lake.append((0, 0, 5, "a", "x"))
    lake.sql("ALTER TABLE {} ADD COLUMN late struct<`it's, a: ``b``> int`: int>")
    columns = {**PLAIN, "value": ["v", "late"], "deleted": {"column": "k", "values": ["gone"]}}
    topic = workshop.topic("late-struct-of", source={"table": {"name": lake.name, "columns": columns}})
    workshop.ok("ingest", topic)
    assert [bytes(r.value) for r in table_of(topic).current().collect()] == [b'{"v":"x"}']


ENVELOPE = "p int, o bigint, k string, after struct<id: int, ts: bigint, gone: string>"


# test_columns_are_mapped_as_those_of_adopted_tables in test_table_source.py holds the rule; here a struct with its fields
@pytest.mark.deep
@pytest.mark.parametrize(
    "is_later", [pytest.param(False, marks=pytest.mark.deep), True], ids=["first read", "later read"]
)
def test_a_struct_may_be_mapped_together_with_its_fields(sink, workshop, table_of, is_later):
    """Also where its fields had other names, another order or were fewer at the snapshot that is read."""
    lake = sink(f"envelope-{is_later}", ENVELOPE)
    lake.sql("INSERT INTO {} VALUES (0, 0L, 'a', named_struct('id', 1, 'ts', 7L, 'gone', 'no'))")
    columns = {
        "partition": "p", "offset": "o", "key": "k", "timestamp": "after.ts", "value": "after",
        "deleted": {"column": "after.gone", "values": ["yes"]},
    }  # fmt: skip
    source = {"table": {"name": lake.name, "columns": columns, "on_change": "continue"}}
    topic = workshop.topic(f"envelope-of-{str(is_later).lower()}", source=source)
    if is_later:
        workshop.ok("ingest", topic)
    lake.sql(
        "INSERT INTO {} SELECT 0, o, k, IF(o = 3, NULL, named_struct('id', CAST(o AS INT), 'ts', 8L, 'gone', gone)) "
        "FROM VALUES (1L, 'b', 'no'), (2L, 'c', 'yes'), (3L, 'd', '') AS t(o, k, gone)"
    )
    if is_later:
        lake.sql("INSERT OVERWRITE {} SELECT p, o + 10, k, after FROM {} WHERE o > 0")
    lake.sql("ALTER TABLE {} RENAME COLUMN after.id TO number")
    lake.sql("ALTER TABLE {} ADD COLUMN after.more string FIRST")
    workshop.ok("ingest", topic)
    rows = table_of(topic).current().orderBy("offset").collect()
    found = {r.offset: (r.tombstone, r.value and bytes(r.value)) for r in rows}
    later = {
        offset: (gone, value)
        for n, (gone, value) in {
            1: (False, b'{"value":{"number":1,"ts":8,"gone":"no"}}'),
            2: (True, None),
            3: (False, b""),
        }.items()
        for offset in ([n, n + 10] if is_later else [n])
    }
    name = b"id" if is_later else b"number"
    assert found == {0: (False, b'{"value":{"' + name + b'":1,"ts":7,"gone":"no"}}')} | later


# how much is read of what test_records_that_a_sink_copies_or_changes_in_place_... in test_table_source.py reads
@pytest.mark.deep
def test_of_the_snapshot_before_an_update_only_files_between_its_offsets_are_opened(sink, spark):
    """Also where partition and offset are fields of a struct."""
    columns = "at struct<p: int, o: bigint>, k string, v string"
    lake = sink("pruned", columns, "'format-version'='2', 'write.update.mode'='merge-on-read'")
    for offset in (0, 1, 2):
        lake.sql(f"INSERT INTO {{}} VALUES (named_struct('p', 0, 'o', {offset}L), 'a', 'x')")
    lake.sql("UPDATE {} SET v = 'y' WHERE at.o = 1")
    table = SessionTable(spark, lake.table, lake.name)
    java = spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, lake.table)
    paths = Columns.model_validate({"partition": "at.p", "offset": "at.o", "key": "k", "value": "v"})
    frames = SourceFrames.of(table, java, paths)
    assert frames._added(lake.snapshots[-1], {}).isEmpty()
    snapshot = java.snapshot(lake.snapshots[-1])
    files = list(snapshot.addedDataFiles(java.io()))
    before = frames._at(lake.snapshots[-2]).where(frames._between(files))
    assert before.count() == 1
    plan = before._jdf.queryExecution().executedPlan().toString()
    assert "at.o >= 1" in plan and "at.o <= 1" in plan and "at.p >= 0" in plan, plan
