"""Says what the portions of a read of a source table have appended, and the read's result that is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.lake.source_table.source_snapshots import table_source_of
from cleantail.log.source_position import SnapshotGap
from cleantail.rounds.station_results import OffsetRange, TableIngestResult
from spark_jobs.round.intake.new_records import Ranges


@dataclass(frozen=True, slots=True)
class TablePortion:
    """Says what one commit of a read has appended, up to which snapshot of the source, and what was passed over. After
    a `last` one there is nothing left of the read."""

    snapshot_id: int
    records: int
    ranges: Ranges
    gaps: tuple[SnapshotGap, ...] = ()
    warnings: tuple[str, ...] = ()
    last: bool = False


def read_result(topic: Topic, platform: Platform, portions: Sequence[TablePortion]) -> TableIngestResult:
    """Returns what the whole read has done."""
    spans: dict[int, tuple[int, int]] = {}
    for portion in portions:
        for partition, (low, end) in portion.ranges.items():
            known = spans.get(partition, (low, end))
            spans[partition] = (min(known[0], low), max(known[1], end))
    gaps = [gap.text for portion in portions for gap in portion.gaps]
    return TableIngestResult(
        table=table_source_of(topic).named_in(platform.catalog.name),
        snapshot_id=portions[-1].snapshot_id if portions else None,
        records=sum(portion.records for portion in portions),
        commits=len(portions),
        partitions=tuple(OffsetRange(p, low, end) for p, (low, end) in sorted(spans.items())),
        gaps=tuple(gaps),
        warnings=(*gaps, *(text for portion in portions for text in portion.warnings)),
    )
