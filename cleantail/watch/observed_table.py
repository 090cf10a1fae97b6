"""A topic's whole table as it was read, for the page of that one topic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cleantail.lake.runs.rollback_preview import history_of
from cleantail.lake.table_metadata import TableFacts, ancestry, table_facts
from cleantail.log.horizons import Reader
from cleantail.log.quarantine import Releases
from cleantail.rounds.commit_summaries import SizePoint, size_point
from cleantail.rounds.rollback_plan import UndoneRound, published_rounds, rollbacks

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class ObservedTable:
    """Describes a topic's table as it was read, or the error.

    `facts` is None where there is no table. `sizes` are by snapshot. `undoable` are the rounds that can be undone,
    newest first, and `undone` those that rollbacks have undone (Unix ms, names).
    """

    facts: TableFacts | None = None
    sizes: tuple[SizePoint, ...] = ()
    undoable: tuple[UndoneRound, ...] = ()
    undone: tuple[tuple[int, tuple[str, ...]], ...] = ()
    error: str = ""

    def with_namespace(self, readers: tuple[Reader, ...], releases: Releases) -> ObservedTable:
        """Returns what was observed with what the table's namespace says now."""
        if self.facts is None or not (readers or releases):
            return self
        return replace(self, facts=self.facts.with_namespace(readers, releases))


def observed_table(table: Table) -> ObservedTable:
    """Reads a table's metadata and manifests."""
    history = list(history_of(table))
    return ObservedTable(table_facts(table), size_points(table), published_rounds(history), rollbacks(history))


def size_points(table: Table) -> tuple[SizePoint, ...]:
    """Returns one point a snapshot of main's history. Branches of rounds are left out: readers never saw them."""
    summaries = (
        (s.timestamp_ms, s.summary) for s in ancestry(table, table.current_snapshot()) if s.summary is not None
    )
    points = [size_point(at_ms, summary.operation.value, summary.additional_properties) for at_ms, summary in summaries]
    return tuple(reversed(points))
