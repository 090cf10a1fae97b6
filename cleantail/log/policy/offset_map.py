"""The memory budget of a round: how many keys an offset map holds, and where a round ends that would exceed it."""

from __future__ import annotations

from cleantail.config.settings.cleaner_configs import CleanerConfigs
from cleantail.config.settings.kafka_configs import KafkaConfigs

ENTRY_BYTES = 24
"""Of Kafka's SkimpyOffsetMap: a 16-byte hash and an offset (semantics.md 1.1)."""
VERSIONED_ENTRY_BYTES = 32
"""With a KIP-280 version beside them."""


def keys_in_budget(cleaner: CleanerConfigs, configs: KafkaConfigs) -> int:
    """Returns how many keys the offset map of one round may hold, reckoned as Kafka does; one at least, so that a round
    always makes progress."""
    return max(int(map_slots(cleaner, configs) * cleaner.log_cleaner_io_buffer_load_factor), 1)


def buffer_percent(keys: int, slots: int) -> float:
    """OffsetMap.utilization in percent: a map is never more than full, whatever spills beside it."""
    return min(100 * keys / max(slots, 1), 100.0)


def map_slots(cleaner: CleanerConfigs, configs: KafkaConfigs) -> int:
    """Returns how many keys an offset map has place for, without the load factor: OffsetMap.slots."""
    entry_bytes = ENTRY_BYTES if configs.compaction_strategy == "offset" else VERSIONED_ENTRY_BYTES
    return cleaner.log_cleaner_dedupe_buffer_size // cleaner.log_cleaner_threads // entry_bytes


def round_end(full_at: int | None, last_keyed: int | None, end_offset: int) -> int:
    """Returns where a round ends that was to end at `end_offset` (exclusive), possibly inside a segment (semantics.md
    1.4.1).

    `full_at`: offset of the record that fills the map, None where none does. `last_keyed`: offset of the last record
    with a key below the end. Kafka asks whether the map is full before each put, so a record after `full_at` ends the
    round even if its key is in the map.
    """
    if full_at is None or last_keyed is None or last_keyed <= full_at:
        return end_offset
    return full_at + 1
