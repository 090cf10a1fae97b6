"""Which record of each key survives a round: the offset map of Kafka's cleaner as a data frame.

Shape of every offset map here: (partition int, key binary, keep_offset bigint), one row a key of one log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cleantail.config_row import LONG_MAX
from cleantail.kafka_configs import KafkaConfigs
from cleantail.ranking import latest_timestamp_ms, rank_sql
from cleantail.topic_table import HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP
from cleantail.work_units import PartitionWork

NO_RECORD = LONG_MAX
"""keep_offset of a key that keeps no record: every offset is below it."""


def by_partition(values: Mapping[int, int]) -> Column:
    """The value of a row's partition; null for a partition that is not in the mapping."""
    pairs = [F.lit(part) for pair in values.items() for part in pair]
    return F.element_at(F.create_map(*pairs), F.col(PARTITION)) if pairs else F.lit(None).cast("bigint")


def below_end(records: DataFrame, works: Sequence[PartitionWork]) -> DataFrame:
    """Records of the works' logs in [log start, end): all that a round looks at."""
    return records.where(span_condition({w.partition: (w.log_start_offset, w.end_offset) for w in works}))


def dirty_part(records: DataFrame, works: Sequence[PartitionWork]) -> DataFrame:
    """Records of the works' logs in [first dirty, end): what the offset map is made of."""
    return records.where(span_condition({w.partition: (w.first_dirty_offset, w.end_offset) for w in works}))


def span_condition(spans: Mapping[int, tuple[int, int]], table: str = "") -> str:
    """SQL over plain comparisons of numbers, so that Iceberg can prune files by it; ends are exclusive."""
    prefix = f"{table}." if table else ""
    parts = [
        f"({prefix}`{PARTITION}` = {p:d} AND {prefix}`{OFFSET}` >= {low:d} AND {prefix}`{OFFSET}` < {high:d})"
        for p, (low, high) in spans.items()
    ]
    return f"({' OR '.join(parts)})" if parts else "false"


def offset_map(
    records: DataFrame,
    works: Sequence[PartitionWork],
    configs: KafkaConfigs,
    now_ms: int,
    remembered: DataFrame | None = None,
) -> DataFrame:
    """The winner of every key that occurs in the dirty part.

    By offset the dirty part alone tells (semantics.md 1.4.1): whatever is below it loses. By timestamp or header it
    does not: the winner is sought over all records below the end whose key occurs in the dirty part (2, hazard 1).
    `remembered` (partition, key, deleted: a rank) are versions of tombstones that have gone: a key whose winner is
    older than that keeps no record (2, hazard 2).
    """
    dirty = dirty_part(records, works).where(F.col(KEY).isNotNull())
    candidates = dirty
    if configs.compaction_strategy != "offset":
        touched = dirty.select(PARTITION, KEY).distinct()
        candidates = below_end(records, works).join(touched, [PARTITION, KEY], "left_semi")
    best = candidates.groupBy(PARTITION, KEY).agg(F.max(rank(configs, now_ms)).alias("best"))
    keep = F.col(f"best.{OFFSET}")
    if remembered is not None:
        best = best.join(remembered, [PARTITION, KEY], "left")
        keep = F.when(F.col("deleted") > F.col("best"), F.lit(NO_RECORD)).otherwise(keep)
    return best.select(PARTITION, KEY, keep.alias("keep_offset"))


def rank(configs: KafkaConfigs, now_ms: int) -> Column:
    """What records of one key are compared by (cleantail.ranking)."""
    return F.expr(rank_sql(configs, f"{latest_timestamp_ms(configs, now_ms):d}L"))


def columns_of(configs: KafkaConfigs) -> list[str]:
    """The columns that decide a round: never the value."""
    extra = {"offset": [], "timestamp": [TIMESTAMP], "header": [HEADERS]}[configs.compaction_strategy]
    return [PARTITION, OFFSET, KEY, *extra]


def where_full(dirty: DataFrame, keys: int) -> DataFrame:
    """(partition, full_at, last_keyed) of each log: the offset of the record that brings the `keys`-th key, null
    where there are fewer, and of the last record with a key. `dirty`: (partition, offset, key)."""
    keyed = dirty.where(F.col(KEY).isNotNull())
    by_offset = Window.partitionBy(PARTITION).orderBy("first")
    firsts = keyed.groupBy(PARTITION, KEY).agg(F.min(OFFSET).alias("first"))
    full = firsts.withColumn("nth", F.row_number().over(by_offset)).where(F.col("nth") == keys)
    last = keyed.groupBy(PARTITION).agg(F.max(OFFSET).alias("last_keyed"))
    return last.join(full.select(PARTITION, F.col("first").alias("full_at")), PARTITION, "left")
