"""The plan of a run as `evaluate` hands it on, parsed in this one place. RunPlan.as_json writes it.

An XCom can be written by everybody who may edit the DAG, so what comes of it are numbers, names of logs and reasons; no
bound of a log is believed (cleantail.lake.runs.planned_units).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow.sdk import Context

from cleantail.codec import Codec
from cleantail.errors import TableError
from cleantail.log.due_work import ReconcileDecision
from cleantail.log.work_units import WorkUnit
from cleantail.rounds.checked_round import ExpiryRequest, Hold, LeftBehind, StagedUnit, Verdict
from cleantail.rounds.recorded_checks import RoundReference
from cleantail_airflow.airflow_exceptions import AirflowFailException
from cleantail_airflow.task_ids import EVALUATE, PLAN


@dataclass(frozen=True, slots=True)
class ReclaimDecision:
    """Says whether files are rewritten, and why or why not."""

    due: bool
    reason: str


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """Says what a run is to do. `now_ms`: its clock (Unix ms); `sweep`: the logs with due tombstones, None where there
    are none; `records`: how many the table has, None where nobody has written it down."""

    round: str
    now_ms: int
    reason: str
    units: tuple[WorkUnit, ...]
    sweep: ExpiryRequest | None
    sweep_reason: str
    reclaim: ReclaimDecision
    records: int | None = None
    reconcile: ReconcileDecision = ReconcileDecision()

    @property
    def due(self) -> bool:
        """Returns whether the run has anything to do."""
        return bool(self.units or self.sweep or self.reclaim.due or self.reconcile.due)


_PLANNED_RUN_JSON: Codec[PlannedRun] = Codec(PlannedRun)


def planned_run(plan: Mapping[str, Any]) -> PlannedRun:
    """Parses a plan. Raises AirflowFailException for one that `evaluate` cannot have written."""
    try:
        return _PLANNED_RUN_JSON.of_plain(plan, f"the XCom {PLAN} of {EVALUATE}")
    except TableError as error:
        raise AirflowFailException(
            f"the XCom {PLAN} of {EVALUATE} is not what the task wrote: clear the whole run ({error})"
        ) from None


def plan_of(context: Context) -> PlannedRun | None:
    """Returns the plan of this run, None where `evaluate` did not come so far."""
    plan = context["ti"].xcom_pull(task_ids=EVALUATE, key=PLAN)
    return None if plan is None else planned_run(plan)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Holds a checked round as a task hands it on, without its measures.

    The tasks that do are check_quality, and an expiry whose round waits.
    """

    round: str | None = None
    units: tuple[StagedUnit, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    holds: tuple[Hold, ...] = ()

    @property
    def heads_by_log(self) -> dict[int, int]:
        """Returns partition -> the snapshot that was checked."""
        return {work.partition: unit.head_snapshot_id for unit in self.units for work in unit.partitions}

    def reference(self, round_id: str) -> RoundReference:
        """Returns which round is meant. `round_id` is the name in the run's plan, for a report that names none."""
        heads = tuple(unit.head_snapshot_id for unit in self.units)
        return RoundReference(
            self.round or round_id, heads, tuple(sorted(v.partition for v in self.verdicts if v.passed))
        )


@dataclass(frozen=True, slots=True)
class JobReport(CheckReport):
    """Holds the result of any job.

    `error` says why it failed; empty where it did not, or was killed. `branch` is the one on which compact has staged
    its unit. `published` is None for a job that publishes nothing. `checked` is the round of an expiry that waits. The
    other fields are those of RoundResult, `snapshot_id` and `checkpoints` also those of RollbackResult.
    """

    ok: bool = True
    error: str = ""
    branch: str = ""
    published: tuple[int, ...] | None = None
    snapshot_id: int | None = None
    checkpoints: Mapping[int, int] = field(default_factory=dict)
    held_back: tuple[int, ...] = ()
    red_before: tuple[int, ...] = ()
    left_behind: tuple[LeftBehind, ...] = ()
    checked: CheckReport | None = None

    @property
    def waiting(self) -> CheckReport | None:
        """Returns the checked round that is left to another task: an expiry publishes by itself what need not wait."""
        return self if self.published is None else self.checked


logger = logging.getLogger(__name__)
_JOB_REPORT_JSON: Codec[JobReport] = Codec(JobReport)


def report_of(result: Mapping[str, Any], source: str) -> JobReport:
    """Parses the result of the task `source`. Raises AirflowFailException for one that its job cannot have written."""
    try:
        return _JOB_REPORT_JSON.of_plain(result, f"the XCom of {source}")
    except TableError as error:
        raise AirflowFailException(
            f"the XCom of {source} is not what the task returned, so nothing is published: somebody has changed it. "
            f"Clear {source} and what follows it ({error})"
        ) from None


def report_from(context: Context, source: str) -> JobReport | None:
    """Parses the XCom of a task of this run; None where it has none."""
    result: dict[str, Any] | None = context["ti"].xcom_pull(task_ids=source)
    return report_of(result, source) if result else None


def readable_report_from(context: Context, source: str) -> JobReport | None:
    """Parses the XCom of a task as report_from does, for who has to go on whatever it holds: None also where it cannot
    be read."""
    try:
        return report_from(context, source)
    except AirflowFailException as error:
        logger.warning("%s", error)
        return None


def checked_by(context: Context, source: str) -> CheckReport | None:
    """Returns the checked round that a task has handed on; None where it came to no verdict, or nothing waits."""
    report = report_from(context, source)
    return report.waiting if report else None
