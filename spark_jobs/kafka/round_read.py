"""What the rounds of a read have appended, and the job's result that is made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cleantail.config import Topic
from cleantail.kafka.positions import Gap
from cleantail.kafka.read_plan import Range


@dataclass(frozen=True, slots=True)
class RoundRead:
    """What one round has appended: its ranges by partition, records, bytes of data files, and gaps before them."""

    ranges: tuple[Range, ...]
    records: int
    written_bytes: int
    gaps: tuple[Gap, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def offsets(self) -> int:
        return sum(each.offsets for each in self.ranges)


def read_result(topic: Topic, rounds: Sequence[RoundRead]) -> dict[str, Any]:
    """The job's result: numbers and texts of our own making."""
    spans: dict[int, list[int]] = {}
    for each in (each for done in rounds for each in done.ranges):
        spans.setdefault(each.partition, [each.start, each.end])[1] = each.end
    gaps = [gap for done in rounds for gap in done.gaps]
    return {
        "ok": True,
        "kafka_topic": topic.kafka_topic,
        "records": sum(done.records for done in rounds),
        "commits": len(rounds),
        "partitions": [{"partition": p, "from": low, "to": high} for p, (low, high) in sorted(spans.items())],
        "gaps": [{"partition": g.partition, "from": g.from_offset, "to": g.to_offset} for g in gaps],
        "warnings": [text for done in rounds for text in (*(gap.text for gap in done.gaps), *done.warnings)],
    }
