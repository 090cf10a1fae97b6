"""The stations of a run, in one table, and what happened to a topic at each of them.

A station is a step of a run. A topic's DAG has a task for each. In a group's DAG the tasks of a pack show them, and the
command line runs them in its own process. The table defines the stations' names and order, why a station has nothing to
do, and what it reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar

from cleantail.codec import Codec
from cleantail.errors import CleantailError, HeldError
from cleantail.human import counted
from cleantail.log import round_state
from cleantail.rounds.checked_round import RoundResult
from cleantail.rounds.run_plan import RunPlan
from cleantail.rounds.station_results import ReclaimResult

INGEST, CONVERT_DELETES, EVALUATE, COMPACT = "ingest", "convert_deletes", "evaluate", "compact"
CHECK_QUALITY, PUBLISH, RECONCILE = "check_quality", "publish", "reconcile"
EXPIRE_TOMBSTONES, RECLAIM = "expire_tombstones", "reclaim"
"""The names of the stations: those of the tasks, and of what `run_station.py` runs."""
ROLLBACK = "rollback"
"""A task and a job that run on request. STATIONS lacks the rollback, because it is not a step of a run."""
RUN_PACK = "run_pack"
"""The task of a group's DAG, and its job, that do all the work of a pack. The stations after it show the results."""
ALERT_EARLY, APPROVE = "alert_early", "approve"
APPROVE_RECONCILE, PUBLISH_RECONCILE = "approve_reconcile", "publish_reconcile"
APPROVE_EXPIRY, PUBLISH_EXPIRY = "approve_expiry", "publish_expiry"
"""Tasks that a station also has if its round may wait for a user."""
T = TypeVar("T")
NOTHING_DUE = "nothing is due"
FINAL = (CleantailError.exit_code, HeldError.exit_code)
"""Exit codes of errors for which a retry does not help: bad input or configuration, or a pending decision of a user."""


@dataclass(frozen=True, slots=True)
class Ingested:
    """How many records were appended to a topic's table, and warnings for the user."""

    records: int
    warnings: tuple[str, ...] = ()

    def __add__(self, later: Ingested) -> Ingested:
        return Ingested(self.records + later.records, (*self.warnings, *later.warnings))


@dataclass(frozen=True, slots=True)
class TopicOutcome:
    """What happened to one topic. `ok`: nothing failed, and no log was blocked.

    A station that had nothing to do has None. `station` is where `error` ended the topic's work. `may_retry`: another
    try may help. `reason`: why there was nothing to do, or empty.
    """

    topic: str
    ok: bool = True
    ingested: Ingested | None = None
    compacted: RoundResult | None = None
    reconciled: RoundResult | None = None
    expired: RoundResult | None = None
    reclaimed: ReclaimResult | None = None
    reason: str = ""
    station: str = ""
    error: str = ""
    may_retry: bool = False

    @property
    def rounds(self) -> Mapping[str, RoundResult]:
        results = {COMPACT: self.compacted, RECONCILE: self.reconciled, EXPIRE_TOMBSTONES: self.expired}
        return {station: result for station, result in results.items() if result is not None}

    @property
    def published(self) -> tuple[int, ...]:
        return tuple(sorted({p for result in self.rounds.values() for p in result.published}))

    @property
    def held_back(self) -> tuple[int, ...]:
        return tuple(sorted({p for result in self.rounds.values() for p in result.held_back}))

    def failed_at(self, station: str, error: str, exit_code: int | None) -> TopicOutcome:
        """Return the outcome of a topic whose work ended at a station. `exit_code` is None for an unexpected error."""
        return replace(self, ok=False, station=station, error=error, may_retry=exit_code not in (None, *FINAL))

    def in_short(self) -> TopicOutcome:
        """Return the outcome without facts that the evidence has, and without logs that passed without a warning."""
        compacted, reconciled, expired = map(_in_short, (self.compacted, self.reconciled, self.expired))
        return replace(self, compacted=compacted, reconciled=reconciled, expired=expired)

    def after(self, earlier: TopicOutcome) -> TopicOutcome:
        """Return this outcome joined to that of an earlier try of the same run.

        The results of that try are kept: this try finds a published log clean, and a red one in quarantine.
        """
        appended = [ingested for ingested in (earlier.ingested, self.ingested) if ingested]
        both = replace(
            self,
            ingested=sum(appended[1:], appended[0]) if appended else None,
            compacted=_joined(earlier.compacted, self.compacted),
            reconciled=_joined(earlier.reconciled, self.reconciled),
            expired=_joined(earlier.expired, self.expired),
            reclaimed=self.reclaimed or earlier.reclaimed,
        )
        return replace(both, ok=self.ok and not both.held_back, reason="" if both.rounds else self.reason)


def done(result: RoundResult) -> RoundResult | None:
    """Return a round's result; None if it had nothing to do."""
    return None if result.round is None else result


def _in_short(result: RoundResult | None) -> RoundResult | None:
    if result is None:
        return None
    verdicts = tuple(verdict for verdict in result.verdicts if verdict.warnings or not verdict.passed)
    return replace(result, measures=(), verdicts=verdicts, sample=(), ends={})


def _joined(earlier: RoundResult | None, later: RoundResult | None) -> RoundResult | None:
    """Merge both rounds of one station. A log that the later round published is no longer blocked, unless only its
    retention was published."""
    if earlier is None or later is None:
        return earlier or later
    released = set(later.published) - set(later.retained)
    still = tuple(p for p in earlier.held_back if p not in released)
    verdicts = tuple(verdict for verdict in earlier.verdicts if verdict.partition not in released)
    return replace(earlier, held_back=still, verdicts=verdicts, ok=not still).then(later)


TOPIC_OUTCOME_JSON: Codec[TopicOutcome] = Codec(TopicOutcome)


def _nothing(outcome: TopicOutcome) -> str:
    return ""


class Writes(Enum):
    """Which snapshots of the topic's table a station makes.

    NOTHING  none
    BRANCH   one on a branch
    MAIN     the newest of `main`; its result does not name it
    ROUND    the one of `main` that publishes a round, or undoes some; its result names it
    """

    NOTHING, BRANCH, MAIN, ROUND = "nothing", "branch", "main", "round"


@dataclass(frozen=True, slots=True)
class Station:
    """One station.

    `kind`: the kind of the round that it makes, checks or publishes (cleantail.log.round_state), or `rollback`; empty
    if it has none. `checks`: it checks that round, and shows the checks that failed. `writes`: what it commits to the
    topic's table. `writes_evidence`: it appends to the evidence. `reads_source`: it reads the topic's source.
    `idle`: returns why it has no work in a run of this plan, or None if it has; None if the plan does not decide that.
    `line`: its report on a topic, or "" if the topic had nothing. `errors_of`: the stations of
    TopicOutcome.station whose errors it shows. `with_approval`: further tasks if its round may wait for a
    person.
    """

    name: str
    kind: str = ""
    checks: bool = False
    writes: Writes = Writes.NOTHING
    writes_evidence: bool = False
    reads_source: bool = False
    idle: Callable[[RunPlan], str | None] | None = None
    line: Callable[[TopicOutcome], str] = _nothing
    errors_of: tuple[str, ...] = ()
    with_approval: tuple[str, ...] = ()

    @property
    def publishes(self) -> bool:
        return self.writes is Writes.ROUND


def _no_round(plan: RunPlan) -> str | None:
    return None if plan.units else plan.reason


def _ingested(outcome: TopicOutcome) -> str:
    if outcome.ingested is None or not (outcome.ingested.records or outcome.ingested.warnings):
        return ""
    return "; ".join([f"{counted(outcome.ingested.records, 'record')} appended", *outcome.ingested.warnings])


def _compacted(outcome: TopicOutcome) -> str:
    result = outcome.compacted
    return f"round {result.round} of {_logs(result)}" if result else ""


def _checked(outcome: TopicOutcome) -> str:
    result = outcome.compacted
    return f"{result.checks_text}{_held_back(result)}" if result else ""


def _published(outcome: TopicOutcome) -> str:
    return "; ".join(f"{name}: {_named(r.published)}" for name, r in outcome.rounds.items() if r.published)


def _expired(outcome: TopicOutcome) -> str:
    result = outcome.expired
    return f"{counted(result.expired, 'tombstone')} expired{_held_back(result)}" if result else ""


def _reconciled(outcome: TopicOutcome) -> str:
    return f"compared with its source: {_logs(outcome.reconciled)}" if outcome.reconciled else ""


def _reclaimed(outcome: TopicOutcome) -> str:
    if outcome.reclaimed is None:
        return ""
    done = [f"{name.replace('_', ' ')} {count}" for name, count in outcome.reclaimed.counts.items() if count]
    return ", ".join(done) or "nothing to reclaim after all"


def _held_back(result: RoundResult) -> str:
    return f"; blocked: {_named(result.held_back)}" if result.held_back else ""


def _logs(result: RoundResult) -> str:
    return f"partitions {_named({*result.published, *result.held_back, *(v.partition for v in result.verdicts)})}"


def _named(partitions: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "none"


STATIONS = (
    Station(INGEST, writes=Writes.MAIN, reads_source=True, line=_ingested, errors_of=(INGEST,)),
    Station(CONVERT_DELETES, writes=Writes.MAIN),
    Station(EVALUATE),
    Station(
        COMPACT,
        kind=round_state.COMPACT,
        writes=Writes.BRANCH,
        idle=_no_round,
        line=_compacted,
        errors_of=(EVALUATE, COMPACT),
    ),
    Station(
        CHECK_QUALITY,
        kind=round_state.COMPACT,
        checks=True,
        writes_evidence=True,
        idle=_no_round,
        line=_checked,
        with_approval=(ALERT_EARLY, APPROVE),
    ),
    Station(
        PUBLISH,
        kind=round_state.COMPACT,
        writes=Writes.ROUND,
        writes_evidence=True,
        idle=_no_round,
        line=_published,
    ),
    Station(
        RECONCILE,
        kind=round_state.RECONCILE,
        checks=True,
        writes=Writes.ROUND,
        writes_evidence=True,
        reads_source=True,
        idle=lambda plan: None if plan.reconcile.due else plan.reconcile.reason,
        line=_reconciled,
        errors_of=(RECONCILE,),
        with_approval=(APPROVE_RECONCILE, PUBLISH_RECONCILE),
    ),
    Station(
        EXPIRE_TOMBSTONES,
        kind=round_state.EXPIRE,
        checks=True,
        writes=Writes.ROUND,
        writes_evidence=True,
        idle=lambda plan: None if plan.sweep else plan.sweep_reason,
        line=_expired,
        errors_of=(EXPIRE_TOMBSTONES,),
        with_approval=(APPROVE_EXPIRY, PUBLISH_EXPIRY),
    ),
    Station(
        RECLAIM,
        writes=Writes.MAIN,
        writes_evidence=True,
        idle=lambda plan: None if plan.reclaim.due else plan.reclaim.reason,
        line=_reclaimed,
        errors_of=(RECLAIM,),
    ),
)
"""All stations, in the order in which a topic goes through them."""
_ROLLBACK = Station(ROLLBACK, kind=ROLLBACK, writes=Writes.ROUND, writes_evidence=True)
BY_NAME: Mapping[str, Station] = {station.name: station for station in (*STATIONS, _ROLLBACK)}
"""Name -> station, of all stations and of ROLLBACK."""
SHOWN: Mapping[str, Station] = {station.name: station for station in STATIONS if station.line is not _nothing}
"""Name -> station, of those that a pack shows."""


def in_order(of_stations: Mapping[str, T]) -> Iterator[tuple[str, T]]:
    """Yield the items of a mapping from names of stations, in the order of STATIONS."""
    return ((station.name, of_stations[station.name]) for station in STATIONS if station.name in of_stations)


def why_idle(station: str, plan: RunPlan) -> str | None:
    """Return why a station has nothing to do in a run of this plan. None if it has work, or if the plan does not decide
    that."""
    idle = BY_NAME[station].idle
    return idle(plan) if idle else None


def idle_tasks(plan: RunPlan) -> dict[str, str]:
    return {
        task: why
        for station in STATIONS
        if station.idle is not None and (why := station.idle(plan)) is not None
        for task in (station.name, *station.with_approval)
    }
