"""Says what the portions of a read have appended, and the read's result that is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cleantail.config.topic import Topic
from cleantail.kafka.read_plan import Range
from cleantail.log.source_position import Gap
from cleantail.rounds.station_results import KafkaIngestResult, OffsetRange


@dataclass(frozen=True, slots=True)
class Portion:
    """Says what one commit of a read has appended: its ranges by partition, records, bytes of data files, and the gaps
    before them. After a `last` one there is nothing left of the read."""

    ranges: tuple[Range, ...]
    records: int
    written_bytes: int
    gaps: tuple[Gap, ...] = ()
    warnings: tuple[str, ...] = ()
    last: bool = False

    @property
    def offsets(self) -> int:
        """Returns how many offsets it has passed."""
        return sum(each.offsets for each in self.ranges)


def offset_spans(ranges: Sequence[Range]) -> dict[int, tuple[int, int]]:
    """Returns partition -> [from, to) of offsets, by partition number. `ranges` follow on one another in each
    partition."""
    spans: dict[int, tuple[int, int]] = {}
    for each in sorted(ranges, key=lambda r: (r.partition, r.start)):
        spans[each.partition] = (spans.get(each.partition, (each.start, 0))[0], each.end)
    return spans


def read_result(topic: Topic, portions: Sequence[Portion]) -> KafkaIngestResult:
    """Returns what the whole read has done."""
    spans = offset_spans([each for portion in portions for each in portion.ranges])
    gaps = [gap for portion in portions for gap in portion.gaps]
    return KafkaIngestResult(
        kafka_topic=topic.kafka_topic,
        records=sum(portion.records for portion in portions),
        commits=len(portions),
        partitions=tuple(OffsetRange(p, low, end) for p, (low, end) in spans.items()),
        gaps=tuple(OffsetRange(gap.partition, gap.from_offset, gap.to_offset) for gap in gaps),
        warnings=(*(gap.text for gap in gaps), *(text for portion in portions for text in portion.warnings)),
    )
