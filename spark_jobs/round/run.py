"""The one loop of a round: make, check, publish, and start over where the table changed under it.

1. The round is planned: which logs are due. Its kinds are below (RoundKind).
2. Each work unit is staged on a branch of its own.
3. The branches are checked before any reader sees them.
4. Where the round waits for a person, it ends here with its branches: `checked` of the result is what may be published.
5. What passed is published in one commit. Where another writer has changed what the round had read, the round is
   withdrawn, and begins again at step 1 for the same logs.

The command line runs a whole topic by it, and the tasks of a DAG come to it with a round that an earlier task checked.

A compaction removes superseded records, and what is past retention; of some of its logs only the log start moves
(RoundLogs). An expiry removes tombstones that are due. A reconciliation removes keys that are gone at the source.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from cleantail.errors import ConflictError
from cleantail.human import counted
from cleantail.kafka.source_topic import SourceTopic
from cleantail.lake.evaluate import evaluate_topic
from cleantail.lake.run_plan import RunPlan
from cleantail.log.partition_state import PROPERTY_PARTITION
from cleantail.log.round_state import COMPACT, EXPIRE, RECONCILE
from cleantail.log.work_units import PartitionWork, WorkUnit
from cleantail.retries import ROUNDS
from cleantail.rounds.approval import held_message
from cleantail.rounds.checked_round import CheckedRound, RoundResult, StagedUnit
from cleantail.rounds.past_rounds import WITHDRAWN
from spark_jobs.engine.gone_keys import measure_reconciliation
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.quality.evaluation import are_cores_lost
from spark_jobs.round.approvals import set_aside
from spark_jobs.round.check import Measure, check_round
from spark_jobs.round.evidence import append_answer, has_answer
from spark_jobs.round.make import compact_unit, expire_unit, expiry_unit, reconcile_unit, reconciliation_unit
from spark_jobs.round.publish import Answer, publish_round
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


def compaction(table: TopicTable, now_ms: int, later_round: bool = False) -> RoundKind:
    """Returns the kind of round that removes superseded records, and what is past retention.

    1. The logs to clean were due when the run began, so the triggers are not asked again.
    2. Those of which only retention is due are never compacted, however often the round is planned: the pauses of their
       quarantines count.
    3. In a `later_round` of a run the log start stays where the first one has moved it.
    """

    def plan(logs: RoundLogs) -> PlannedRound:
        evaluated, works = list[RunPlan](), list[PartitionWork]()
        if logs.cleaned:
            evaluated.append(evaluate_topic(table.topic, now_ms=now_ms, force=True, later_round=later_round))
            works += [work for work in _works(evaluated[-1]) if work.partition in logs.cleaned]
        if logs.retained:
            evaluated.append(evaluate_topic(table.topic, now_ms=now_ms))
            resting = (work for work in _works(evaluated[-1]) if work.partition in logs.retained)
            works += [work for work in resting if work.only_retention]
        basis = next((due for due in evaluated if due.units), evaluated[0])  # the older snapshot, where both have work
        return planned_compaction(table, basis.with_works(works))

    return RoundKind(COMPACT, now_ms, plan)


def _works(plan: RunPlan) -> list[PartitionWork]:
    return [work for unit in plan.units for work in unit.partitions]


def planned_compaction(table: TopicTable, plan: RunPlan) -> PlannedRound:
    """Returns the compaction of the units that evaluate has planned."""
    return PlannedRound(plan.round, plan.units, partial(compact_unit, table))


def expiry(
    table: TopicTable, now_ms: int, fresh_from: Mapping[int, int] = NONE_FRESH, retry_quarantined: bool = False
) -> RoundKind:
    """Returns the kind of round that removes due tombstones, by the ledgers in the table when it is planned.

    `fresh_from`: as in RunPlan. `retry_quarantined`: without waiting for the pause of a quarantine to end. Planning it
    also writes back checkpoints that lay outside their log.
    """

    def plan(logs: RoundLogs) -> PlannedRound:
        partitions = logs.cleaned | logs.retained
        due = evaluate_topic(table.topic, now_ms=now_ms, retry_quarantined=retry_quarantined)
        write_back(table, due)
        base = int(table.load().currentSnapshot().snapshotId()) if due.sweep else 0
        unit = expiry_unit(due, partitions, base, table.topic.config.cleantail_readers_hold_cap_ms, fresh_from)
        return PlannedRound(due.round, (unit,) if unit.partitions else (), partial(expire_unit, table, due))

    return RoundKind(EXPIRE, now_ms, plan)


def reconciliation(table: TopicTable, source: SourceTopic, now_ms: int, wait: bool = False) -> RoundKind:
    """Returns the kind of round that removes what is gone at the source. `wait`: as in reconciliation_unit."""

    def plan(logs: RoundLogs) -> PlannedRound:
        unit = reconciliation_unit(table, source, now_ms, logs.cleaned | logs.retained or None, wait)
        stage = partial(reconcile_unit, table, source)
        return PlannedRound(unit.round, (unit,) if unit.partitions else (), stage)

    return RoundKind(RECONCILE, now_ms, plan, partial(measure_reconciliation, table, source))


def _not_made_anew(checked: CheckedRound) -> RoundKind:
    """Returns the kind of a checked reconciliation, whose login to the brokers this process has not: where the table
    changed under it, it is withdrawn, and the next one compares anew."""
    return RoundKind(RECONCILE, checked.now_ms, lambda _: PlannedRound(checked.round, (), _never))


def _never(unit: WorkUnit) -> StagedUnit:
    raise AssertionError(f"unit {unit.unit} of a round without units")


def kind_of(table: TopicTable, checked: CheckedRound) -> RoundKind:
    """Returns the kind of a round that an earlier task has checked."""
    if checked.kind == EXPIRE:
        fresh_from = {work.partition: work.fresh_from for _, work in checked.works() if work.fresh_from is not None}
        return expiry(table, checked.now_ms, fresh_from)
    if checked.kind == RECONCILE:
        return _not_made_anew(checked)
    return compaction(table, checked.now_ms)


def write_back(table: TopicTable, plan: RunPlan) -> None:
    """Writes checkpoints back that lay outside their log, of logs that no unit touches (semantics.md 1.2)."""
    note_rewritten(table, plan.now_ms)
    if plan.repairs:
        table.set_properties({f"{PROPERTY_PARTITION}{p}": state.as_json() for p, state in plan.repairs.items()})


logger = logging.getLogger("cleantail.rounds")

Progress = Callable[[str], None]
NOBODY_ASKED = "it waits for approval, and nobody could be asked: see --approve"


def silent(_: str) -> None:
    """Shows no progress."""


@dataclass(frozen=True, slots=True)
class Run:
    """Says what all rounds of a run share. `approved_by`: who has approved whatever the run finds, None where nobody
    has; `answer`: as in publish_round."""

    table: TopicTable
    progress: Progress = silent
    approved_by: str | None = None
    answer: Answer | None = None


def compact_round(run: Run, plan: RunPlan, checked: CheckedRound | None = None) -> RoundResult:
    """Compacts, checks and publishes a plan's units. Where the memory budget ends a round early (semantics.md 1.4.1),
    further rounds follow up to the ends that were planned. `checked`: the round of the plan, where it was made and
    checked already."""
    result = RoundResult()
    ends = {w.partition: w.end_offset for unit in plan.units for w in unit.partitions}
    kind, planned = compaction(run.table, plan.now_ms), planned_compaction(run.table, plan)
    while planned.units:
        latest, checked = run_round(run, kind, checked or planned), None
        result = result.then(latest)
        unfinished = {p for p, end in latest.ends.items() if end < ends[p]}
        if not unfinished:
            break
        kind = compaction(run.table, plan.now_ms, later_round=True)
        planned = kind.plan(RoundLogs(frozenset(unfinished)))
    return result


def expire_round(
    run: Run,
    now_ms: int,
    partitions: Collection[int],
    fresh_from: Mapping[int, int] = NONE_FRESH,
    retry_quarantined: bool = False,
) -> RoundResult:
    """Removes, checks and publishes the due tombstones of these logs. The arguments are those of `expiry`."""
    if not partitions:
        return RoundResult()
    kind = expiry(run.table, now_ms, fresh_from, retry_quarantined)
    return run_round(run, kind, kind.plan(RoundLogs(frozenset(partitions))))


def reconcile_round(run: Run, source: SourceTopic, now_ms: int, wait: bool = False) -> RoundResult:
    """Removes, checks and publishes what is alive in the table and gone at its source. `wait`: as in
    reconciliation_unit."""
    kind = reconciliation(run.table, source, now_ms, wait)
    return run_round(run, kind, kind.plan(RoundLogs(frozenset())))


def run_round(run: Run, kind: RoundKind, start: PlannedRound | CheckedRound) -> RoundResult:
    """Takes a round through the loop: from step 2 where it is planned, from step 4 where an earlier task checked it.

    After a compaction retention goes on in the logs that were held back. Raises ConflictError when the table changed
    under each of the tries.
    """
    result = _until_published(run, kind, start)
    if kind.kind != COMPACT or result.checked:
        return result
    retained = retain_held_back(run, kind.now_ms, result.held_back)
    return replace(result, retained=(*result.retained, *retained))


def _until_published(run: Run, kind: RoundKind, start: PlannedRound | CheckedRound) -> RoundResult:
    """Steps 2 to 5, and from step 1 again, for the same logs, as often as the policy for rounds says."""
    units = start.units
    logs = RoundLogs.of(work for unit in units for work in unit.partitions)
    name, tries = start.round, 0

    def attempt() -> RoundResult:
        nonlocal name, tries
        tries += 1
        latest = start if tries == 1 else kind.plan(logs)
        name = latest.round
        checked = _made_and_checked(run, kind, latest) if isinstance(latest, PlannedRound) else latest
        if checked is None:
            return RoundResult()
        if checked.holds and run.approved_by is None:
            return RoundResult.of_check(checked, checked=checked)
        run.progress("publishing")
        try:
            return publish_round(run.table, checked, run.approved_by, run.answer)
        except ConflictError as error:
            withdraw(run, checked, str(error))
            raise

    def note(failed: int, error: BaseException) -> None:
        logger.warning("round %s starts over (%d of %d): %s", name, failed, ROUNDS.tries, error)

    return ROUNDS.run(attempt, note)


def _made_and_checked(run: Run, kind: RoundKind, planned: PlannedRound) -> CheckedRound | None:
    """Makes and checks the planned round (steps 2 and 3), and returns it; None where nothing is due."""
    if not planned.units:
        return None
    staged = stage_units(run, kind.kind, planned)
    run.progress({EXPIRE: "checking the expiry", RECONCILE: "checking the comparison"}.get(kind.kind, "checking"))
    return check_round(run.table, planned.round, staged, kind.kind, kind.measure)


def stage_units(run: Run, kind: str, planned: PlannedRound) -> list[StagedUnit]:
    """Stages each unit on a branch of its own: step 2."""
    doing = {COMPACT: "compacting", EXPIRE: "expiring tombstones of", RECONCILE: "comparing with the source"}[kind]
    staged = []
    for unit in planned.units:
        of_all = f"unit {unit.unit + 1} of {len(planned.units)}"
        run.progress(f"{doing} {counted(len(unit.partitions), 'partition')} ({of_all})")
        staged.append(planned.stage(unit))
    return staged


def retain_held_back(run: Run, now_ms: int, held_back: Collection[int]) -> tuple[int, ...]:
    """Moves the log start of logs that were held back, by a round of its own: a quarantine never stops retention.
    Returns the logs whose start has moved. After a conflict, where that round waits for approval, or where Spark has no
    cores, the next run does it."""
    if not (held_back and run.table.topic.config.deletes) or are_cores_lost(run.table.spark):
        return ()
    kind = compaction(run.table, now_ms)
    nobody = replace(run, progress=silent, approved_by=None)
    try:
        result = _until_published(nobody, kind, kind.plan(RoundLogs(frozenset(), frozenset(held_back))))
    except ConflictError as error:
        logger.warning("retention of %s is left to the next run: %s", sorted(held_back), error)
        return ()
    if result.checked:
        withdraw(run, result.checked, held_message(result.checked.topic, result.checked.holds))
        logger.warning("retention of %s is left to the next run: it waits for approval", sorted(held_back))
    return result.published


def withdraw(run: Run, checked: CheckedRound, why: str) -> None:
    """Gives a round up: nothing of it was published, and the state of no log changes."""
    if not has_answer(run.table, checked, WITHDRAWN):
        append_answer(run.table, checked, WITHDRAWN, why)
    run.table.drop_branches(unit.branch for unit in checked.units)


def drop_if_waiting(run: Run, result: RoundResult) -> RoundResult:
    """Drops a round that waits for a person where none can be asked afterwards."""
    if result.checked:
        set_aside(run.table, result.checked, None, NOBODY_ASKED)
    return replace(result, checked=None)
