"""Which record of each key survives a round: the offset map of Kafka's cleaner as a data frame.

Shape of every offset map here: (partition int, key binary, keep_offset bigint, hash int), one row a key of one log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cleantail.config.settings.config_model import LONG_MAX
from cleantail.config.settings.kafka_configs import KafkaConfigs
from cleantail.config.topic_table import HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP
from cleantail.log.ranking import latest_timestamp_ms, rank_sql
from cleantail.log.work_units import PartitionWork

NO_RECORD = LONG_MAX
"""keep_offset of a key that keeps no record: every offset is below it."""
KEEP = "keep_offset"
HASH = "hash"
"""Of the key, 32 bits: partition and hash together are one long, which Spark joins fastest by."""
ROW_ID = "_row_id"
ARRIVED = "arrived"
"""Data sequence number of the file that a record lies in."""
DENSE = 100_000
"""Partition numbers below this make an array, which is faster to look up than a map."""


def by_partition(values: Mapping[int, int]) -> Column:
    """Returns the value of a row's partition; null for a partition that is not in the mapping."""
    if not values:
        return F.lit(None).cast("bigint")
    if max(values) < DENSE:
        numbers = [values.get(p) for p in range(max(values) + 1)]
        array = F.array(*(F.lit(n).cast("bigint") for n in numbers))
        return F.try_element_at(array, F.col(PARTITION) + 1)
    return F.element_at(F.create_map(*(F.lit(part) for pair in values.items() for part in pair)), F.col(PARTITION))


def below_end(records: DataFrame, works: Sequence[PartitionWork]) -> DataFrame:
    """Returns the records of the works' logs in [log start, end): all that a round reads."""
    return records.where(span_condition({w.partition: (w.log_start_offset, w.end_offset) for w in works}))


def dirty_part(records: DataFrame, works: Sequence[PartitionWork]) -> DataFrame:
    """Returns the records of the works' logs in [first dirty, end), from which the offset map is built."""
    return records.where(span_condition({w.partition: (w.first_dirty_offset, w.end_offset) for w in works}))


def span_condition(spans: Mapping[int, tuple[int, int]], table: str = "") -> str:
    """Returns SQL of plain comparisons of numbers, by which Iceberg can prune files. Ends are exclusive."""
    prefix = f"{table}." if table else ""
    parts = [
        f"({prefix}`{PARTITION}` = {p:d} AND {prefix}`{OFFSET}` >= {low:d} AND {prefix}`{OFFSET}` < {high:d})"
        for p, (low, high) in spans.items()
    ]
    return f"({' OR '.join(parts)})" if parts else "false"


def copies_of(
    records: DataFrame, works: Sequence[PartitionWork], arrivals: Callable[[], DataFrame]
) -> DataFrame | None:
    """Returns the later copies of dirty records whose (partition, offset) occurs more than once: of copies the one that
    arrived first survives (semantics.md 3.5). None where there are none, which one count of bits shows.

    First is by the data sequence number of the file, which a rewrite keeps, then by row id, which it does not; in an
    adopted table by the file's name and the position in it. `arrivals` returns (_file, arrived); `records` has `_file`
    too.
    """
    dirty = dirty_part(records, works)
    bits = F.bit_or(F.expr(f"shiftleft(1L, cast(`{OFFSET}` & 63 AS int))")).alias("bits")
    bits_of_offsets = dirty.groupBy(PARTITION, F.shiftright(OFFSET, 6)).agg(F.count("*").alias("records"), bits)
    if not bits_of_offsets.where("records > bit_count(bits)").limit(1).count():
        return None
    order = F.struct(ARRIVED, ROW_ID)
    first = F.min(order).over(Window.partitionBy(PARTITION, OFFSET))
    placed = dirty.join(F.broadcast(arrivals()), "_file").withColumn("first", first)
    return placed.where(order > F.col("first")).drop("first", ARRIVED)


def offset_map(
    records: DataFrame,
    works: Sequence[PartitionWork],
    configs: KafkaConfigs,
    now_ms: int,
    remembered: DataFrame | None = None,
) -> DataFrame:
    """Returns the winner of every key that occurs in the dirty part.

    1. By offset the dirty part alone decides (semantics.md 1.4.1): whatever is below it loses.

    2. By timestamp or header it does not: the winner is the best of all records below the end whose key occurs in the
    dirty part (2, hazard 1).

    3. `remembered` (partition, key, deleted: a rank) has the ranks of tombstones that were removed: a key whose winner
    ranks below that keeps no record (2, hazard 2).
    """
    dirty = dirty_part(records, works).where(F.col(KEY).isNotNull())
    if configs.compaction_strategy == "offset":
        # the greatest long, not the greatest struct: Spark has a fast aggregate for the one and sorts for the other
        highest = dirty.groupBy(PARTITION, KEY).agg(F.max(OFFSET).alias(OFFSET))
        best = highest.select(PARTITION, KEY, F.struct(OFFSET).alias("best"))
    else:
        touched = dirty.select(PARTITION, KEY).distinct()
        candidates = below_end(records, works).join(touched, [PARTITION, KEY], "left_semi")
        best = candidates.groupBy(PARTITION, KEY).agg(F.max(rank(configs, now_ms)).alias("best"))
    keep = F.col(f"best.{OFFSET}")
    if remembered is not None:
        best = best.join(remembered, [PARTITION, KEY], "left")
        keep = F.when(F.col("deleted") > F.col("best"), F.lit(NO_RECORD)).otherwise(keep)
    return best.select(PARTITION, KEY, keep.alias(KEEP), F.hash(KEY).alias(HASH))


def losers(records: DataFrame, winners: DataFrame, configs: KafkaConfigs, hint: str) -> DataFrame:
    """Returns the records that are not the winner of their key. `winners`: an offset map; `hint`: Spark's name of the
    join.

    The join is on partition and a hash of the key; the key itself is compared only where the offset already loses
    (3.11: Kafka takes equal hashes for equal keys, we do not). It is written so that Spark does not join on the key as
    well.
    """
    loses = f"m.{KEEP} {'>' if configs.compaction_strategy == 'offset' else '<>'} t.`{OFFSET}`"
    same_key = f"m.`{KEY}` = if({loses}, t.`{KEY}`, null)"
    return _joined(records, winners, f"{loses} AND {same_key}", hint, "left_semi")


def with_winner(records: DataFrame, winners: DataFrame, hint: str) -> DataFrame:
    """Adds to every record the keep_offset of its key: null where the key is not in the offset map."""
    same_key = f"m.`{KEY}` = if(m.{KEEP} IS NULL, null, t.`{KEY}`)"
    return _joined(records, winners, same_key, hint, "left_outer").select("t.*", f"m.{KEEP}")


def _joined(records: DataFrame, winners: DataFrame, condition: str, hint: str, how: str) -> DataFrame:
    same_hash = f"m.`{PARTITION}` = t.`{PARTITION}` AND m.{HASH} = hash(t.`{KEY}`)"
    return records.alias("t").join(winners.hint(hint).alias("m"), F.expr(f"{same_hash} AND {condition}"), how)


def rank(configs: KafkaConfigs, now_ms: int) -> Column:
    """Returns the struct by which records of one key are compared (cleantail.log.ranking)."""
    return F.expr(rank_sql(configs, f"{latest_timestamp_ms(configs, now_ms):d}L"))


def columns_of(configs: KafkaConfigs) -> list[str]:
    """Returns the columns that decide a round: never the value."""
    extra = {"offset": [], "timestamp": [TIMESTAMP], "header": [HEADERS]}[configs.compaction_strategy]
    return [PARTITION, OFFSET, KEY, *extra]


def where_full(dirty: DataFrame, keys: int) -> DataFrame:
    """Returns (partition, full_at, last_keyed) of each log: the offset of the record that brings the `keys`-th key,
    null where there are fewer, and of the last record with a key. `dirty`: (partition, offset, key)."""
    keyed = dirty.where(F.col(KEY).isNotNull())
    by_offset = Window.partitionBy(PARTITION).orderBy("first")
    firsts = keyed.groupBy(PARTITION, KEY).agg(F.min(OFFSET).alias("first"))
    full = firsts.withColumn("nth", F.row_number().over(by_offset)).where(F.col("nth") == keys)
    last = keyed.groupBy(PARTITION).agg(F.max(OFFSET).alias("last_keyed"))
    return last.join(full.select(PARTITION, F.col("first").alias("full_at")), PARTITION, "left")
