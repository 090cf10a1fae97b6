"""The numbers of a topic's page over time: its charts, and what the whole evidence has counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cleantail.rounds.commit_summaries import SizePoint
from cleantail.rounds.past_rounds import Round
from cleantail.watch.charts import (
    ColumnChart,
    PartitionChart,
    SizeChart,
    dropped_chart,
    duration_chart,
    partition_charts,
    size_chart,
)
from cleantail.watch.log_metrics import Totals
from cleantail.watch.metrics import PUT_BACK, RECLAIMED, SAVED

PARTITIONS_SHOWN = 12
"""Partitions whose history is shown at once; the others are folded."""


@dataclass(frozen=True, slots=True)
class Charts:
    """Holds the charts of one topic; None where there is nothing to draw."""

    size: SizeChart | None
    dropped: ColumnChart | None
    durations: ColumnChart | None
    partitions: Sequence[PartitionChart]

    @classmethod
    def of(cls, sizes: Sequence[SizePoint], rounds: Sequence[Round]) -> Charts:
        """Draws the charts. `rounds` are without rollbacks: those are decisions, and drop nothing."""
        return cls(size_chart(sizes), dropped_chart(rounds), duration_chart(rounds), partition_charts(rounds))


@dataclass(frozen=True, slots=True)
class SavedBytes:
    """Says what one topic has saved by its evidence.

    All reclaims have freed `freed_bytes`; all rounds that were not undone have hidden `so_far_bytes`, which is None
    while the evidence is not read.
    """

    freed_bytes: int = 0
    so_far_bytes: int | None = None


def saved_bytes(totals: Totals | None, topics: Iterable[str]) -> dict[str, SavedBytes]:
    """Returns what each topic has saved; nothing while the evidence is not read."""
    if totals is None:
        return {}
    return {
        name: SavedBytes(totals[RECLAIMED, (name,)], max(totals[SAVED, (name,)] - totals[PUT_BACK, (name,)], 0))
        for name in topics
    }
