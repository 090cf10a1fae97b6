"""Ranks as Spark SQL, for the `latest` view and the side table of deleted versions.

1. A rank is a struct whose last field is the offset, and the highest rank wins (semantics.md 1.4, 2). So a tie in the
   version goes to the higher offset. By `offset` the rank is the offset alone.
2. Versions are as in cleantail.log.ranks.versions, which says the same over columns. A test holds both to the same
   records.
3. A record without a version loses to any record that has one.

Nothing of a configuration is in the text but numbers, and the header's name as the hexadecimal digits of its bytes: it
cannot become SQL.
"""

from __future__ import annotations

from cleantail.config.settings.config_model import LONG_MAX
from cleantail.config.settings.kafka_configs import KafkaConfigs
from cleantail.config.topic_table import HEADERS, OFFSET, ORDER, TIMESTAMP
from cleantail.log.ranks.strategies import VERSION_BYTES, future_ms


def rank_sql(configs: KafkaConfigs, latest_ms: str) -> str:
    """Returns SQL of the rank: struct(offset), or struct(has_version, version, offset).

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
    """Returns the version of a record as a long, null where it has none: its header, its timestamp in
    microseconds, or its order."""
    if configs.compaction_strategy == "order":
        return f"`{ORDER}`"
    if configs.compaction_strategy == "header":
        value = f"{header_sql(configs)}.value"
        return f"CASE WHEN length({value}) = {VERSION_BYTES} THEN {_big_endian_long(value)} END"
    return f"CASE WHEN unix_millis(`{TIMESTAMP}`) <= {latest_ms} THEN unix_micros(`{TIMESTAMP}`) END"


def header_sql(configs: KafkaConfigs) -> str:
    """Returns SQL of the version header, a struct (key, value) whose value may be null; null where there is none.

    Of repeated headers the last counts, or the first by cleantail.header.occurrence: KIP-280 said both.
    """
    name = f"decode(X'{configs.compaction_strategy_header.encode().hex()}', 'UTF-8')"
    position = 1 if configs.cleantail_header_occurrence == "first" else -1
    return f"try_element_at(filter(`{HEADERS}`, h -> h.key = {name}), {position})"


def latest_timestamp_sql(configs: KafkaConfigs) -> str:
    """Returns SQL of the latest timestamp that counts, for a view, whose clock is that of the query."""
    bound = future_ms(configs)
    now = "unix_millis(current_timestamp())"
    return f"{LONG_MAX}L" if bound > LONG_MAX // 2 else f"({now} + {bound}L)"


def _big_endian_long(value: str) -> str:
    """Returns SQL that reads 8 bytes as a signed long. `conv` gives the unsigned number as text; what is above the
    signed range wraps."""
    unsigned = f"CAST(conv(hex({value}), 16, 10) AS DECIMAL(20, 0))"
    wrapped = f"CASE WHEN {unsigned} >= {1 << 63}BD THEN {unsigned} - {1 << 64}BD ELSE {unsigned} END"
    return f"CAST({wrapped} AS BIGINT)"
