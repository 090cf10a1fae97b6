"""What the last compaction of a topic cost, as a property of its table: for the metrics, and for nothing else.

It is set in the commit that publishes the round, so it outlives every process.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

PROPERTY_COMPACTION = "cleantail.last.compaction"


@dataclass(frozen=True, slots=True)
class LastCompaction:
    """`clean_ms` and `buffer_percent` of the worst work unit, records over all logs that were checked."""

    clean_ms: int
    buffer_percent: float
    records_in: int
    records_out: int

    @property
    def recopy_percent(self) -> float:
        """Kept records in percent of those looked at; 0 where there were none."""
        return 100 * self.records_out / self.records_in if self.records_in else 0.0

    @classmethod
    def of_round(cls, units: Iterable[Mapping[str, Any]], measures: Iterable[Mapping[str, Any]]) -> LastCompaction:
        """From compact's results and check_quality's measures."""
        units, measures = list(units), list(measures)
        return cls(
            clean_ms=max((unit.get("clean_ms", 0) for unit in units), default=0),
            buffer_percent=max((unit.get("buffer_percent", 0.0) for unit in units), default=0.0),
            records_in=sum(m["records_in"] for m in measures),
            records_out=sum(m["records_out"] for m in measures),
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
