"""Which record of each key survives a round: the offset map of Kafka's cleaner as a data frame.

Shape of every offset map here: (partition int, key binary, keep_offset bigint), one row a key of one log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cleantail.kafka_configs import KafkaConfigs
from cleantail.topic_table import HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP
from cleantail.work_units import PartitionWork

VERSION_BYTES = 8
"""KIP-280: a version is a big-endian long."""


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


def offset_map(records: DataFrame, works: Sequence[PartitionWork], configs: KafkaConfigs) -> DataFrame:
    """The winner of every key that occurs in the dirty part.

    By offset the dirty part alone tells (semantics.md 1.4.1): whatever is below it loses. By timestamp or header it
    does not: the winner is sought over all records below the end whose key occurs in the dirty part (2, hazard 1).
    """
    dirty = dirty_part(records, works).where(F.col(KEY).isNotNull())
    if configs.compaction_strategy == "offset":
        return dirty.groupBy(PARTITION, KEY).agg(F.max(OFFSET).alias("keep_offset"))
    touched = dirty.select(PARTITION, KEY).distinct()
    candidates = below_end(records, works).join(touched, [PARTITION, KEY], "left_semi")
    return winners(candidates, configs)


def winners(records: DataFrame, configs: KafkaConfigs) -> DataFrame:
    """The winner of every key among these records; the highest offset decides between equals (KIP-280)."""
    best = F.max(rank(configs)).alias("best")
    return (
        records.groupBy(PARTITION, KEY).agg(best).select(PARTITION, KEY, F.col(f"best.{OFFSET}").alias("keep_offset"))
    )


def rank(configs: KafkaConfigs) -> Column:
    """What records of one key are compared by: a struct whose last field is the offset.

    A record without a version loses to any that has one; between two without, the offset decides (KIP-280).
    """
    offset = F.col(OFFSET).alias(OFFSET)
    if configs.compaction_strategy == "offset":
        return F.struct(offset)
    by = F.col(TIMESTAMP).cast("double") if configs.compaction_strategy == "timestamp" else header_version(configs)
    lowest = F.lit(float("-inf")) if configs.compaction_strategy == "timestamp" else F.lit(0).cast("bigint")
    return F.struct(by.isNotNull().alias("has_version"), F.coalesce(by, lowest).alias("version"), offset)


def header_version(configs: KafkaConfigs) -> Column:
    """The version header as a long; null when it is absent or not 8 bytes. Of repeated ones the last (or first)."""
    name = configs.compaction_strategy_header
    named = F.filter(F.col(HEADERS), lambda h: h[KEY] == F.lit(name))
    chosen = F.element_at(named, 1 if configs.cleantail_header_occurrence == "first" else -1)
    value = F.when(F.size(named) > 0, chosen["value"])
    return F.when(F.length(value) == VERSION_BYTES, big_endian_long(value))


def big_endian_long(value: Column) -> Column:
    """8 bytes as a signed long. `conv` gives the unsigned number as text; what is above the signed range wraps."""
    unsigned = F.conv(F.hex(value), 16, 10).cast("decimal(20,0)")
    wrapped = unsigned - F.expr(f"{1 << 64}BD")
    return F.when(unsigned >= F.expr(f"{1 << 63}BD"), wrapped).otherwise(unsigned).cast("bigint")


def columns_of(configs: KafkaConfigs) -> list[str]:
    """The columns that decide a round: never the value."""
    extra = {"offset": [], "timestamp": [TIMESTAMP], "header": [HEADERS]}[configs.compaction_strategy]
    return [PARTITION, OFFSET, KEY, *extra]
