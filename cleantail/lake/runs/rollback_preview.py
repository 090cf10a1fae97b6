"""Adapter: what a rollback, of rounds or of an ingestion, would do: from metadata by PyIceberg. Changes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.own_namespace import namespace_properties, readers_of, releases_of
from cleantail.lake.table_metadata import added_files, ancestry, live_files, properties_that_count
from cleantail.log.horizons import Reader
from cleantail.log.partition_state import PartitionState, states_of_properties
from cleantail.log.quarantine import lifted
from cleantail.log.segments import DataFile
from cleantail.log.source_position import read_position_of
from cleantail.rounds.commit_summaries import Commit
from cleantail.rounds.past_ingestions import (
    IngestionChoice,
    IngestionUndo,
    UndoneIngestion,
    plan_undo,
    undone_before,
    without_ingestion,
)
from cleantail.rounds.rollback_plan import RollbackPlan, answer_to, plan_rollback

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class LogUndo:
    """Describes one log now and after a rollback: its checkpoint (None before a first round) and its live records."""

    partition: int
    checkpoint: int | None
    checkpoint_after: int | None
    records: int
    records_after: int


@dataclass(frozen=True, slots=True)
class LogWithout:
    """Describes one log now and without an ingestion: its live records, its log end, the readers that are past the
    first of the ingestion's offsets, and so may have read what goes, and whether it leaves quarantine."""

    partition: int
    records: int
    records_after: int
    log_end: int
    log_end_after: int
    readers: tuple[Reader, ...]
    lifts_quarantine: bool


def preview(topic: Topic, platform: Platform, to: int | None) -> tuple[RollbackPlan, tuple[LogUndo, ...]]:
    """Returns the plan on the table as it is now, and what it means for each log. Raises as plan_rollback does."""
    table = load_table(open_catalog(platform, os.environ), topic, platform)
    if table is None:
        raise CleantailError(f"topic {topic.topic} has no table yet: nothing to undo")
    plan = plan_rollback(list(history_of(table)), to, topic.table)
    return plan, tuple(_logs(table, plan))


def done_already(topic: Topic, platform: Platform, request: str) -> Commit | None:
    """Returns the rollback in main's history that the same request asked for."""
    table = load_table(open_catalog(platform, os.environ), topic, platform)
    return answer_to(list(history_of(table)), request) if table is not None else None


def preview_ingestion(
    topic: Topic, platform: Platform, choice: IngestionChoice
) -> tuple[IngestionUndo, tuple[LogWithout, ...]] | UndoneIngestion:
    """Returns the plan on the table as it is now, and what it means for each of the ingestion's logs; or what has done
    it before. Raises as plan_undo does."""
    catalog = open_catalog(platform, os.environ)
    table = load_table(catalog, topic, platform)
    if table is None:
        raise CleantailError(f"topic {topic.topic} has no table yet: nothing to take back")
    history = list(history_of(table))
    if before := undone_before(history, choice, topic.topic):
        return before
    plan = plan_undo(history, choice, topic.topic)
    properties = namespace_properties(catalog, topic.own_namespace)
    states = states_of_properties(properties_that_count(table), topic.table)
    states = lifted(states, releases_of(topic, properties), str(table.metadata.table_uuid))
    return plan, tuple(_logs_without(table, plan, readers_of(topic, properties), states))


def _logs_without(
    table: Table, plan: IngestionUndo, readers: Sequence[Reader], states: Mapping[int, PartitionState]
) -> Iterator[LogWithout]:
    now, before = live_files(table, None), live_files(table, plan.to_snapshot_id) if plan.to_snapshot_id else ()
    after = [*before, *(file for s in plan.appends for file in added_files(table, s))]
    lowest = _bounds(added_files(table, plan.ingestion.snapshot_id), min, lambda f: f.lower_offset)
    ends, ends_after = (_bounds(files, max, lambda f: f.upper_offset + 1) for files in (now, after))
    records, records_after = _records(now), _records(after)
    read, read_before = _read_ends(table, plan)
    for p in sorted(lowest):
        state = states.get(p, PartitionState())
        without = without_ingestion(state, plan.sources.log_ends.get(p), plan.ingestion.at_ms)
        yield LogWithout(
            partition=p,
            records=records.get(p, 0),
            records_after=records_after.get(p, 0),
            log_end=max(ends.get(p, 0), state.log_end_offset or 0, read.get(p, 0)),
            log_end_after=max(ends_after.get(p, 0), without.log_end_offset or 0, read_before.get(p, 0)),
            readers=tuple(r for r in readers if r.partition == p and r.offset > lowest[p]),
            lifts_quarantine=state.quarantine is not None and without.quarantine is None,
        )


def _read_ends(table: Table, plan: IngestionUndo) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """Returns up to where the topic was read at its source, now and without the ingestion; nothing for one that never
    was."""
    name, read = ".".join(table.name()), plan.sources.read
    properties = properties_that_count(table)
    without = dict(properties)
    if read is not None:
        without.pop(read.position_property, None)
        without |= {read.position_property: read.position_before} if read.position_before else {}
    now, before = read_position_of(properties, name), read_position_of(without, name)
    return now.next_offsets if now else {}, before.next_offsets if before else {}


def _bounds(
    files: Iterable[DataFile], best: Callable[[int, int], int], bound: Callable[[DataFile], int]
) -> dict[int, int]:
    """Returns partition -> the best bound of its files."""
    bounds: dict[int, int] = {}
    for file in files:
        bounds[file.partition] = best(bounds.get(file.partition, bound(file)), bound(file))
    return bounds


def history_of(table: Table) -> Iterator[Commit]:
    """Yields the ancestry of `main`, newest first, as far as it is kept."""
    for snapshot in ancestry(table, table.current_snapshot()):
        summary = snapshot.summary
        operation = summary.operation.value if summary else ""
        entries = dict(summary.additional_properties) if summary else {}
        yield Commit(snapshot.snapshot_id, snapshot.parent_snapshot_id, snapshot.timestamp_ms, operation, entries)


def _logs(table: Table, plan: RollbackPlan) -> Iterator[LogUndo]:
    now = _records(live_files(table, table.metadata.current_snapshot_id))
    after = _records(live_files(table, plan.to_snapshot_id))
    for snapshot_id in plan.appends:
        for partition, records in _records(added_files(table, snapshot_id)).items():
            after[partition] = after.get(partition, 0) + records
    states = states_of_properties(properties_that_count(table), ".".join(table.name()))
    for partition in sorted({*now, *after, *plan.states}):
        state = states.get(partition, PartitionState())
        before = plan.states.get(partition, state)
        checkpoint = before.checkpoint if before else None
        yield LogUndo(partition, state.checkpoint, checkpoint, now.get(partition, 0), after.get(partition, 0))


def _records(files: Any) -> dict[int, int]:
    counts: dict[int, int] = {}
    for file in files:
        counts[file.partition] = counts.get(file.partition, 0) + file.live_records
    return counts
