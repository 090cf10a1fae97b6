"""The ledger of deleted versions: what an expired tombstone's rank was, for as long as late records may come.

A side table of (partition, key) with the rank of the tombstone that has gone. While the round's clock is before
`forget_at_ms`, a record that ranks below it does not come back to life (semantics.md 2, hazard 2).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cleantail.config.settings.config_model import LONG_MAX
from cleantail.config.settings.kafka_configs import KafkaConfigs
from cleantail.config.topic_table import KEY, LEDGER_SUFFIX, OFFSET, PARTITION, VALUE
from cleantail.log.ranking import strategy_text
from cleantail.log.work_units import WorkUnit
from spark_jobs.engine.transforms.winners import below_end, columns_of, rank
from spark_jobs.iceberg.snapshot_files import FILE, POS, with_position
from spark_jobs.iceberg.tables import TopicTable

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


def remembered(table: TopicTable, now_ms: int) -> DataFrame | None:
    """Returns (partition, key, deleted: a rank) of the deletions that are remembered at `now_ms`; None where there are
    none."""
    configs = table.topic.config
    if not configs.cleantail_tombstone_lateness_ms or not table.spark.catalog.tableExists(ledger_table(table)):
        return None
    rows = table.spark.table(ledger_table(table)).where(
        (F.col("forget_at_ms") > now_ms) & (F.col("strategy") == strategy_text(configs))
    )
    return rows.groupBy(PARTITION, KEY).agg(F.max(_rank(configs)).alias("deleted"))


def _rank(configs: KafkaConfigs) -> Column:
    """Returns the same struct by which records are compared."""
    return F.struct(OFFSET) if configs.compaction_strategy == "offset" else F.struct("has_version", "version", OFFSET)


def remember(table: TopicTable, units: Sequence[WorkUnit], green: set[int]) -> None:
    """Writes the ranks of the tombstones that an expiry is about to publish as gone.

    A crash before that publish leaves entries of tombstones that are still there: they are not above themselves, so
    nothing is lost by it.
    """
    configs = table.topic.config
    if not configs.cleantail_tombstone_lateness_ms:
        return
    for unit in units:
        works = [w for w in unit.partitions if w.partition in green]
        if works:
            _forget(table, unit.now_ms)
            forget_at_ms = min(unit.now_ms + configs.cleantail_tombstone_lateness_ms, LONG_MAX)
            _write(table, _expired(table, unit, green), configs, unit.now_ms, forget_at_ms)


def _expired(table: TopicTable, unit: WorkUnit, green: set[int]) -> DataFrame:
    """Returns the tombstones that the base has and the unit's branch no longer has."""
    works = [w for w in unit.partitions if w.partition in green]
    before = below_end(table.at_snapshot(unit.base_snapshot_id), works).where(F.col(VALUE).isNull())
    after = with_position(table.at_branch(unit.branch).where(F.col(PARTITION).isin([w.partition for w in works])))
    placed = with_position(before, *columns_of(table.topic.config))
    return placed.join(after, [FILE, POS], "left_anti").where(F.col(KEY).isNotNull())


def _write(table: TopicTable, tombstones: DataFrame, configs: KafkaConfigs, now_ms: int, forget_at_ms: int) -> None:
    ranked = tombstones.withColumn("rank", rank(configs, now_ms))
    versioned = configs.compaction_strategy != "offset"
    ranked.select(
        PARTITION,
        KEY,
        F.lit(strategy_text(configs)).alias("strategy"),
        (F.col("rank.has_version") if versioned else F.lit(False)).alias("has_version"),
        (F.col("rank.version") if versioned else F.lit(0).cast("bigint")).alias("version"),
        OFFSET,
        F.lit(forget_at_ms).cast("bigint").alias("forget_at_ms"),
    ).coalesce(1).writeTo(ledger_table(table)).append()


def ensure_ledger(table: TopicTable) -> None:
    """Makes the side table where there is none."""
    columns = ", ".join(f"`{column}` {kind}" for column, kind in COLUMNS.items())
    properties = "'format-version'='2', 'commit.retry.num-retries'='20'"
    table.ensure_side_table(ledger_table(table), columns, properties)


def _forget(table: TopicTable, now_ms: int) -> None:
    """Drops what is past its time."""
    ensure_ledger(table)
    past = f"forget_at_ms <= {now_ms:d}"
    if table.spark.table(ledger_table(table)).where(past).limit(1).count():
        table.spark.sql(f"DELETE FROM {ledger_table(table)} WHERE {past}")
