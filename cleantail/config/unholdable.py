"""Records that a topic's table cannot hold (`cleantail.unholdable.policy`). Pure.

1. A table cannot hold a record with a timestamp beyond Iceberg's microseconds, or with a header name that is not UTF-8.
   Nor can it hold a record in which kcat's decoder wrote null in place of key or value.
2. With `fail`, the default, an ingestion stops at such a record and appends nothing.
3. With `quarantine` the record is written to a side table. With `drop` it is left out. Both are counted
   (cleantail.log.partition_state), and ingestion continues.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

POLICY = "cleantail.unholdable.policy"
LONG_MAX = (1 << 63) - 1
TIMESTAMP_MAX_MS, TIMESTAMP_MIN_MS = LONG_MAX // 1000, -(LONG_MAX // 1000)
"""The last and the first timestamp that Iceberg's microseconds can express."""
NO_TIMESTAMP_MS = -1

Reason = Literal["timestamp", "header name", "not decoded", "erased"]
TIMESTAMP: Reason = "timestamp"
HEADER_NAME: Reason = "header name"
UNDECODED: Reason = "not decoded"
ERASED: Reason = "erased"
"""A table could hold the record, but its key is on the topic's denylist (cleantail.erasure.requests)."""
TEXTS: Mapping[Reason, str] = {
    TIMESTAMP: f"a timestamp beyond {TIMESTAMP_MAX_MS} ms",
    HEADER_NAME: "the name of a header is not UTF-8, which Kafka requires",
    UNDECODED: "kcat could not decode key or value, or read Avro's null",
    ERASED: "the key was erased",
}
WAY_OUT = f'{POLICY} "quarantine" or "drop" lets the topic continue without such records'

Keep = Literal["all", "held", "unheld"]
"""Which records a task yields: all records (an unholdable one is an error), those that the table can hold, or those
that it cannot hold."""
ALL: Keep = "all"
HELD: Keep = "held"
UNHELD: Keep = "unheld"


def is_held_timestamp(ms: int) -> bool:
    return TIMESTAMP_MIN_MS <= ms <= TIMESTAMP_MAX_MS


def timestamp_text(ms: int) -> str:
    return f"timestamp {ms} is beyond what the table can hold, {TIMESTAMP_MAX_MS}"
