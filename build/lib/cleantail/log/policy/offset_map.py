"""The memory budget of a round: how many keys an offset map holds, and where a round ends that would exceed it.

1. log.cleaner.dedupe.buffer.size is shared by all threads; an entry takes 24 bytes, with a version 32 (semantics.md
   1.1).
2. The map may be filled up to log.cleaner.io.buffer.load.factor.
3. The budget bounds what is held in memory, not what can be cleaned (semantics.md 3.8).
"""

from __future__ import annotations

from cleantail.config.settings.cleaner_configs import CleanerConfigs
from cleantail.config.settings.kafka_configs import KafkaConfigs

ENTRY_BYTES = 24
"""Bytes of an entry of Kafka's SkimpyOffsetMap: a hash of 16 and an offset of 8 (semantics.md 1.1)."""
VERSIONED_ENTRY_BYTES = 32
"""Bytes of an entry that has a version of KIP-280 as well."""


def keys_in_budget(cleaner: CleanerConfigs, configs: KafkaConfigs) -> int:
    """Returns how many keys the offset map of one round may hold, reckoned as Kafka does; at least one, so that a round
    always makes progress."""
    return max(int(map_slots(cleaner, configs) * cleaner.log_cleaner_io_buffer_load_factor), 1)


def buffer_percent(keys: int, slots: int) -> float:
    """Returns OffsetMap.utilization in percent: a map is never more than full, whatever spills beside it."""
    return min(100 * keys / max(slots, 1), 100.0)


def map_slots(cleaner: CleanerConfigs, configs: KafkaConfigs) -> int:
    """Returns OffsetMap.slots: how many keys an offset map has room for, without the load factor."""
    entry_bytes = ENTRY_BYTES if configs.compaction_strategy == "offset" else VERSIONED_ENTRY_BYTES
    return cleaner.log_cleaner_dedupe_buffer_size // cleaner.log_cleaner_threads // entry_bytes


def round_end(full_at: int | None, last_keyed: int | None, end_offset: int) -> int:
    """Returns where a round ends that was to end at `end_offset` (exclusive), possibly inside a segment (semantics.md
    1.4).

    `full_at` is the offset of the record that fills the map, None where none does. `last_keyed` is the offset of the
    last record with a key below the end. Kafka asks whether the map is full before each put, so a record after
    `full_at` ends the round even if its key is in the map.
    """
    if full_at is None or last_keyed is None or last_keyed <= full_at:
        return end_offset
    return full_at + 1
