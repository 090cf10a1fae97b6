"""Due tombstones that have to stay: a record that they beat is in the log already, and not cleaned yet.

1. By offset there are none: what is above a tombstone beats it.
2. By timestamp or header a record above the clean point may have the lower version. Were its tombstone removed, that
   record would bring the key back (semantics.md 2, hazards 2 and 3): such a tombstone guards the key.
3. Against records that are not in the log yet the lateness bound protects, not this.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cleantail.config.settings.config_model import LONG_MAX
from cleantail.config.settings.kafka_configs import KafkaConfigs
from cleantail.config.topic_table import KEY, PARTITION
from cleantail.log.work_units import PartitionWork
from spark_jobs.engine.transforms.winners import columns_of, rank, span_condition

GUARDS = "guards"
LOWEST = "lowest"


def with_guards(
    tombstones: DataFrame, records: DataFrame, works: Sequence[PartitionWork], configs: KafkaConfigs, now_ms: int
) -> DataFrame:
    """Adds the boolean `guards` to the tombstones: whether one has to stay for a record above the clean point. `works`:
    their end is the clean point. Both frames have the columns of the strategy, with partition, offset and key."""
    if configs.compaction_strategy == "offset":
        return tombstones.withColumn(GUARDS, F.lit(False))
    above = span_condition({w.partition: (w.end_offset, LONG_MAX) for w in works})
    waiting = records.select(*columns_of(configs)).where(f"{above} AND `{KEY}` IS NOT NULL")
    lowest = waiting.groupBy(PARTITION, KEY).agg(F.min(rank(configs, now_ms)).alias(LOWEST))
    joined = tombstones.join(lowest, [PARTITION, KEY], "left")
    return joined.withColumn(GUARDS, _beats(configs, now_ms)).drop(LOWEST)


def _beats(configs: KafkaConfigs, now_ms: int) -> Column:
    return F.coalesce(F.col(LOWEST) < rank(configs, now_ms), F.lit(False))
