"""The side table of records without a key, where `cleantail.keyless.policy` is `quarantine` (semantics.md 3.7)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cleantail.config.topic_table import KEY, KEYLESS_SUFFIX, OFFSET, PARTITION
from cleantail.log.work_units import PartitionWork, WorkUnit
from spark_jobs.engine.transforms.winners import ROW_ID, below_end, copies_of
from spark_jobs.iceberg.adopted_columns import METADATA
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
            once = _without_copies(table, records, works, unit.base_snapshot_id)
            fresh = once.join(held, [PARTITION, OFFSET], "left_anti")
            fresh.select(*table.spark.table(name).columns).writeTo(name).append()


def _without_copies(
    table: TopicTable, records: DataFrame, works: Sequence[PartitionWork], base_snapshot_id: int
) -> DataFrame:
    """Returns the records without the later copies of an offset: one row for each."""
    whole = [replace(w, first_dirty_offset=w.log_start_offset) for w in works]
    placed = records.select(PARTITION, OFFSET, ROW_ID, "_file")
    copies = copies_of(placed, whole, partial(table.arrivals_at, base_snapshot_id))
    if copies is None:
        return records
    with_row_id = records if ROW_ID in records.columns else records.select("*", ROW_ID)
    return with_row_id.join(copies.select(ROW_ID), ROW_ID, "left_anti").drop(ROW_ID)


def _create_like(table: TopicTable, name: str) -> None:
    fields = [f for f in table.current().schema if f.name not in METADATA]
    columns = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in fields)
    table.ensure_side_table(name, columns, "'format-version'='3'")
