"""The ledger of deleted versions: the rank of each expired tombstone, kept as long as late records may arrive.

The ledger is a side table of (partition, key) with the rank of the removed tombstone. Until the round's clock reaches
`forget_at_ms`, a late record with a lower rank does not bring the key back (semantics.md 2, hazard 2).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cleantail.config.config_model import LONG_MAX
from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.topic_table import KEY, LEDGER_SUFFIX, OFFSET, PARTITION, VALUE
from cleantail.log.winners import latest_timestamp_ms, rank_sql, strategy_text
from cleantail.log.work_units import WorkUnit
from spark_jobs.engine.log_task import Remembered
from spark_jobs.iceberg.commits import drop_files
from spark_jobs.iceberg.file_columns import layout_of
from spark_jobs.iceberg.iceberg_reads import asked_again, iceberg_table
from spark_jobs.iceberg.snapshot_files import SnapshotFiles
from spark_jobs.iceberg.tables import TopicTable, below_end, spans_read

COLUMNS = {
    PARTITION: "int",
    KEY: "binary",
    "strategy": "string",
    "has_version": "boolean",
    "version": "bigint",
    OFFSET: "bigint",
    "forget_at_ms": "bigint",
}


def ledger_table(table: TopicTable) -> str:
    return f"{table.name[:-1]}{LEDGER_SUFFIX}`"


def remembered_files(table: TopicTable, logs: Collection[int]) -> Remembered:
    """Return the side table's files of these logs. Rows may have expired, so a task checks each row's time."""
    name = ledger_table(table)
    if not table.topic.config.cleantail_tombstone_lateness_ms or not table.spark.catalog.tableExists(name):
        return Remembered()
    iceberg = iceberg_table(table.spark, name)
    snapshot = iceberg.currentSnapshot()
    if snapshot is None:
        return Remembered()
    files = SnapshotFiles(table.jvm, iceberg, int(snapshot.snapshotId()))
    return Remembered(tuple(files.log_files(logs)), layout_of(iceberg, {name: name for name in COLUMNS}))


def remember(table: TopicTable, units: Sequence[WorkUnit], green: set[int]) -> None:
    """Write the ranks of the tombstones that an expiry is about to remove by its publish.

    A crash before the publish leaves entries for tombstones that the table still has. These entries do no harm, because
    a tombstone does not rank below its own entry.
    """
    configs = table.topic.config
    if not configs.cleantail_tombstone_lateness_ms:
        return
    for unit in units:
        works = [w for w in unit.partitions if w.partition in green]
        if works:
            ensure_ledger(table)
            # all rows of a file have the same time
            _drop_where(table, f"content = 0 AND readable_metrics.forget_at_ms.upper_bound <= {unit.now_ms:d}")
            forget_at_ms = min(unit.now_ms + configs.cleantail_tombstone_lateness_ms, LONG_MAX)
            before = below_end(table.at_snapshot(unit.base_snapshot_id), works)
            tombstones = before.where(F.col(KEY).isNotNull() & F.col(VALUE).isNull())
            with table.on_branch(unit.branch, spans_read(works)) as after:  # records at one offset are equal
                expired = tombstones.join(after, [PARTITION, OFFSET], "left_anti")
                _write(table, expired, configs, unit.now_ms, forget_at_ms)


def _write(table: TopicTable, tombstones: DataFrame, configs: KafkaConfigs, now_ms: int, forget_at_ms: int) -> None:
    rank = rank_sql(configs, f"{latest_timestamp_ms(configs, now_ms):d}L")
    ranked = tombstones.withColumn("rank", F.expr(rank))
    versioned = configs.compaction_strategy != "offset"
    rows = ranked.select(
        PARTITION,
        KEY,
        F.lit(strategy_text(configs)).alias("strategy"),
        (F.col("rank.has_version") if versioned else F.lit(False)).alias("has_version"),
        (F.col("rank.version") if versioned else F.lit(0).cast("bigint")).alias("version"),
        OFFSET,
        F.lit(forget_at_ms).cast("bigint").alias("forget_at_ms"),
    )
    table.append_rows(ledger_table(table), rows.coalesce(1))


def ensure_ledger(table: TopicTable) -> None:
    columns = ", ".join(f"`{column}` {kind}" for column, kind in COLUMNS.items())
    properties = "'format-version'='2', 'commit.retry.num-retries'='20'"
    table.ensure_side_table(ledger_table(table), columns, properties)


def forget_all(table: TopicTable) -> None:
    """Drop all entries, because the table's present content may never have had their tombstones."""
    if table.spark.catalog.tableExists(ledger_table(table)):
        _drop_where(table, "content = 0")


def _drop_where(table: TopicTable, past: str) -> None:
    query = f"SELECT file_path FROM {ledger_table(table)}.files WHERE {past}"
    rows = asked_again(lambda: table.spark.sql(query).collect())
    if rows:
        drop_files(partial(iceberg_table, table.spark, ledger_table(table)), {row.file_path for row in rows})
