"""The versions of records by the topic's strategy, over columns (semantics.md 2).

1. By `offset` no record has a version.
2. By `timestamp` the version is the record's timestamp in microseconds: Kafka's has whole ms, an adopted table's column
   more. One beyond message.timestamp.after.max.ms counts as no version, so that a wrong clock does not win for years
   (semantics.md 2, hazard 4).
3. By `header` the version is a big-endian long of 8 bytes. A header with another length counts as missing. Of repeated
   headers the last counts, or the first by cleantail.header.occurrence: KIP-280 said both.
4. By `order` the version is what an adopted table's column of that name has, as a whole number; null is no version
   (semantics.md 3.13).
5. What a record has for a version and cannot be ranked by (2, 3) is unusable, which a check counts and reports. What it
   lacks is not.

cleantail.log.ranks.spark_sql says the same as Spark SQL, for the `latest` view. A test holds both to the same records.
numpy and pyarrow are imported where they are used: a DAG file imports the kernel each time that Airflow parses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from cleantail.config.settings.kafka_configs import KafkaConfigs
from cleantail.log.ranks.strategies import VERSION_BYTES, latest_timestamp_ms

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

Booleans: TypeAlias = "npt.NDArray[np.bool_]"
Longs: TypeAlias = "npt.NDArray[np.int64]"
Numbers: TypeAlias = "npt.NDArray[np.integer]"
MICROS_PER_MILLI = 1000


@dataclass(frozen=True, slots=True)
class Versions:
    """Holds one entry for each record: whether it has a version, the version (0 where it has none), and whether it has
    one that the strategy cannot rank by, which counts as none (5)."""

    has: Booleans
    version: Longs
    unusable: Booleans

    def where(self, chosen: Booleans) -> Versions:
        """Returns the versions of these records alone, in their order."""
        return Versions(self.has[chosen], self.version[chosen], self.unusable[chosen])


def no_versions(records: int) -> Versions:
    """Returns what records have by `offset` (1)."""
    import numpy as np

    none = np.zeros(records, np.bool_)
    return Versions(none, np.zeros(records, np.int64), none)


def timestamp_versions(timestamps: pa.Array, configs: KafkaConfigs, now_ms: int) -> Versions:
    """Returns the versions by `timestamp`, for a round whose clock is `now_ms` (2). `timestamps`: in microseconds."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    present = pc.is_valid(timestamps).to_numpy(zero_copy_only=False)
    micros = pc.fill_null(timestamps.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    millis = micros // MICROS_PER_MILLI  # rounds down, as Spark's unix_millis does
    future = present & (millis > latest_timestamp_ms(configs, now_ms))
    has = present & ~future
    return Versions(has, np.where(has, micros, 0), future)


def header_versions(headers: pa.Array, configs: KafkaConfigs) -> Versions:
    """Returns the versions by `header` (3). `headers`: of each record a list of structs (key, value), or null."""
    import numpy as np
    import pyarrow.compute as pc

    # of all headers, those of the configured name, and the record that each is of
    records = len(headers)
    flat = headers.flatten()
    named = pc.fill_null(pc.equal(pc.struct_field(flat, "key"), configs.compaction_strategy_header), False)
    owners = pc.list_parent_indices(headers).filter(named).to_numpy(zero_copy_only=False)
    values = pc.struct_field(flat, "value").filter(named)
    # of each record the one that counts: where the first does, the last of the reversed order
    entries = np.arange(len(owners), dtype=np.int64)
    if configs.cleantail_header_occurrence == "first":
        owners, entries = owners[::-1], entries[::-1]
    chosen = np.full(records, -1, np.int64)
    chosen[owners] = entries  # of entries with the same owner the last one stays
    return _parsed(values, chosen)


def _parsed(values: pa.Array, chosen: Longs) -> Versions:
    """Returns the versions of records of which `chosen` names the header among the values, -1 where there is none."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.fill_null(pc.binary_length(values), -1).to_numpy(zero_copy_only=False)
    named = chosen >= 0
    # a header that is null, or has another length, is unusable: no long can be made of it
    usable = np.zeros(len(chosen), np.bool_)
    usable[named] = lengths[chosen[named]] == VERSION_BYTES
    version = np.zeros(len(chosen), np.int64)
    if usable.any():
        fixed = values.take(pa.array(chosen[usable])).cast(pa.binary(VERSION_BYTES))
        version[usable] = np.frombuffer(fixed.buffers()[1], ">i8", len(fixed), fixed.offset * VERSION_BYTES)
    return Versions(usable, version, named & ~usable)


def order_versions(orders: pa.Array) -> Versions:
    """Returns the versions by `order` (4). `orders`: whole numbers, or null."""
    import numpy as np
    import pyarrow.compute as pc

    has = pc.is_valid(orders).to_numpy(zero_copy_only=False)
    return Versions(has, pc.fill_null(orders, 0).to_numpy(zero_copy_only=False), np.zeros(len(has), np.bool_))


def versions_of(
    timestamps: pa.Array | None,
    headers: pa.Array | None,
    records: int,
    configs: KafkaConfigs,
    now_ms: int,
    orders: pa.Array | None = None,
) -> Versions:
    """Returns the versions of the records by the topic's strategy; a column that it does not need may be None.

    Where the column that it needs is None, no record has a version, so the highest offset wins.
    """
    if configs.compaction_strategy == "order" and orders is not None:
        return order_versions(orders)
    if configs.compaction_strategy == "timestamp" and timestamps is not None:
        return timestamp_versions(timestamps, configs, now_ms)
    if configs.compaction_strategy == "header" and headers is not None:
        return header_versions(headers, configs)
    return no_versions(records)
