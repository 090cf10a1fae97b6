"""Data that the page caches of topics' tables: the whole tables of a few topics, and summaries of many.

A summary has the figures of the logs and no data files, so a thousand tables take a few megabytes. It has no key and no
value of a record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cleantail.codec import Codec
from cleantail.config.topic import Topic
from cleantail.lake.facts_cache import code_digest
from cleantail.lake.table_metadata import TableFacts, history_of, table_facts
from cleantail.log.horizons import Reader
from cleantail.log.log_state import LogFigures, LogState, log_figures, log_state_at
from cleantail.log.partition_state import PartitionState
from cleantail.log.quarantine import Releases, lifted
from cleantail.log.source_position import ReadPosition
from cleantail.rounds.commit_summaries import Saved, SizePoint, last_round_at_ms, saved, size_point
from cleantail.rounds.publications import LastCompaction
from cleantail.rounds.rollback_plan import UndoneRound, published_rounds, rollbacks
from cleantail.rounds.station_results import StoredBytes

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class TableSummary:
    """Summary of a topic's table, or the error. `exists` is false without a table.

    `saved` covers the kept snapshots. `last_round_at_ms`: wall clock of the last round in these snapshots. `readers`:
    the current readers, which are not cached.
    """

    exists: bool = False
    logs: tuple[LogFigures, ...] = ()
    source: ReadPosition | None = None
    saved: Saved = Saved(0, 0)
    last_round_at_ms: int | None = None
    last_compaction: LastCompaction | None = None
    stored: StoredBytes | None = None
    table_uuid: str = ""
    readers: tuple[Reader, ...] = ()
    error: str = ""

    def with_namespace(self, readers: tuple[Reader, ...], releases: Releases) -> TableSummary:
        """Return the summary with the current readers and releases, which are properties of the table's namespace."""
        if not (self.exists and (readers or releases)):
            return self
        states = lifted({log.partition: log.state for log in self.logs}, releases, self.table_uuid)
        logs = tuple(replace(log, state=states[log.partition]) for log in self.logs)
        return replace(self, readers=readers, logs=logs)

    def states(self, topic: Topic, now_ms: int) -> tuple[LogState, ...]:
        """Return the state of every log at a moment, by partition number."""
        return tuple(log_state_at(log, topic.config, now_ms, self.source) for log in self.logs)


def summary_of(topic: Topic, facts: TableFacts, sizes: Iterable[SizePoint]) -> TableSummary:
    points = tuple(sizes)
    figures = (
        log_figures(p, facts.files_of(p), facts.states.get(p, PartitionState()), facts.arrived_of(p), topic.config)
        for p in facts.partitions
    )
    return TableSummary(
        exists=True,
        logs=tuple(figures),
        source=facts.position,
        saved=saved(facts.files, points),
        last_round_at_ms=last_round_at_ms(points),
        last_compaction=facts.last_compaction,
        stored=facts.stored,
        table_uuid=facts.table_uuid,
    )


def summary_digest(topic: Topic) -> str:
    """Return a digest of the code and of parts of the topic's YAML: what a summary depends on, except the table."""
    policy = topic.model_dump_json(include={"topic", "table", "columns", "config"})
    return hashlib.sha256(f"{code_digest()} {policy}".encode()).hexdigest()[:32]


SUMMARY_JSON: Codec[TableSummary] = Codec(TableSummary)


@dataclass(frozen=True, slots=True)
class ObservedTable:
    """A topic's whole table as it was read, or the error.

    `facts` is None without a table. `undoable`: rounds that can be undone, newest first. `undone`: rounds that
    rollbacks have undone (Unix ms, names).
    """

    facts: TableFacts | None = None
    sizes: tuple[SizePoint, ...] = ()
    undoable: tuple[UndoneRound, ...] = ()
    undone: tuple[tuple[int, tuple[str, ...]], ...] = ()
    error: str = ""

    def with_namespace(self, readers: tuple[Reader, ...], releases: Releases) -> ObservedTable:
        """Return the table with the current readers and releases, which are properties of its namespace."""
        if self.facts is None or not (readers or releases):
            return self
        return replace(self, facts=self.facts.with_namespace(readers, releases))


def observed_table(table: Table) -> ObservedTable:
    history = list(history_of(table))
    return ObservedTable(table_facts(table), size_points(table), published_rounds(history), rollbacks(history))


def size_points(table: Table) -> tuple[SizePoint, ...]:
    """Return one point for each snapshot of main's history.

    Leaves out branches of rounds, because readers never see them.
    """
    points = [size_point(c.at_ms, c.operation, c.summary) for c in history_of(table) if c.operation]
    return tuple(reversed(points))
