"""What a restored topic has to hold: the archive's records, in their order, without a gap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from cleantail.sources.kcat import Record

NO_STAMP_MS = -1


def as_restored(records: Iterable[Record]) -> list[Record]:
    """The archive's records as a consumer sees them in Kafka: record n of a partition has offset n there."""
    counts: Counter[int] = Counter()
    restored = []
    for record in sorted(records, key=lambda r: (r.partition, r.offset)):
        stamp_ms = NO_STAMP_MS if record.timestamp_ms is None else record.timestamp_ms
        restored.append(replace(record, offset=counts[record.partition], timestamp_ms=stamp_ms, timestamp_type=0))
        counts[record.partition] += 1
    return restored
