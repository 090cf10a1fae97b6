"""Detect that others rewrote the history of `main`, and discard the table properties that this voids. Pure.

Iceberg's rollback_to_snapshot, set_current_snapshot and CREATE OR REPLACE TABLE take commits out of the ancestry of
`main`, and leave the table's properties as they are. A table remembers the snapshots of its last published round and of
its last ingestion: the marks. Whether a mark is lost:

1. Sequence numbers descend along an ancestry, and no two snapshots of a table have the same one.
2. A mark holds if its snapshot is in the ancestry.
3. A mark is lost if the ancestry reaches a snapshot with a lower sequence number, or its first commit, without the
   mark's snapshot. A mark is also lost if the properties came from another table.
4. Otherwise the ancestry ends at an expired snapshot, and the mark expired with it: it holds.
5. A round without a mark has only the sequence number that it had read; its own snapshot has a higher one. The round is
   lost if the ancestry reaches back to what it had read, and contains no later snapshot of a round.

What is left of the properties then:

1. If the last published round is lost, no log has a checkpoint, horizons or known sequence numbers. Each is cleaned
   from its start, and a tombstone gets its horizon from the first round that keeps it (semantics.md, part 3).
2. If the last ingestion is lost, the marks of files that are not in the table any more are removed. The position at the
   source is what it was before the oldest lost ingestion, so that its records are read again. If snapshots in between
   have expired, the position is removed: Kafka is read from the table's own log ends.
3. A quarantine stays. Each log reports that its history was rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from cleantail.codec import Codec
from cleantail.log.partition_state import (
    PROPERTY_INGESTED,
    PROPERTY_PARTITION,
    UNKNOWN_SNAPSHOT,
    PartitionState,
    Rewritten,
    states_of_properties,
)
from cleantail.log.source_position import PROPERTY_POSITION, PROPERTY_SNAPSHOT_POSITION
from cleantail.rounds.commit_summaries import OPERATION
from cleantail.rounds.past_ingestions import INGEST, SOURCES, Sources, unpacked_sources

PROPERTY_HISTORY = "cleantail.history"
"""Table property: the Marks as JSON."""
POSITIONS = (PROPERTY_POSITION, PROPERTY_SNAPSHOT_POSITION)


@dataclass(frozen=True, slots=True)
class Mark:
    """A snapshot that has to be in the ancestry of `main`."""

    snapshot_id: int
    sequence_number: int


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of a table. `published` is None before the first round, `ingested` before the first ingestion."""

    table_uuid: str
    published: Mark | None = None
    ingested: Mark | None = None


_MARKS_JSON: Codec[Marks] = Codec(Marks)


@dataclass(frozen=True, slots=True)
class MainHistory:
    """The ancestry of `main`, as far as it is kept.

    `current` is None for a table without a snapshot. `has` returns whether a snapshot is in the ancestry.
    `oldest_sequence_number` is that of the oldest kept snapshot; `is_whole`: that one is the first commit. `last_round`
    returns Cleantail's newest round in the ancestry, and is only called if the table has no mark of a round.
    """

    table_uuid: str
    current: Mark | None
    has: Callable[[int], bool]
    oldest_sequence_number: int
    is_whole: bool
    last_round: Callable[[], Mark | None] = lambda: None

    def lost(self, mark: Mark | None, table_uuid: str) -> bool:
        """Return whether others took a mark out of the ancestry (rules 2 to 4)."""
        if mark is None or (table_uuid == self.table_uuid and self.has(mark.snapshot_id)):
            return False
        return table_uuid != self.table_uuid or self.is_whole or self.oldest_sequence_number <= mark.sequence_number

    def lost_round_after(self, sequence_number: int) -> bool:
        """Return whether others took a round without a mark out of the ancestry (rule 5)."""
        if not (self.is_whole or self.oldest_sequence_number <= sequence_number):
            return False
        last = self.last_round()
        return last is None or last.sequence_number <= sequence_number


def marks_of(properties: Mapping[str, str], table: str, table_uuid: str) -> Marks:
    """Return the marks in a table's properties. Raises TableError."""
    text = properties.get(PROPERTY_HISTORY)
    return _MARKS_JSON.value(text, f"{table}: property {PROPERTY_HISTORY}") if text is not None else Marks(table_uuid)


def property_of_marks(marks: Marks) -> dict[str, str]:
    return {PROPERTY_HISTORY: _MARKS_JSON.text(marks)}


@dataclass(frozen=True, slots=True)
class GoneCommits:
    """The summaries of the commits between a lost mark and the ancestry of `main`, newest first. `is_whole`: none of
    them expired."""

    summaries: tuple[Mapping[str, str], ...]
    is_whole: bool


def may_be_rewritten(properties: Mapping[str, str]) -> bool:
    """Return whether the properties hold what a rewritten history can void. If not, no history has to be read."""
    return PROPERTY_HISTORY in properties or any(name.startswith(PROPERTY_PARTITION) for name in properties)


def lost_marks(properties: Mapping[str, str], history: MainHistory, table: str) -> Marks | None:
    """Return the marks if others removed the snapshot of one from the history of `main`, else None.

    Raises TableError if the marks cannot be read."""
    marks = marks_of(properties, table, history.table_uuid)
    published, ingested = (
        mark if history.lost(mark, marks.table_uuid) else None for mark in (marks.published, marks.ingested)
    )
    if marks.published is None:
        rounds = [s for s in states_of_properties(properties, table).values() if s.last_round_ms is not None]
        read = max((state.known_sequence_number for state in rounds), default=None)
        if read is not None and history.lost_round_after(read):
            published = Mark(UNKNOWN_SNAPSHOT, read + 1)
    return Marks(marks.table_uuid, published, ingested) if published or ingested else None


def after_rewriting(
    properties: Mapping[str, str],
    history: MainHistory,
    lost: Marks,
    gone: GoneCommits,
    table: str,
    at_ms: int | None = None,
) -> dict[str, str]:
    """Return the properties that are left. Raises TableError.

    `gone` has the commits after the lost ingestion. `at_ms` is when a run noted the loss (Unix ms), None if no commit
    will note it.
    """
    left = dict(properties)
    marks = marks_of(properties, table, history.table_uuid)
    if marks.table_uuid != history.table_uuid:
        marks = Marks(history.table_uuid)
    texts = (s.get(SOURCES) for s in gone.summaries if lost.ingested and s.get(OPERATION) == INGEST)
    sources = [unpacked_sources(text, f"{table}: {SOURCES}") for text in texts if text]  # newest first
    # 1. the states of the logs
    states, mark = states_of_properties(properties, table), lost.published or lost.ingested
    note = Rewritten(mark.snapshot_id, at_ms) if mark else None
    for partition in {*states, *(p for ingestion in sources for p in ingestion.log_ends)} or {0}:
        state = states.get(partition, PartitionState())
        kept = PartitionState(quarantine=state.quarantine) if lost.published else replace(state, log_end_offset=None)
        left[f"{PROPERTY_PARTITION}{partition}"] = replace(kept, rewritten=note).as_json()
    # 2. what was ingested
    if lost.ingested:
        for file in (file for ingestion in sources for file in ingestion.files):
            left.pop(f"{PROPERTY_INGESTED}{file.sha256}", None)
        _put_back(left, sources, gone.is_whole)
    # 3. the marks from here on
    published = None if lost.published else marks.published
    ingested = history.current if lost.ingested else marks.ingested
    return left | property_of_marks(Marks(history.table_uuid, published, ingested))


def _put_back(left: dict[str, str], sources: Sequence[Sources], is_whole: bool) -> None:
    """Move each position back to before the oldest lost ingestion; remove it if that is unknown."""
    if not is_whole:
        for name in POSITIONS:
            left.pop(name, None)
        return
    for read in (ingestion.read for ingestion in sources if ingestion.read is not None):
        if read.position_before is None:
            left.pop(read.position_property, None)
        else:
            left[read.position_property] = read.position_before


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    return {n: t for n, t in after.items() if before.get(n) != t}, tuple(n for n in before if n not in after)
