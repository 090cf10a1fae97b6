"""What a branch did to its base, from the records of both: one row a log.

Base and branch have the same data files, so a record is known by its position. For every 64 positions of a file there
is one row of bits: which records the base has, which the branch has, which are winners, and so on. Every rule is then
an operation on longs: exact, and the two scans together move a few bytes for 64 records.

Uniqueness is proven for what a round can break. Keys that the dirty part touches must have one survivor, their winner;
the records of all other keys must be as they were, and were proven unique when they were cleaned. `full_proof` starts
from nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cleantail.config.settings.kafka_configs import KafkaConfigs
from cleantail.config.topic_table import KEY, OFFSET, PARTITION, TIMESTAMP, VALUE
from cleantail.log.partition_state import Horizon
from cleantail.log.ranking import latest_timestamp_ms, malformed_header_sql
from cleantail.log.work_units import PartitionWork
from spark_jobs.engine.transforms.needed_tombstones import GUARDS
from spark_jobs.engine.transforms.winners import KEEP, NO_RECORD, by_partition, columns_of, span_condition
from spark_jobs.iceberg.snapshot_files import FILE, WORD, bit, with_position, word

NO_HORIZON_MS = (1 << 63) - 1
ENTRY = "ledger_end"
BASE, LIVE, HEAD, PAST, KEYLESS = "base", "live", "head", "past", "keyless"
TOUCHED, WINNER, BURIED, COPY = "touched", "winner", "buried", "copy"
FLAGS = (BASE, HEAD, PAST, KEYLESS, TOUCHED, WINNER, BURIED, COPY)
"""Of a record of the base: at or above the end; below the log start; without a key; its key is in the offset map; it
is that key's winner; the key keeps no record; a later copy of its offset."""
TOMBSTONE, DUE, GUARD = "tombstone", "due", "guard"
DIRTY_COUNTS = {
    "header": ["map_records", "malformed_versions"],
    "timestamp": ["map_records", "future_timestamps"],
    "offset": ["map_records"],
}
"""What is counted of the dirty part: its records, and those that the strategy cannot rank as they are."""


def base_bits(records: DataFrame, works: Sequence[PartitionWork], configs: KafkaConfigs, now_ms: int) -> DataFrame:
    """Returns (partition, ct_file, ct_word, one long of bits for each flag, counts of DIRTY_COUNTS).

    `records`: the base with file and position, columns of the strategy, keep_offset and the boolean `is_copy`.
    """
    end = by_partition({w.partition: w.end_offset for w in works})
    start = by_partition({w.partition: w.log_start_offset for w in works})
    first = by_partition({w.partition: w.first_dirty_offset for w in works})
    below, touched = F.col(OFFSET) < end, F.col(KEEP).isNotNull() & ~F.col("is_copy")
    flags = {
        BASE: F.lit(True),
        HEAD: ~below,
        PAST: F.col(OFFSET) < start,
        KEYLESS: below & F.col(KEY).isNull(),
        TOUCHED: below & touched,
        WINNER: below & touched & (F.col(OFFSET) == F.col(KEEP)),
        BURIED: below & touched & (F.col(KEEP) == NO_RECORD),
        COPY: below & F.col("is_copy"),
    }
    # one aggregate by kind of record instead of one by flag: neighbours are mostly of one kind
    kind = reduce(lambda x, y: x + y, (F.when(flag, 1 << i).otherwise(0) for i, flag in enumerate(flags.values())))
    new = below & (F.col(OFFSET) >= first)
    counted = {"map_records": F.lit(True)} | _without_version(configs, now_ms)
    counts = [F.count_if(new & each).alias(n) for n, each in counted.items()]
    kinds = records.groupBy(PARTITION, FILE, word(), kind.alias("kind")).agg(F.bit_or(bit()).alias("bits"), *counts)
    return kinds.select(
        PARTITION,
        FILE,
        WORD,
        *(_bits_of(i, name) for i, name in enumerate(flags)),
        *DIRTY_COUNTS[configs.compaction_strategy],
    )


def _bits_of(i: int, name: str) -> Column:
    return F.when(F.col("kind").bitwiseAND(1 << i) != 0, F.col("bits")).otherwise(0).alias(name)


def _without_version(configs: KafkaConfigs, now_ms: int) -> dict[str, Column]:
    """Returns the conditions for records that the strategy cannot rank as they are, by the measure that counts them."""
    if configs.compaction_strategy == "header":
        return {"malformed_versions": F.expr(malformed_header_sql(configs))}
    if configs.compaction_strategy == "timestamp":
        return {"future_timestamps": F.unix_millis(TIMESTAMP) > latest_timestamp_ms(configs, now_ms)}
    return {}


def with_live_bits(
    base: DataFrame, branch: DataFrame, works: Sequence[PartitionWork], configs: KafkaConfigs
) -> DataFrame:
    """Adds to the bits of the base those of the records that the branch still has."""
    counts = DIRTY_COUNTS[configs.compaction_strategy]
    live = live_bits(branch, works)
    nothing = [F.lit(0).cast("bigint").alias(name) for name in (*FLAGS, *counts)]
    both = base.withColumn(LIVE, F.lit(0).cast("bigint")).unionByName(
        live.select(PARTITION, FILE, WORD, LIVE, *nothing)
    )
    sums = [F.sum(name).alias(name) for name in counts]
    return both.groupBy(PARTITION, FILE, WORD).agg(*(F.bit_or(n).alias(n) for n in (*FLAGS, LIVE)), *sums)


def live_bits(branch: DataFrame, works: Sequence[PartitionWork]) -> DataFrame:
    """Returns (partition, ct_file, ct_word, live: bits) of the records that the branch has."""
    placed = with_position(branch.where(F.col(PARTITION).isin([w.partition for w in works])), PARTITION)
    return placed.groupBy(PARTITION, FILE, word()).agg(F.bit_or(bit()).alias(LIVE))


def tombstones_in(base: DataFrame, spans: Mapping[int, Sequence[tuple[int, int]]], configs: KafkaConfigs) -> DataFrame:
    """Returns the tombstones in the spans: columns of the strategy, file and position. Values are read there alone, and
    only in files that have a null at all."""
    inside = " OR ".join(span_condition({p: span}) for p, of_log in spans.items() for span in of_log) or "false"
    return base.where(f"`{VALUE}` IS NULL AND ({inside})").select(*columns_of(configs), "_file", "_pos")


def tombstone_bits(
    tombstones: DataFrame,
    works: Sequence[PartitionWork],
    ledgers: Mapping[int, Sequence[Horizon]],
    due: Mapping[int, Sequence[Horizon]],
    now_ms: int,
) -> DataFrame:
    """Returns (partition, ct_file, ct_word, ledger_end, tombstone, due, guard: bits, guard_from: offset).

    `tombstones`: with the boolean `guards`. `ledger_end` is the end of the tombstone's entry in `ledgers`, null above
    the last one. `guard` are those that would be due, but for a record that they beat; the lowest offset of them is
    `guard_from`.
    """
    horizon_ms = ledger_column(due, lambda h: h.horizon_ms, NO_HORIZON_MS)
    entry = ledger_column(ledgers, lambda h: h.end_offset, None)
    past = (_with_hold(horizon_ms, works) <= now_ms) & (F.col(OFFSET) < _ends(works))
    flagged = tombstones.withColumns({ENTRY: entry, DUE: past & ~F.col(GUARDS), GUARD: past & F.col(GUARDS)})
    placed = with_position(flagged, PARTITION, OFFSET, ENTRY, DUE, GUARD)
    nothing = F.lit(0).cast("bigint")
    return placed.groupBy(PARTITION, FILE, word(), ENTRY).agg(
        F.bit_or(bit()).alias(TOMBSTONE),
        *(F.bit_or(F.when(F.col(name), bit()).otherwise(nothing)).alias(name) for name in (DUE, GUARD)),
        F.min(F.when(F.col(GUARD), F.col(OFFSET))).alias("guard_from"),
    )


def _ends(works: Sequence[PartitionWork]) -> Column:
    return by_partition({w.partition: w.end_offset for w in works})


def _with_hold(horizon_ms: Column, works: Sequence[PartitionWork]) -> Column:
    """Returns the horizon; of a record that the log's slowest reader has not read, plus the cap of the hold (3.9)."""
    holds = {w.partition: w.hold_offset for w in works if w.hold_offset is not None}
    if not holds:
        return horizon_ms
    cap_ms = max(w.hold_cap_ms for w in works)
    later = F.when(horizon_ms > NO_HORIZON_MS - cap_ms, NO_HORIZON_MS).otherwise(horizon_ms + cap_ms)
    return F.when(F.col(OFFSET) >= by_partition(holds), later).otherwise(horizon_ms)


def ledger_column(
    ledgers: Mapping[int, Sequence[Horizon]], field: Callable[[Horizon], int], none: int | None
) -> Column:
    """Returns a field of the ledger entry that a record's offset is in: the entry of the first round whose end is above
    it (3.3)."""
    column = F.lit(none).cast("bigint")
    for partition, ledger in ledgers.items():
        column = F.when(F.col(PARTITION) == partition, _entry(ledger, field, none)).otherwise(column)
    return column


def _entry(ledger: Sequence[Horizon], field: Callable[[Horizon], int], none: int | None) -> Column:
    """Builds the column by halves: of thousands of entries, nested one in the other, it would be too deep for Spark."""
    if not ledger:
        return F.lit(none).cast("bigint")
    if len(ledger) == 1:
        inside = F.col(OFFSET) < ledger[0].end_offset
        return F.when(inside, F.lit(field(ledger[0])).cast("bigint")).otherwise(F.lit(none).cast("bigint"))
    half = len(ledger) // 2
    below = F.col(OFFSET) < ledger[half - 1].end_offset
    return F.when(below, _entry(ledger[:half], field, none)).otherwise(_entry(ledger[half:], field, none))


def _count(*parts: str) -> Column:
    """Counts the bits that are set in all of the parts; `~name` stands for the complement."""
    columns = [F.bitwise_not(F.col(p[1:])) if p.startswith("~") else F.col(p) for p in parts]
    return F.sum(F.bit_count(reduce(lambda a, b: a.bitwiseAND(b), columns)))


def round_measures(bits: DataFrame, configs: KafkaConfigs) -> DataFrame:
    """Returns one row for each log: records in and out, and the violations of every rule of a round
    (cleantail.log.rules)."""
    lost = _count(BASE, "~live", "~head", "~past", "~touched", "~keyless", "~copy")
    spared = _count(LIVE, TOUCHED, "~winner", "~buried", "~past")
    return bits.groupBy(PARTITION).agg(
        *_common(),
        _count(BASE, "~head", "~past").alias("records_read"),
        _count(BASE, LIVE, "~head", "~past").alias("records_kept"),
        # a key has one winner; of one that keeps no record every record counts, as the bits do not tell keys apart
        (_count(WINNER) + _count(BURIED)).alias("map_keys"),
        (_count(WINNER, "~live", "~past") + lost).alias("missing_winners"),
        (spared + _count(LIVE, COPY, "~past")).alias("duplicate_keys"),
        _count(LIVE, BURIED, "~past").alias("resurrected"),
        _count(LIVE, KEYLESS).alias("invalid_left"),
        *(F.sum(name).alias(name) for name in DIRTY_COUNTS[configs.compaction_strategy]),
    )


def _common() -> list[Column]:
    changed = F.sum(F.bit_count((F.col(BASE).bitwiseXOR(F.col(LIVE))).bitwiseAND(F.col(HEAD))))
    return [
        F.sum(F.bit_count(BASE)).alias("records_in"),
        F.sum(F.bit_count(LIVE)).alias("records_out"),
        _count(LIVE, "~base").alias("foreign_records"),
        changed.alias("head_changed"),
    ]


def expiry_measures(bits: DataFrame, tombstones: DataFrame) -> DataFrame:
    """Returns one row for each log, as round_measures does: an expiry may remove due tombstones, and nothing else."""
    of_tombstones = tombstones.groupBy(PARTITION, FILE, WORD).agg(*(F.bit_or(n).alias(n) for n in (TOMBSTONE, DUE)))
    both = bits.join(of_tombstones, [PARTITION, FILE, WORD], "left").fillna(0, [TOMBSTONE, DUE])
    return both.groupBy(PARTITION).agg(
        *_common(),
        _count(BASE, "~live", "~head", "~tombstone").alias("missing_winners"),
        _count(BASE, "~live", "~head", TOMBSTONE, "~due").alias("early_tombstones"),
        _count(LIVE, TOMBSTONE, DUE).alias("overdue_tombstones"),
    )


def tombstones_by_entry(bits: DataFrame, tombstones: DataFrame) -> DataFrame:
    """Counts tombstones in base and branch: (partition, ledger_end, tombstones_in, tombstones_out, guards, guard_from).

    `bits`: with `live`; a word in which nothing lives may be missing.
    """
    row_key = [PARTITION, FILE, WORD]
    both = tombstones.join(bits.select(*row_key, LIVE), row_key, "left").fillna(0, [LIVE])
    return both.groupBy(PARTITION, ENTRY).agg(
        _count(TOMBSTONE).alias("tombstones_in"),
        _count(TOMBSTONE, LIVE).alias("tombstones_out"),
        _count(GUARD, LIVE).alias("guards"),
        F.min("guard_from").alias("guard_from"),
    )


def full_proof(records: DataFrame, ends: Mapping[int, int]) -> DataFrame:
    """Counts anew, whatever was proven before, all keys below the ends: (partition, keys, duplicate_keys)."""
    tail = records.where(F.col(KEY).isNotNull() & F.expr(span_condition({p: (0, end) for p, end in ends.items()})))
    copies = tail.groupBy(PARTITION, KEY).agg(F.count("*").alias("copies"))
    return copies.groupBy(PARTITION).agg(
        F.count("*").alias("keys"), F.count_if(F.col("copies") > 1).alias("duplicate_keys")
    )
