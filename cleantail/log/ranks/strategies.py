"""Holds what a topic's strategy says of versions, whoever compares them (semantics.md 2)."""

from __future__ import annotations

from cleantail.config.settings.config_model import LONG_MAX
from cleantail.config.settings.kafka_configs import KafkaConfigs

VERSION_BYTES = 8
"""The length of a version header: KIP-280 makes it a big-endian long."""


def strategy_text(configs: KafkaConfigs) -> str:
    """Returns the strategy as text. Ranks compare only within one strategy: a ledger written under another says
    nothing."""
    if configs.compaction_strategy != "header":
        return configs.compaction_strategy
    return f"header {configs.cleantail_header_occurrence} {configs.compaction_strategy_header}"


def latest_timestamp_ms(configs: KafkaConfigs, now_ms: int) -> int:
    """Returns the latest timestamp that counts, in Unix ms, for a round whose clock is `now_ms`."""
    return min(now_ms + future_ms(configs), LONG_MAX)


def future_ms(configs: KafkaConfigs) -> int:
    """Returns by how many ms a timestamp may be ahead. By LogAppendTime the broker's clock decided, and Kafka does not
    look at the bound either."""
    return configs.message_timestamp_after_max_ms if configs.message_timestamp_type == "CreateTime" else LONG_MAX
