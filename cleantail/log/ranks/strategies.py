"""Holds what a topic's strategy says of versions, whoever compares them (semantics.md 2). Pure.

1. A version header has 8 bytes, which KIP-280 makes a big-endian long.
2. Versions compare within one strategy alone. By `header` its name and which of repeated ones counts are part of it. So
   what is remembered of deletions says nothing under another strategy (semantics.md 2, hazard 2).
   Versions by `timestamp` once were milliseconds. What is remembered as of that text is of them, and still counts.
3. A timestamp counts up to now + message.timestamp.after.max.ms (semantics.md 2, hazard 4). By LogAppendTime every
   timestamp counts.
"""

from __future__ import annotations

from cleantail.config.settings.config_model import LONG_MAX
from cleantail.config.settings.kafka_configs import KafkaConfigs

VERSION_BYTES = 8
"""The length of a version header (1)."""


def strategy_text(configs: KafkaConfigs) -> str:
    """Returns the strategy as text. Texts that are equal are of versions that compare (2)."""
    if configs.compaction_strategy == "header":
        return f"header {configs.cleantail_header_occurrence} {configs.compaction_strategy_header}"
    return "timestamp in microseconds" if configs.compaction_strategy == "timestamp" else configs.compaction_strategy


def remembered_units(configs: KafkaConfigs) -> dict[str, int]:
    """Returns the strategies, as text, whose remembered versions compare with the topic's: text -> by what such a
    version is multiplied (2)."""
    return {strategy_text(configs): 1} | ({"timestamp": 1000} if configs.compaction_strategy == "timestamp" else {})


def latest_timestamp_ms(configs: KafkaConfigs, now_ms: int) -> int:
    """Returns the latest timestamp that counts, in Unix ms, for a round whose clock is `now_ms` (3)."""
    return min(now_ms + future_ms(configs), LONG_MAX)


def future_ms(configs: KafkaConfigs) -> int:
    """Returns by how many ms a timestamp may be ahead. By LogAppendTime the broker's clock decided, and Kafka does not
    look at the bound either."""
    return configs.message_timestamp_after_max_ms if configs.message_timestamp_type == "CreateTime" else LONG_MAX
