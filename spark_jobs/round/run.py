"""The loop of a round: make, check, publish, and start over if the table changed meanwhile.

1. The round is planned: its kind (RoundKind) selects the due logs.
2. Each work unit is staged on its own branch.
3. The branches are checked before any reader sees them.
4. A round that needs approval ends here and keeps its branches: `checked` of the result may be published later.
5. One commit publishes the logs that passed. If another writer changed files that the round read, the round is
   withdrawn and starts again at step 1 with the same logs.

The command line runs all steps for a topic. The tasks of a DAG enter with a round that an earlier task checked.

A compaction removes superseded records and applies retention; for some logs it only moves the log start (RoundLogs).
An expiry removes due tombstones. A reconciliation removes keys that are gone at the source. An erasure removes every
record of erased keys.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from cleantail.erasure.erased_keys import ErasedKeys
from cleantail.errors import CleantailError, ConflictError
from cleantail.human import counted
from cleantail.kafka.source_topic import SourceTopic
from cleantail.lake.evaluate import evaluate_topic
from cleantail.log.partition_state import PROPERTY_PARTITION
from cleantail.log.round_state import COMPACT, ERASE, EXPIRE, RECONCILE
from cleantail.log.work_units import PartitionWork, WorkUnit
from cleantail.retries import ROUNDS
from cleantail.rounds.approval import held_message
from cleantail.rounds.checked_round import CheckedRound, RoundResult, StagedUnit
from cleantail.rounds.past_rounds import WITHDRAWN
from cleantail.rounds.run_plan import EvaluatedTopic
from spark_jobs.engine.erased_records import measure_erasure
from spark_jobs.engine.gone_keys import measure_reconciliation
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.quality.time_limit import are_cores_lost
from spark_jobs.round.approvals import set_aside
from spark_jobs.round.check import Measure, check_round
from spark_jobs.round.evidence import append_answer, has_answer
from spark_jobs.round.make import (
    compact_unit,
    erase_unit,
    erasure_unit,
    expire_unit,
    expiry_unit,
    reconcile_unit,
    reconciliation_unit,
)
from spark_jobs.round.publish import publish_round
from spark_jobs.round.released_logs import note_rewritten

NONE_FRESH: Mapping[int, int] = {}


@dataclass(frozen=True, slots=True)
class PlannedRound:
    """A round with its logs. `units` is empty if nothing is due. `stage` writes the deletes of a unit to a branch."""

    round: str
    units: tuple[WorkUnit, ...]
    stage: Callable[[WorkUnit], StagedUnit]


@dataclass(frozen=True, slots=True)
class RoundLogs:
    """The logs of a round. `retained`: logs whose log start only moves, such as quarantined ones."""

    cleaned: frozenset[int]
    retained: frozenset[int] = frozenset()

    @classmethod
    def of(cls, units: Iterable[WorkUnit]) -> RoundLogs:
        works = [work for unit in units for work in unit.partitions]
        retained = frozenset(work.partition for work in works if work.only_retention)
        return cls(frozenset(work.partition for work in works) - retained, retained)


@dataclass(frozen=True, slots=True)
class RoundKind:
    """The behaviour of a kind of round.

    kind     compact, expire, reconcile or erase
    now_ms   the run's clock, Unix ms
    plan     plans a round for some logs on the current table
    measure  measures a unit, if that needs more than the table
    """

    kind: str
    now_ms: int
    plan: Callable[[RoundLogs], PlannedRound]
    measure: Measure | None = None


def compaction(table: TopicTable, now_ms: int, later_round: bool = False) -> RoundKind:
    """Return the kind of round that removes superseded records and applies retention.

    1. The logs to clean were due at the start of the run, so the triggers are not evaluated again.
    2. Logs with only retention due are never compacted, even if the round starts over: their quarantine pauses still
       apply.
    3. A `later_round` of a run does not move log starts again.
    """

    def plan(logs: RoundLogs) -> PlannedRound:
        evaluated, works = list[EvaluatedTopic](), list[PartitionWork]()
        if logs.cleaned:
            evaluated.append(evaluate_topic(table.topic, now_ms=now_ms, force=True, later_round=later_round))
            works += [work for work in _works(evaluated[-1]) if work.partition in logs.cleaned]
        if logs.retained:
            evaluated.append(evaluate_topic(table.topic, now_ms=now_ms))
            resting = (work for work in _works(evaluated[-1]) if work.partition in logs.retained)
            works += [work for work in resting if work.only_retention]
        basis = next((due for due in evaluated if due.units), evaluated[0])  # the older snapshot if both have work
        return planned_compaction(table, basis.with_works(works))

    return RoundKind(COMPACT, now_ms, plan)


def _works(plan: EvaluatedTopic) -> list[PartitionWork]:
    return [work for unit in plan.units for work in unit.partitions]


def planned_compaction(table: TopicTable, plan: EvaluatedTopic) -> PlannedRound:
    return PlannedRound(plan.round, plan.units, partial(compact_unit, table))


def expiry(
    table: TopicTable, now_ms: int, fresh_from: Mapping[int, int] = NONE_FRESH, retry_quarantined: bool = False
) -> RoundKind:
    """Return the kind of round that removes due tombstones, by the ledgers in the current table.

    `fresh_from`: as in ExpiryRequest. `retry_quarantined` ignores quarantine pauses. Planning also writes back
    checkpoints that lie outside their log.
    """

    def plan(logs: RoundLogs) -> PlannedRound:
        partitions = logs.cleaned | logs.retained
        due = evaluate_topic(table.topic, now_ms=now_ms, retry_quarantined=retry_quarantined)
        write_back(table, due)
        unit = expiry_unit(due, partitions, table.topic.config.cleantail_readers_hold_cap_ms, fresh_from)
        return PlannedRound(due.round, (unit,) if unit.partitions else (), partial(expire_unit, table, due))

    return RoundKind(EXPIRE, now_ms, plan)


def _never(unit: WorkUnit) -> StagedUnit:
    raise AssertionError(f"unit {unit.unit} of a round without units")


def kind_of(table: TopicTable, checked: CheckedRound) -> RoundKind:
    """Return the kind of a round that an earlier task checked. A reconciliation or erasure that must start over is
    withdrawn: this process has no login to the brokers, and the request's next run makes another round."""
    if checked.kind == EXPIRE:
        fresh_from = {work.partition: work.fresh_from for _, work in checked.works() if work.fresh_from is not None}
        return expiry(table, checked.now_ms, fresh_from)
    if checked.kind in (RECONCILE, ERASE):
        return RoundKind(checked.kind, checked.now_ms, lambda _: PlannedRound(checked.round, (), _never))
    return compaction(table, checked.now_ms)


def write_back(table: TopicTable, plan: EvaluatedTopic) -> None:
    """Write back checkpoints that lie outside their log, for logs without work in the plan (semantics.md 1.2)."""
    note_rewritten(table, plan.now_ms)
    if plan.repairs:
        table.set_properties({f"{PROPERTY_PARTITION}{p}": state.as_json() for p, state in plan.repairs.items()})


logger = logging.getLogger("cleantail.rounds")

Progress = Callable[[str], None]


def silent(_: str) -> None:
    """Show no progress."""


@dataclass(frozen=True, slots=True)
class Run:
    """Settings that all rounds of a run share.

    approved_by  user who approved all results of the run in advance, or None
    publishing   called with each checked round right before its commit. If the call raises, the round is withdrawn
    """

    table: TopicTable
    progress: Progress = silent
    approved_by: str | None = None
    publishing: Callable[[CheckedRound], None] = lambda _: None


def compact_round(run: Run, plan: EvaluatedTopic, checked: CheckedRound | None = None) -> RoundResult:
    """Compact, check and publish a plan's units. `checked`: the round of the plan, if it was already checked. If the
    memory budget ends a round early (semantics.md 1.4.1), further rounds run up to the planned ends."""
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
    """Remove the due tombstones of these logs in a checked round. The arguments are those of `expiry`."""
    if not partitions:
        return RoundResult()
    kind = expiry(run.table, now_ms, fresh_from, retry_quarantined)
    return run_round(run, kind, kind.plan(RoundLogs(frozenset(partitions))))


def reconcile_round(run: Run, source: SourceTopic, now_ms: int, wait: bool = False) -> RoundResult:
    """Remove keys gone at the source in a checked round. `wait`: as in reconciliation_unit."""

    def plan(logs: RoundLogs) -> PlannedRound:
        unit = reconciliation_unit(run.table, source, now_ms, logs.cleaned | logs.retained or None, wait)
        stage = partial(reconcile_unit, run.table, source)
        return PlannedRound(unit.round, (unit,) if unit.partitions else (), stage)

    kind = RoundKind(RECONCILE, now_ms, plan, partial(measure_reconciliation, run.table, source))
    return run_round(run, kind, kind.plan(RoundLogs(frozenset())))


def erase_round(run: Run, keys: ErasedKeys, now_ms: int, partitions: Collection[int]) -> RoundResult:
    """Remove every record of these keys from these logs in a checked round."""

    def plan(logs: RoundLogs) -> PlannedRound:
        unit = erasure_unit(run.table, now_ms, logs.cleaned | logs.retained)
        return PlannedRound(unit.round, (unit,) if unit.partitions else (), partial(erase_unit, run.table, keys))

    kind = RoundKind(ERASE, now_ms, plan, partial(measure_erasure, run.table, keys))
    return run_round(run, kind, kind.plan(RoundLogs(frozenset(partitions))))


def run_round(run: Run, kind: RoundKind, start: PlannedRound | CheckedRound) -> RoundResult:
    """Run the loop: from step 2 for a planned round, from step 4 for a checked one.

    After a compaction, retention continues in the blocked logs. Raises ConflictError if the table changed in every
    attempt.
    """
    result = _until_published(run, kind, start)
    if kind.kind != COMPACT or result.checked:
        return result
    retained = retain_held_back(run, kind.now_ms, result.held_back)
    return replace(result, retained=(*result.retained, *retained))


def _until_published(run: Run, kind: RoundKind, start: PlannedRound | CheckedRound) -> RoundResult:
    """Run steps 2 to 5. After a conflict run all steps again for the same logs, within the policy for rounds."""
    logs = RoundLogs.of(start.units)
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
            run.publishing(checked)
        except CleantailError as error:
            withdraw(run, checked, str(error))
            raise
        try:
            return publish_round(run.table, checked, run.approved_by)
        except ConflictError as error:
            withdraw(run, checked, str(error))
            raise

    def note(failed: int, error: BaseException) -> None:
        logger.warning("round %s starts over (%d of %d): %s", name, failed, ROUNDS.tries, error)

    return ROUNDS.run(attempt, note)


def _made_and_checked(run: Run, kind: RoundKind, planned: PlannedRound) -> CheckedRound | None:
    """Run steps 2 and 3. Returns None if nothing is due."""
    if not planned.units:
        return None
    staged = stage_units(run, kind.kind, planned)
    steps = {EXPIRE: "checking the expiry", RECONCILE: "checking the comparison", ERASE: "checking the erasure"}
    run.progress(steps.get(kind.kind, "checking"))
    return check_round(run.table, planned.round, staged, kind.kind, kind.measure)


def stage_units(run: Run, kind: str, planned: PlannedRound) -> list[StagedUnit]:
    doing = {
        COMPACT: "compacting",
        EXPIRE: "expiring tombstones of",
        RECONCILE: "comparing with the source",
        ERASE: "erasing keys of",
    }[kind]
    staged = []
    run.table.begin_round(may_wait=len(planned.units) == 1 and kind in (COMPACT, EXPIRE))
    for unit in planned.units:
        of_all = f"unit {unit.unit + 1} of {len(planned.units)}"
        run.progress(f"{doing} {counted(len(unit.partitions), 'partition')} ({of_all})")
        staged.append(planned.stage(unit))
    return staged


def retain_held_back(run: Run, now_ms: int, held_back: Collection[int]) -> tuple[int, ...]:
    """Move the log start of blocked logs in a separate round: a quarantine never stops retention.

    Returns the logs whose start moved. In three cases the next run moves the starts: after a conflict, if that round
    needs approval, or if Spark has no cores.
    """
    if not (held_back and run.table.topic.config.deletes) or are_cores_lost(run.table.spark):
        return ()
    kind = compaction(run.table, now_ms)
    unattended = replace(run, progress=silent, approved_by=None)
    try:
        result = _until_published(unattended, kind, kind.plan(RoundLogs(frozenset(), frozenset(held_back))))
    except ConflictError as error:
        logger.warning("retention of %s is left to the next run: %s", sorted(held_back), error)
        return ()
    if result.checked:
        withdraw(run, result.checked, held_message(result.checked.topic, result.checked.holds))
        logger.warning("retention of %s is left to the next run: it waits for approval", sorted(held_back))
    return result.published


def withdraw(run: Run, checked: CheckedRound, why: str) -> None:
    """Give up an unpublished round: record the reason and drop its branches. No log's state changes."""
    if not has_answer(run.table, checked, WITHDRAWN):
        append_answer(run.table, checked, WITHDRAWN, why)
    run.table.drop_branches(unit.branch for unit in checked.units)


def drop_if_waiting(run: Run, result: RoundResult) -> RoundResult:
    """Drop a round that needs approval if the caller cannot request the approval later."""
    if result.checked:
        set_aside(run.table, result.checked, None, "it needs approval, and this run cannot request it: see --approve")
    return replace(result, checked=None)
