"""What the last compaction of a topic read, kept and took, as Kafka's CleanerStats: a property of its table, for the
metrics and for nothing else.

It is set in the commit that publishes the round, so it outlives every process.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cleantail.log.policy.offset_map import buffer_percent

PROPERTY_COMPACTION = "cleantail.last.compaction"
COUNTS = ("records_read", "records_kept", "map_records", "map_keys")
"""Measures of a log, by check_quality: records in [log start, end) before and after, those in [first dirty, end), and
their distinct keys."""


@dataclass(frozen=True, slots=True)
class LastCompaction:
    """`clean_ms` of the slowest work unit and `buffer_percent` of the fullest map; the rest is the sum over the logs
    that were compacted and checked, published or not.

    Bytes are those of data files by their share of the records (semantics.md 3.1): nothing is copied, so "written" is
    what was kept. "map" is of the dirty part, which the offset map is made of.
    """

    clean_ms: int
    buffer_percent: float
    bytes_read: int
    bytes_written: int
    messages_read: int
    messages_written: int
    map_bytes_read: int
    map_messages_read: int
    invalid_messages_read: int

    @property
    def recopy_percent(self) -> float:
        """Kept bytes in percent of those looked at; 0 where there were none."""
        return 100 * self.bytes_written / self.bytes_read if self.bytes_read else 0.0

    @classmethod
    def of_round(
        cls, units: Iterable[Mapping[str, Any]], measures: Iterable[Mapping[str, Any]]
    ) -> LastCompaction | None:
        """From compact's results and check_quality's measures. None where only retention was due, which is not the
        cleaner's work, and for a round that an earlier version has begun, which has not told everything."""
        units = list(units)
        works = {w["partition"]: w for u in units for w in u["partitions"] if w["first_dirty_offset"] < w["end_offset"]}
        logs = [m for m in measures if m["partition"] in works]
        if not logs or not _complete(units, logs):
            return None
        read = sum(w["read_bytes"] for w in works.values())
        hidden = sum(unit["counts"]["hidden_bytes"].get(str(p), 0) for unit in units for p in works)
        return cls(
            clean_ms=max(unit["clean_ms"] for unit in units),
            buffer_percent=buffer_percent(max(m["map_keys"] for m in logs), max(unit["map_slots"] for unit in units)),
            bytes_read=read,
            bytes_written=max(read - hidden, 0),
            messages_read=sum(m["records_read"] for m in logs),
            messages_written=sum(m["records_kept"] for m in logs),
            map_bytes_read=sum(w["dirty_bytes"] for w in works.values()),
            map_messages_read=sum(m["map_records"] for m in logs),
            invalid_messages_read=sum(m["deleted"].get("invalid", 0) for m in logs),
        )

    @classmethod
    def parsed(cls, text: str | None) -> LastCompaction | None:
        """None where there is none, or one that this version cannot read: a metric is no reason to stop."""
        try:
            fields = json.loads(text or "null")
            numbers = {name: fields[name] for name in cls.__dataclass_fields__}
        except (ValueError, TypeError, KeyError):
            return None
        return cls(**numbers) if all(type(n) in (int, float) for n in numbers.values()) else None

    def as_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))


def _complete(units: Iterable[Mapping[str, Any]], logs: Iterable[Mapping[str, Any]]) -> bool:
    return all("map_slots" in unit for unit in units) and all(name in log for log in logs for name in COUNTS)
