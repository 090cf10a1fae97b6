"""The winner of each key: the record that survives a round (semantics.md 1.4, 2).

A rank is (has a version, version, offset), and the highest rank wins:

1. A record with a version beats any record without one. Then the highest version wins, then the highest offset.
2. By the strategy `offset` no record has a version, so the highest offset wins.
3. A key keeps no record at all if the ledger has a higher rank, of an expired tombstone (semantics.md 2, hazard 2).

Versions by the other strategies:

1. By `timestamp` the version is the record's timestamp in microseconds. Kafka's timestamps are whole ms, but an adopted
   table's column may be finer. A timestamp beyond now + message.timestamp.after.max.ms counts as no version, so that a
   wrong clock does not win for years (semantics.md 2, hazard 4). By LogAppendTime every timestamp counts.
2. By `header` the version is a big-endian long of 8 bytes. A header with another length counts as missing. If a header
   is repeated, the last counts, or the first by cleantail.header.occurrence. Drafts of KIP-280 said both.
3. By `order` the version is a whole number in the adopted table's column of that name. Null counts as missing
   (semantics.md 3.13).
4. A version that exists but cannot be compared is unusable. A check counts such versions.

Rounds, checks and Python readers compare columns. The `latest` view and the side table of deleted versions compare in
Spark SQL, with the same result. A test runs both on the same records. From a configuration, that SQL contains only
numbers, and the header's name as hexadecimal digits.

Functions import numpy and pyarrow, because Airflow imports this module each time it parses a DAG file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from cleantail.config.config_model import LONG_MAX
from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.topic_table import HEADERS, OFFSET, ORDER, TIMESTAMP

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


VERSION_BYTES = 8
"""The length of a version header (KIP-280)."""
Booleans: TypeAlias = "npt.NDArray[np.bool_]"
Longs: TypeAlias = "npt.NDArray[np.int64]"
Numbers: TypeAlias = "npt.NDArray[np.integer]"
MICROS_PER_MILLI = 1000
NO_RECORD = -1
"""Sentinel: the key has no candidate record."""
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1


def strategy_text(configs: KafkaConfigs) -> str:
    """Return the strategy as text. Versions compare only if these texts are equal.

    A deletion in the ledger under one strategy has no meaning under another (semantics.md 2, hazard 2).
    """
    if configs.compaction_strategy == "header":
        return f"header {configs.cleantail_header_occurrence} {configs.compaction_strategy_header}"
    return "timestamp in microseconds" if configs.compaction_strategy == "timestamp" else configs.compaction_strategy


def remembered_units(configs: KafkaConfigs) -> dict[str, int]:
    """Return the strategies whose stored versions compare with the topic's: text -> factor to the topic's unit.

    The text `timestamp` stands for milliseconds.
    """
    older = {"timestamp": MICROS_PER_MILLI} if configs.compaction_strategy == "timestamp" else {}
    return {strategy_text(configs): 1, **older}


def latest_timestamp_ms(configs: KafkaConfigs, now_ms: int) -> int:
    """Return the latest timestamp that counts, in Unix ms, for a round whose clock is `now_ms`."""
    return min(now_ms + future_ms(configs), LONG_MAX)


def future_ms(configs: KafkaConfigs) -> int:
    """Return the number of ms by which a timestamp may be ahead.

    LogAppendTime has no limit, as in Kafka, because the broker's clock set the timestamps.
    """
    return configs.message_timestamp_after_max_ms if configs.message_timestamp_type == "CreateTime" else LONG_MAX


@dataclass(frozen=True, slots=True)
class Versions:
    """One entry for each record. `has`: whether it has a usable version. `version`: 0 without one. `unusable`: whether
    its version cannot be compared."""

    has: Booleans
    version: Longs
    unusable: Booleans

    def where(self, chosen: Booleans) -> Versions:
        return Versions(self.has[chosen], self.version[chosen], self.unusable[chosen])


def no_versions(records: int) -> Versions:
    import numpy as np

    none = np.zeros(records, np.bool_)
    return Versions(none, np.zeros(records, np.int64), none)


def timestamp_versions(timestamps: pa.Array, configs: KafkaConfigs, now_ms: int) -> Versions:
    """Return the versions by `timestamp`, for a round whose clock is `now_ms`. `timestamps` are in microseconds."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    present = pc.is_valid(timestamps).to_numpy(zero_copy_only=False)
    micros = pc.fill_null(timestamps.cast(pa.int64()), 0).to_numpy()
    millis = micros // MICROS_PER_MILLI  # rounds down, as Spark's unix_millis does
    future = present & (millis > latest_timestamp_ms(configs, now_ms))
    has = present & ~future
    return Versions(has, np.where(has, micros, 0), future)


def header_versions(headers: pa.Array, configs: KafkaConfigs) -> Versions:
    """Return the versions in headers. `headers` has a list of structs (key, value), or null, for each record."""
    import numpy as np
    import pyarrow.compute as pc

    # the headers of the configured name, and the record of each
    records = len(headers)
    flat = headers.flatten()
    named = pc.fill_null(pc.equal(pc.struct_field(flat, "key"), configs.compaction_strategy_header), False)
    owners = pc.list_parent_indices(headers).filter(named).to_numpy()
    values = pc.struct_field(flat, "value").filter(named)
    # the header that counts for each record: the last, after a reversal if the first counts
    entries = np.arange(len(owners), dtype=np.int64)
    if configs.cleantail_header_occurrence == "first":
        owners, entries = owners[::-1], entries[::-1]
    chosen = np.full(records, -1, np.int64)
    chosen[owners] = entries  # the last entry of an owner stays
    return _parsed(values, chosen)


def _parsed(values: pa.Array, chosen: Longs) -> Versions:
    """Return the versions of records. `chosen`: for each record, the index of its header in `values`, -1 without
    one."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    # a header that is null, or has another length, is unusable
    fits = pc.fill_null(pc.equal(pc.binary_length(values), VERSION_BYTES), False).to_numpy(zero_copy_only=False)
    named = chosen >= 0
    usable = np.zeros(len(chosen), np.bool_)
    usable[named] = fits[chosen[named]]
    version = np.zeros(len(chosen), np.int64)
    if usable.any():
        fixed = values.take(pa.array(chosen[usable])).cast(pa.binary(VERSION_BYTES))
        version[usable] = np.frombuffer(fixed.buffers()[1], ">i8", len(fixed), fixed.offset * VERSION_BYTES)
    return Versions(usable, version, named & ~usable)


def versions_of(
    timestamps: pa.Array | None,
    headers: pa.Array | None,
    records: int,
    configs: KafkaConfigs,
    now_ms: int,
    orders: pa.Array | None = None,
) -> Versions:
    """Return the versions of the records by the topic's strategy. Columns that the strategy does not use may be None.

    If the column that it uses is None, no record has a version, and the highest offset wins.
    """
    if configs.compaction_strategy == "order" and orders is not None:
        import numpy as np
        import pyarrow.compute as pc

        has = pc.is_valid(orders).to_numpy(zero_copy_only=False)
        return Versions(has, pc.fill_null(orders, 0).to_numpy(), np.zeros(len(has), np.bool_))
    if configs.compaction_strategy == "timestamp" and timestamps is not None:
        return timestamp_versions(timestamps, configs, now_ms)
    if configs.compaction_strategy == "header" and headers is not None:
        return header_versions(headers, configs)
    return no_versions(records)


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks of keys: of the best record of each, or of the worst. The index is the number of the key.

    `offset` is NO_RECORD for a key without a record.
    """

    has: Booleans
    version: Longs
    offset: Longs

    @property
    def known(self) -> Booleans:
        known: Booleans = self.offset != NO_RECORD
        return known


def best_ranks(keys: Numbers, versions: Versions, offsets: Longs, count: int) -> Ranks:
    """Return the highest rank of each of `count` keys. `keys` has the number of each record's key."""
    import numpy as np

    has = np.zeros(count, np.bool_)
    has[keys[versions.has]] = True
    level = versions.has == has[keys]
    version = np.full(count, LOWEST, np.int64)
    if has.any():
        np.maximum.at(version, keys[level], versions.version[level])
        level &= versions.version == version[keys]
    offset = np.full(count, NO_RECORD, np.int64)
    np.maximum.at(offset, keys[level], offsets[level])
    return Ranks(has, version, offset)


def worst_ranks(keys: Numbers, versions: Versions, offsets: Longs, count: int) -> Ranks:
    """Return the lowest rank of each key."""
    import numpy as np

    has = np.ones(count, np.bool_)
    has[keys[~versions.has]] = False
    level = versions.has == has[keys]
    version = np.full(count, HIGHEST, np.int64)
    np.minimum.at(version, keys[level], versions.version[level])
    level &= versions.version == version[keys]
    offset = np.full(count, HIGHEST, np.int64)
    np.minimum.at(offset, keys[level], offsets[level])
    return Ranks(has, version, np.where(offset == HIGHEST, NO_RECORD, offset))


def beaten(ranks: Ranks, by: Ranks) -> Booleans:
    """Return, for each key, whether the rank in `by` is higher. False if either rank is unknown."""
    import numpy as np

    version, other = np.where(ranks.has, ranks.version, 0), np.where(by.has, by.version, 0)
    higher = np.where(
        ranks.has != by.has, by.has, np.where(version != other, other > version, by.offset > ranks.offset)
    )
    return higher & ranks.known & by.known


def ranks_of(keys: Numbers, ranks: Ranks) -> Ranks:
    return Ranks(ranks.has[keys], ranks.version[keys], ranks.offset[keys])


def ranks_by_offset(highest: Longs) -> Ranks:
    """Return the best rank of each key by the strategy `offset`. `highest` is the highest offset of each key."""
    import numpy as np

    return Ranks(np.zeros(len(highest), np.bool_), np.zeros(len(highest), np.int64), highest)


def record_ranks(versions: Versions, offsets: Longs) -> Ranks:
    return Ranks(versions.has, versions.version, offsets)


def rank_sql(configs: KafkaConfigs, latest_ms: str) -> str:
    """Return SQL of the rank: struct(offset), or struct(has_version, version, offset). The last field decides ties.

    `latest_ms` is SQL of the latest timestamp that counts, in Unix ms (latest_timestamp_sql).
    """
    if configs.compaction_strategy == "offset":
        return f"struct(`{OFFSET}`)"
    version = version_sql(configs, latest_ms)
    return (
        f"named_struct('has_version', ({version}) IS NOT NULL, "
        f"'version', coalesce({version}, 0L), '{OFFSET}', `{OFFSET}`)"
    )


def version_sql(configs: KafkaConfigs, latest_ms: str) -> str:
    """Return SQL of a record's version as a long, null if the record has no version."""
    if configs.compaction_strategy == "order":
        return f"`{ORDER}`"
    if configs.compaction_strategy == "header":
        value = f"{header_sql(configs)}.value"
        # `conv` returns the unsigned number as text, and values above the signed range wrap
        unsigned = f"CAST(conv(hex({value}), 16, 10) AS DECIMAL(20, 0))"
        wrapped = f"CASE WHEN {unsigned} >= {1 << 63}BD THEN {unsigned} - {1 << 64}BD ELSE {unsigned} END"
        return f"CASE WHEN length({value}) = {VERSION_BYTES} THEN CAST({wrapped} AS BIGINT) END"
    return f"CASE WHEN unix_millis(`{TIMESTAMP}`) <= {latest_ms} THEN unix_micros(`{TIMESTAMP}`) END"


def header_sql(configs: KafkaConfigs) -> str:
    """Return SQL of the version header, a struct (key, value) with a nullable value. Null if the record has none."""
    name = f"decode(X'{configs.compaction_strategy_header.encode().hex()}', 'UTF-8')"
    position = 1 if configs.cleantail_header_occurrence == "first" else -1
    return f"try_element_at(filter(`{HEADERS}`, h -> h.key = {name}), {position})"


def latest_timestamp_sql(configs: KafkaConfigs) -> str:
    """Return SQL of the latest timestamp that counts. The clock is the time of the query."""
    bound = future_ms(configs)
    now = "unix_millis(current_timestamp())"
    return f"{LONG_MAX}L" if bound > LONG_MAX // 2 else f"({now} + {bound}L)"
