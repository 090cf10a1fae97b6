"""The kinds of round, as what the one loop (spark_jobs.round.run) needs to know of them.

A compaction removes superseded records, and what is past retention; of some of its logs only the log start moves
(RoundLogs). An expiry removes tombstones that are due. A reconciliation removes keys that are gone at the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from cleantail.config.platform import Platform
from cleantail.kafka.source_topic import SourceTopic
from cleantail.lake.runs.evaluate import evaluate_topic
from cleantail.lake.runs.run_plan import RunPlan
from cleantail.log.partition_state import PROPERTY_PARTITION
from cleantail.log.round_state import COMPACT, EXPIRE, RECONCILE
from cleantail.log.work_units import PartitionWork, WorkUnit
from cleantail.rounds.checked_round import CheckedRound, StagedUnit
from spark_jobs.engine.source.gone_measures import measure_reconciliation
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.check import Measure
from spark_jobs.round.expire import expire_unit, expiry_unit
from spark_jobs.round.make import compact_unit
from spark_jobs.round.reconcile import reconcile_unit, reconciliation_unit
from spark_jobs.round.released_logs import note_rewritten

NONE_FRESH: Mapping[int, int] = {}


@dataclass(frozen=True, slots=True)
class PlannedRound:
    """Describes a round whose logs are chosen; `units` is empty where nothing is due. `stage` writes what a unit
    removes onto a branch of its own."""

    round: str
    units: tuple[WorkUnit, ...]
    stage: Callable[[WorkUnit], StagedUnit]


@dataclass(frozen=True, slots=True)
class RoundLogs:
    """Holds the logs for which a round is planned. `retained`: those of which only the log start is to move, such as
    one that rests after a failed check."""

    cleaned: frozenset[int]
    retained: frozenset[int] = frozenset()

    @classmethod
    def of(cls, works: Iterable[PartitionWork]) -> RoundLogs:
        """Returns the logs of these works."""
        retained = {work.partition: work.only_retention for work in works}
        return cls(
            frozenset(p for p, only in retained.items() if not only),
            frozenset(p for p, only in retained.items() if only),
        )


@dataclass(frozen=True, slots=True)
class RoundKind:
    """Says what all rounds of one kind have in common. `kind`: compact, expire or reconcile; `now_ms`: the run's clock,
    Unix ms. `plan` plans a round for some logs, on the table as it is when it is called. `measure` is what measures a
    unit, where the table alone does not tell whether it is right."""

    kind: str
    now_ms: int
    plan: Callable[[RoundLogs], PlannedRound]
    measure: Measure | None = None


def compaction(table: TopicTable, platform: Platform, now_ms: int, later_round: bool = False) -> RoundKind:
    """Returns the kind of round that removes superseded records, and what is past retention.

    1. The logs to clean were due when the run began, so the triggers are not asked again.
    2. Those of which only retention is due are never compacted, however often the round is planned: the pauses of their
       quarantines count.
    3. In a `later_round` of a run the log start stays where the first one has moved it.
    """

    def plan(logs: RoundLogs) -> PlannedRound:
        evaluated, works = list[RunPlan](), list[PartitionWork]()
        if logs.cleaned:
            evaluated.append(evaluate_topic(table.topic, platform, now_ms=now_ms, force=True, later_round=later_round))
            works += [work for work in _works(evaluated[-1]) if work.partition in logs.cleaned]
        if logs.retained:
            evaluated.append(evaluate_topic(table.topic, platform, now_ms=now_ms))
            resting = (work for work in _works(evaluated[-1]) if work.partition in logs.retained)
            works += [work for work in resting if work.only_retention]
        basis = next((due for due in evaluated if due.units), evaluated[0])  # the older snapshot, where both have work
        return planned_compaction(table, platform, basis.with_works(works))

    return RoundKind(COMPACT, now_ms, plan)


def _works(plan: RunPlan) -> list[PartitionWork]:
    return [work for unit in plan.units for work in unit.partitions]


def planned_compaction(table: TopicTable, platform: Platform, plan: RunPlan) -> PlannedRound:
    """Returns the compaction of the units that evaluate has planned."""
    return PlannedRound(plan.round, plan.units, partial(compact_unit, table, platform))


def expiry(
    table: TopicTable,
    platform: Platform,
    now_ms: int,
    fresh_from: Mapping[int, int] = NONE_FRESH,
    retry_quarantined: bool = False,
) -> RoundKind:
    """Returns the kind of round that removes due tombstones, by the ledgers in the table when it is planned.

    `fresh_from`: as in RunPlan. `retry_quarantined`: without waiting for the pause of a quarantine to end. Planning it
    also writes back checkpoints that lay outside their log.
    """

    def plan(logs: RoundLogs) -> PlannedRound:
        partitions = logs.cleaned | logs.retained
        due = evaluate_topic(table.topic, platform, now_ms=now_ms, retry_quarantined=retry_quarantined)
        write_back(table, due)
        base = int(table.load().currentSnapshot().snapshotId()) if due.sweep else 0
        unit = expiry_unit(due, partitions, base, table.topic.config.cleantail_readers_hold_cap_ms, fresh_from)
        return PlannedRound(due.round, (unit,) if unit.partitions else (), partial(expire_unit, table, platform, due))

    return RoundKind(EXPIRE, now_ms, plan)


def reconciliation(
    table: TopicTable, platform: Platform, source: SourceTopic, now_ms: int, wait: bool = False
) -> RoundKind:
    """Returns the kind of round that removes what is gone at the source. `wait`: as in reconciliation_unit."""

    def plan(logs: RoundLogs) -> PlannedRound:
        unit = reconciliation_unit(table, platform, source, now_ms, logs.cleaned | logs.retained or None, wait)
        stage = partial(reconcile_unit, table, platform, source)
        return PlannedRound(unit.round, (unit,) if unit.partitions else (), stage)

    return RoundKind(RECONCILE, now_ms, plan, partial(measure_reconciliation, table, platform, source))


def _not_made_anew(checked: CheckedRound) -> RoundKind:
    """Returns the kind of a checked reconciliation, whose login to the brokers this process has not: where the table
    changed under it, it is withdrawn, and the next one compares anew."""
    return RoundKind(RECONCILE, checked.now_ms, lambda _: PlannedRound(checked.round, (), _never))


def _never(unit: WorkUnit) -> StagedUnit:
    raise AssertionError(f"unit {unit.unit} of a round without units")


def kind_of(table: TopicTable, platform: Platform, checked: CheckedRound) -> RoundKind:
    """Returns the kind of a round that an earlier task has checked."""
    if checked.kind == EXPIRE:
        fresh_from = {work.partition: work.fresh_from for _, work in checked.works() if work.fresh_from is not None}
        return expiry(table, platform, checked.now_ms, fresh_from)
    if checked.kind == RECONCILE:
        return _not_made_anew(checked)
    return compaction(table, platform, checked.now_ms)


def write_back(table: TopicTable, plan: RunPlan) -> None:
    """Writes checkpoints back that lay outside their log, of logs that no unit touches (semantics.md 1.2)."""
    note_rewritten(table, plan.now_ms)
    if plan.repairs:
        table.set_properties({f"{PROPERTY_PARTITION}{p}": state.as_json() for p, state in plan.repairs.items()})
