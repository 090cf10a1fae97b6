"""The side table of records without a key, where `cleantail.keyless.policy` is `quarantine` (semantics.md 3.7)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from cleantail.config.topic_table import KEY, KEYLESS_SUFFIX, OFFSET, PARTITION
from cleantail.log.work_units import WorkUnit
from spark_jobs.engine.transforms.spans import below_end
from spark_jobs.iceberg.adopted_columns import METADATA
from spark_jobs.iceberg.iceberg_reads import files_with_deletes
from spark_jobs.iceberg.tables import TopicTable


def side_table(table: TopicTable) -> str:
    return f"{table.name[:-1]}{KEYLESS_SUFFIX}`"


def move_keyless(table: TopicTable, units: Sequence[WorkUnit], green: Collection[int]) -> None:
    """Copies the keyless records of the logs about to be published, of one that is there twice the first (3.5). They
    leave the topic table in the commit after it; a crash between the two copies nothing twice, since what is in the
    side table already is left out."""
    for unit in units:
        works = [w for w in unit.partitions if w.partition in green]
        records = below_end(table.at_snapshot(unit.base_snapshot_id), works).where(F.col(KEY).isNull())
        if works and records.limit(1).count():
            name = side_table(table)
            _create_like(table, name)
            held = table.spark.table(name).select(PARTITION, OFFSET)
            once = _without_copies(table, records, unit.base_snapshot_id)
            fresh = once.join(held, [PARTITION, OFFSET], "left_anti")
            table.append_beside(name, fresh.select(*table.spark.table(name).columns))


def _without_copies(table: TopicTable, records: DataFrame, base_snapshot_id: int) -> DataFrame:
    """Returns the records without the later copies of an offset: one row for each."""
    came = Window.partitionBy(PARTITION, OFFSET).orderBy("arrived", "_file", "_pos")
    placed = records.select("*", "_file", "_pos") if "_file" not in records.columns else records
    ordered = placed.join(F.broadcast(_arrivals(table, base_snapshot_id)), "_file")
    return ordered.withColumn("nth", F.row_number().over(came)).where("nth = 1")


def _arrivals(table: TopicTable, snapshot_id: int) -> DataFrame:
    """Returns (_file, arrived): the data sequence number of every data file of a snapshot."""
    files = files_with_deletes(table.load(), snapshot_id)
    rows = [(str(file.location()), int(file.dataSequenceNumber())) for file, _ in files]
    return table.spark.createDataFrame(rows, "_file string, arrived bigint")


def _create_like(table: TopicTable, name: str) -> None:
    fields = [f for f in table.current().schema if f.name not in METADATA]
    columns = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in fields)
    table.ensure_side_table(name, columns, "'format-version'='3'")
