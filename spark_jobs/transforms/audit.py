"""What a branch did to its base, measured on the records of both: one row a log.

Base and branch have the same data files, so a record is known by its row id. One join of the two by row id tells
which records survived; one grouping by key tells what became of every key's winner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cleantail.kafka_configs import KafkaConfigs
from cleantail.partition_state import Horizon
from cleantail.ranking import latest_timestamp_ms, malformed_header_sql
from cleantail.topic_table import KEY, OFFSET, PARTITION, TIMESTAMP, VALUE
from cleantail.work_units import PartitionWork
from spark_jobs.tables import ROW_ID
from spark_jobs.transforms.winners import by_partition, columns_of, rank

NO_HORIZON_MS = (1 << 63) - 1
SURVIVED = "survived"
TOMBSTONE = "is_tombstone"
DUE = "horizon_ms"


def fates(
    base: DataFrame,
    branch: DataFrame,
    works: Sequence[PartitionWork],
    configs: KafkaConfigs,
    horizons: Mapping[int, Sequence[Horizon]],
    tombstones_in: set[int],
) -> DataFrame:
    """Every record of the works' logs in base or branch: (partition, offset, key, rank columns, is_tombstone,
    horizon_ms, in_base, survived, dirty, below_end, in_log).

    `horizon_ms` is when a tombstone may go: its horizon, and where a reader holds it, the cap on top.

    `tombstones_in`: logs whose files hold null values at all; in the others no value is looked at.
    """
    logs = [w.partition for w in works]
    columns = [*columns_of(configs), F.col(ROW_ID), _is_tombstone(tombstones_in).alias(TOMBSTONE)]
    before = base.where(F.col(PARTITION).isin(logs)).select(*columns, F.lit(True).alias("in_base"))
    after = branch.where(F.col(PARTITION).isin(logs)).select(
        F.col(ROW_ID), F.col(PARTITION).alias("after_partition"), F.lit(True).alias("in_branch")
    )
    joined = before.join(after, ROW_ID, "full_outer")
    partition = F.coalesce(F.col(PARTITION), F.col("after_partition"))
    return (
        joined.withColumn(PARTITION, partition)
        .withColumn("in_base", F.coalesce("in_base", F.lit(False)))
        .withColumn(SURVIVED, F.coalesce("in_branch", F.lit(False)))
        .withColumn("below_end", F.col(OFFSET) < by_partition({w.partition: w.end_offset for w in works}))
        .withColumn("in_log", F.col(OFFSET) >= by_partition({w.partition: w.log_start_offset for w in works}))
        .withColumn("dirty", F.col(OFFSET) >= by_partition({w.partition: w.first_dirty_offset for w in works}))
        .withColumn(DUE, ledger_column(horizons, lambda h: h.horizon_ms, F.lit(NO_HORIZON_MS)))
        .withColumn(DUE, _with_hold(F.col(DUE), works))
        .drop("after_partition", "in_branch")
    )


def _with_hold(horizon_ms: Column, works: Sequence[PartitionWork]) -> Column:
    """The horizon; of a record that the log's slowest reader has not read, with the cap of the hold on top (3.9)."""
    holds = {w.partition: w.hold_offset for w in works if w.hold_offset is not None}
    if not holds:
        return horizon_ms
    cap_ms = max(w.hold_cap_ms for w in works)
    later = F.when(horizon_ms > NO_HORIZON_MS - cap_ms, NO_HORIZON_MS).otherwise(horizon_ms + cap_ms)
    return F.when(F.col(OFFSET) >= by_partition(holds), later).otherwise(horizon_ms)


def _is_tombstone(tombstones_in: set[int]) -> Column:
    if not tombstones_in:
        return F.lit(False)
    return F.col(PARTITION).isin(sorted(tombstones_in)) & F.col(VALUE).isNull()


def ledger_column(ledgers: Mapping[int, Sequence[Horizon]], field: Callable[[Horizon], int], none: Column) -> Column:
    """A field of the ledger entry of a record's offset: that of the first round whose end is above it (3.3)."""
    column = none
    for partition, ledger in ledgers.items():
        for entry in reversed(ledger):
            inside = (F.col(PARTITION) == partition) & (F.col(OFFSET) < entry.end_offset)
            column = F.when(inside, F.lit(field(entry))).otherwise(column)
    return column


def record_measures(records: DataFrame, configs: KafkaConfigs, now_ms: int) -> DataFrame:
    """(partition, records_in, records_out, tombstones_in, tombstones_out, and the violations that one record shows)."""
    changed = F.col("in_base") != F.col(SURVIVED)
    tail = F.col("below_end") & F.col(SURVIVED)
    new = F.col("in_base") & F.col("dirty") & F.col("below_end")
    return records.groupBy(PARTITION).agg(
        F.count_if("in_base").alias("records_in"),
        F.count_if(SURVIVED).alias("records_out"),
        F.count_if(~F.col("in_base")).alias("foreign_records"),
        F.count_if(changed & ~F.col("below_end")).alias("head_changed"),
        F.count_if(tail & F.col(KEY).isNull()).alias("invalid_left"),
        F.count_if(tail & F.col(TOMBSTONE) & (F.col(DUE) <= now_ms)).alias("overdue_tombstones"),
        F.count_if(F.col("in_base") & F.col(TOMBSTONE)).alias("tombstones_in"),
        F.count_if(F.col(SURVIVED) & F.col(TOMBSTONE)).alias("tombstones_out"),
        *(F.count_if(new & wrong).alias(name) for name, wrong in _without_version(configs, now_ms).items()),
    )


def _without_version(configs: KafkaConfigs, now_ms: int) -> dict[str, Column]:
    """Records that the strategy cannot rank as they are, by the measure that counts them."""
    if configs.compaction_strategy == "header":
        return {"malformed_versions": F.expr(malformed_header_sql(configs))}
    if configs.compaction_strategy == "timestamp":
        return {"future_timestamps": F.unix_millis(TIMESTAMP) > latest_timestamp_ms(configs, now_ms)}
    return {}


def key_measures(
    records: DataFrame, configs: KafkaConfigs, now_ms: int, expiring: bool, remembered: DataFrame | None = None
) -> DataFrame:
    """(partition, keys, duplicate_keys, missing_winners, early_tombstones, resurrected) over the keys below the end.

    A missing winner is a violation, except that an expiry may take a tombstone whose horizon has come, and that a
    round takes what is older than a remembered deletion (`remembered` as in offset_map).
    """
    tail = records.where(F.col("below_end") & F.col("in_log") & F.col("in_base") & F.col(KEY).isNotNull())
    winner = F.max(F.struct(rank(configs, now_ms).alias("rank"), SURVIVED, TOMBSTONE, DUE)).alias("winner")
    touched = F.max("dirty").alias("touched")
    keys = tail.groupBy(PARTITION, KEY).agg(F.count_if(SURVIVED).alias("copies"), touched, winner)
    buried = F.lit(False)
    if remembered is not None and not expiring:
        keys = keys.join(remembered, [PARTITION, KEY], "left")
        buried = F.coalesce(F.col("deleted") > F.col("winner.rank"), F.lit(False)) & F.col("touched")
    missing = ~F.col(f"winner.{SURVIVED}") & ~buried
    expired = F.col(f"winner.{TOMBSTONE}") & (F.lit(expiring))
    early = missing & expired & (F.col(f"winner.{DUE}") > now_ms)
    return keys.groupBy(PARTITION).agg(
        F.count("*").alias("keys"),
        F.count_if(F.col("copies") > 1).alias("duplicate_keys"),
        F.count_if(missing & ~expired).alias("missing_winners"),
        F.count_if(early).alias("early_tombstones"),
        F.count_if(buried & (F.col("copies") > 0)).alias("resurrected"),
    )


def live_tombstones(records: DataFrame, ledgers: Mapping[int, Sequence[Horizon]]) -> DataFrame:
    """(partition, ledger_end, tombstones): the survivors by ledger entry; null is above the last one."""
    entry = ledger_column(ledgers, lambda h: h.end_offset, F.lit(None).cast("bigint")).alias("ledger_end")
    alive = records.where(F.col(SURVIVED) & F.col(TOMBSTONE))
    return alive.groupBy(F.col(PARTITION), entry).agg(F.count("*").alias("tombstones"))
