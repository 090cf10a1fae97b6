"""Adapter: the records of a sample as the command line shows them to the person who is asked."""

from __future__ import annotations

import os
from collections.abc import Sequence

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.records.shown_records import ShownRecord, read_shown
from cleantail.rounds.check_results import RemovedRecord


def sampled_records(
    topic: Topic, platform: Platform, sample: Sequence[RemovedRecord]
) -> dict[tuple[int, int], ShownRecord]:
    """Returns them by partition and offset. A round that waits has removed nothing: its records are on `main`."""
    table = load_table(open_catalog(platform, os.environ), topic, platform)
    current = table.current_snapshot() if table is not None else None
    if table is None or current is None:
        return {}
    offsets: dict[int, list[int]] = {}
    for removed in sample:
        offsets.setdefault(removed.partition, []).append(removed.offset)
    records = (r for p, of_log in offsets.items() for r in read_shown(table, p, of_log, current.snapshot_id))
    return {(r.partition, r.offset): r for r in records}
