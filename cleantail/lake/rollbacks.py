"""Adapter: previews and results of rollbacks, of rounds or of an ingestion, through PyIceberg. Changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cleantail.codec import Codec
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.lake.catalogs import load_table, open_catalog
from cleantail.lake.evaluate import read_facts
from cleantail.lake.own_namespace import namespace_properties, readers_of
from cleantail.lake.releases import releases_of
from cleantail.lake.table_metadata import added_files, history_of, live_files, properties_that_count
from cleantail.log.horizons import Reader
from cleantail.log.partition_state import PartitionState, states_of_properties
from cleantail.log.quarantine import lifted
from cleantail.log.segments import DataFile
from cleantail.log.source_position import read_position_of
from cleantail.rounds.commit_summaries import UNDONE, Commit
from cleantail.rounds.past_ingestions import (
    IngestionChoice,
    IngestionUndo,
    UndoneIngestion,
    plan_undo,
    undone_before,
    without_ingestion,
)
from cleantail.rounds.rollback_plan import RollbackPlan, UndoneRound, answer_to, plan_rollback

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class LogUndo:
    """One log now and after a rollback: its checkpoint (None before a first round) and its live records."""

    partition: int
    checkpoint: int | None
    checkpoint_after: int | None
    records: int
    records_after: int


@dataclass(frozen=True, slots=True)
class LogWithout:
    """One log now and without an ingestion: its live records, its log end and whether it leaves quarantine.

    `readers`: readers that are past the first of the ingestion's offsets, and so may have read removed records.
    """

    partition: int
    records: int
    records_after: int
    log_end: int
    log_end_after: int
    readers: tuple[Reader, ...]
    lifts_quarantine: bool


def preview(topic: Topic, to: int | None) -> tuple[RollbackPlan, tuple[LogUndo, ...]]:
    """Return the plan on the current table, and its effect on each log. Raises as plan_rollback does."""
    table = load_table(open_catalog(topic.platform), topic)
    if table is None:
        raise CleantailError(f"topic {topic.topic} has no table yet: nothing to undo")
    states = states_of_properties(properties_that_count(table), topic.table)
    plan = plan_rollback(list(history_of(table)), to, topic.table, states)
    return plan, tuple(_logs(table, plan))


def done_already(topic: Topic, request: str) -> Commit | None:
    """Return the rollback in main's history that the same request caused."""
    table = load_table(open_catalog(topic.platform), topic)
    return answer_to(list(history_of(table)), request) if table is not None else None


def preview_ingestion(
    topic: Topic, choice: IngestionChoice
) -> tuple[IngestionUndo, tuple[LogWithout, ...]] | UndoneIngestion:
    """Return the plan on the current table, and its effect on each of the ingestion's logs.

    If the ingestion was undone before, returns that. Raises as plan_undo does.
    """
    catalog = open_catalog(topic.platform)
    table = load_table(catalog, topic)
    if table is None:
        raise CleantailError(f"topic {topic.topic} has no table yet: there is nothing to undo")
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
            records=records[p],
            records_after=records_after[p],
            log_end=max(ends.get(p, 0), state.log_end_offset or 0, read.get(p, 0)),
            log_end_after=max(ends_after.get(p, 0), without.log_end_offset or 0, read_before.get(p, 0)),
            readers=tuple(r for r in readers if r.partition == p and r.offset > lowest[p]),
            lifts_quarantine=state.quarantine is not None and without.quarantine is None,
        )


def _read_ends(table: Table, plan: IngestionUndo) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """Return the positions in the source, now and without the ingestion. Empty if the topic was never read."""
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
    """Return partition -> the best bound of its files."""
    bounds: dict[int, int] = {}
    for file in files:
        bounds[file.partition] = best(bounds.get(file.partition, bound(file)), bound(file))
    return bounds


def _logs(table: Table, plan: RollbackPlan) -> Iterator[LogUndo]:
    now = _records(live_files(table, table.metadata.current_snapshot_id))
    after = _records(live_files(table, plan.to_snapshot_id))
    for snapshot_id in plan.appends:
        after.update(_records(added_files(table, snapshot_id)))
    states = states_of_properties(properties_that_count(table), ".".join(table.name()))
    for partition in sorted({*now, *after, *plan.states}):
        state = states.get(partition, PartitionState())
        before = plan.states.get(partition, state)
        checkpoint = before.checkpoint if before else None
        yield LogUndo(partition, state.checkpoint, checkpoint, now[partition], after[partition])


def _records(files: Iterable[DataFile]) -> Counter[int]:
    counts = Counter[int]()
    for file in files:
        counts[file.partition] += file.live_records
    return counts


@dataclass(frozen=True, slots=True)
class ChangedLogs:
    """The logs that a rollback changed, and the first dirty offset of every log after it."""

    published: tuple[int, ...]
    checkpoints: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class RollbackResult:
    """The result of a rollback.

    `undone`: the undone rounds. `earlier`: rounds that stay and that a rollback could also undo.
    `appends_kept`: commits since then whose records stay. `rewrites_undone`: commits of reclaim that were undone with
    the rounds. `published` and `checkpoints`: as in ChangedLogs.
    """

    to_snapshot_id: int
    to_at_ms: int
    undone: tuple[UndoneRound, ...]
    appends_kept: int
    rewrites_undone: int
    earlier: tuple[UndoneRound, ...]
    partitions: tuple[LogUndo, ...]
    snapshot_id: int
    published: tuple[int, ...] = ()
    checkpoints: Mapping[int, int] = field(default_factory=dict)
    round: None = None
    ok: bool = True

    @classmethod
    def of(cls, plan: RollbackPlan, logs: Sequence[LogUndo], snapshot_id: int, changed: ChangedLogs) -> RollbackResult:
        return cls(
            to_snapshot_id=plan.to_snapshot_id,
            to_at_ms=plan.to_at_ms,
            undone=plan.undone,
            appends_kept=len(plan.appends),
            rewrites_undone=plan.rewrites,
            earlier=plan.earlier,
            partitions=tuple(logs),
            snapshot_id=snapshot_id,
            published=changed.published,
            checkpoints=changed.checkpoints,
        )


@dataclass(frozen=True, slots=True)
class RepeatedRollback:
    """The result of a repeated request: snapshot `snapshot_id` is its earlier rollback. No round was undone again.

    `undone`: the names of the rounds in that snapshot's summary.
    """

    snapshot_id: int
    undone: str | None
    published: tuple[int, ...]
    checkpoints: Mapping[int, int]
    round: None = None
    done_before: bool = True
    ok: bool = True

    @classmethod
    def of(cls, done: Commit, changed: ChangedLogs) -> RepeatedRollback:
        """Return the result of a request that commit `done` has already carried out."""
        return cls(done.snapshot_id, done.summary.get(UNDONE), changed.published, changed.checkpoints)


ROLLBACK_RESULT_JSON: Codec[RollbackResult | RepeatedRollback] = Codec(RollbackResult | RepeatedRollback)


def changed_logs(topic: Topic, undone: Iterable[int] | None = None) -> ChangedLogs:
    """Read the first dirty offsets from the table.

    `undone`: the logs of the undone rounds. None if the rollback was done before. Then these logs are unknown, and any
    log may have changed.
    """
    facts = read_facts(topic)
    states = facts.states if facts else {}
    checkpoints = {p: state.checkpoint for p, state in sorted(states.items()) if state.checkpoint is not None}
    return ChangedLogs(tuple(sorted(states if undone is None else undone)), checkpoints)
