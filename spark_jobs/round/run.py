"""The one loop of a round: make, check, publish, and start over where the table changed under it.

1. The round is planned: which logs are due. Its kinds are in spark_jobs.round.round_kinds.
2. Each work unit is staged on a branch of its own.
3. The branches are checked before any reader sees them.
4. Where the round waits for a person, it ends here with its branches: `checked` of the result is what may be published.
5. What passed is published in one commit. Where another writer has changed what the round had read, the round is
   withdrawn, and begins again at step 1 for the same logs.

The command line runs a whole topic by it, and the tasks of a DAG come to it with a round that an earlier task checked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from cleantail.config.platform import Platform
from cleantail.errors import ConflictError
from cleantail.human import counted
from cleantail.kafka.source_topic import SourceTopic
from cleantail.lake.runs.run_plan import RunPlan
from cleantail.log.round_state import COMPACT, EXPIRE, RECONCILE
from cleantail.retries import ROUNDS
from cleantail.rounds.approval import held_message
from cleantail.rounds.checked_round import CheckedRound, RoundResult, StagedUnit
from cleantail.rounds.past_rounds import WITHDRAWN
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.quality.lost_cores import are_cores_lost
from spark_jobs.round.approvals import set_aside
from spark_jobs.round.check import check_round
from spark_jobs.round.evidence import append_answer, has_answer
from spark_jobs.round.publish import Answer, publish_round
from spark_jobs.round.round_kinds import (
    NONE_FRESH,
    PlannedRound,
    RoundKind,
    RoundLogs,
    compaction,
    expiry,
    planned_compaction,
    reconciliation,
)

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
    platform: Platform
    progress: Progress = silent
    approved_by: str | None = None
    answer: Answer | None = None


def compact_round(run: Run, plan: RunPlan, checked: CheckedRound | None = None) -> RoundResult:
    """Compacts, checks and publishes a plan's units. Where the memory budget ends a round early (semantics.md 1.4.1),
    further rounds follow up to the ends that were planned. `checked`: the round of the plan, where it was made and
    checked already."""
    result = RoundResult()
    ends = {w.partition: w.end_offset for unit in plan.units for w in unit.partitions}
    kind, planned = compaction(run.table, run.platform, plan.now_ms), planned_compaction(run.table, run.platform, plan)
    while planned.units:
        latest, checked = run_round(run, kind, checked or planned), None
        result = result.then(latest)
        unfinished = {p for p, end in latest.ends.items() if end < ends[p]}
        if not unfinished:
            break
        kind = compaction(run.table, run.platform, plan.now_ms, later_round=True)
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
    kind = expiry(run.table, run.platform, now_ms, fresh_from, retry_quarantined)
    return run_round(run, kind, kind.plan(RoundLogs(frozenset(partitions))))


def reconcile_round(run: Run, source: SourceTopic, now_ms: int, wait: bool = False) -> RoundResult:
    """Removes, checks and publishes what is alive in the table and gone at its source. `wait`: as in
    reconciliation_unit."""
    kind = reconciliation(run.table, run.platform, source, now_ms, wait)
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
            return publish_round(run.table, run.platform, checked, run.approved_by, run.answer)
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
    return check_round(run.table, run.platform, planned.round, staged, kind.kind, kind.measure)


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
    kind = compaction(run.table, run.platform, now_ms)
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
    if not has_answer(run.table, run.platform, checked, WITHDRAWN):
        append_answer(run.table, run.platform, checked, WITHDRAWN, why)
    run.table.drop_branches(unit.branch for unit in checked.units)


def drop_if_waiting(run: Run, result: RoundResult) -> RoundResult:
    """Drops a round that waits for a person where none can be asked afterwards."""
    if result.checked:
        set_aside(run.table, run.platform, result.checked, None, NOBODY_ASKED)
    return replace(result, checked=None)
