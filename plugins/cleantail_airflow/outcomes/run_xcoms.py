"""Parse the XComs of a run: the plan of `evaluate`, and the reports of jobs.

Every editor of a DAG can write its XComs. A report only names the round: nothing is published because of it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow.sdk import Context

from cleantail.codec import Codec
from cleantail.errors import TableError
from cleantail.rounds.checked_round import Hold, LeftBehind, StagedUnit, Verdict
from cleantail.rounds.recorded_checks import RoundReference
from cleantail.rounds.run_plan import RUN_PLAN_JSON, RunPlan
from cleantail.rounds.stations import EVALUATE
from cleantail_airflow.airflow_exceptions import AirflowFailException
from cleantail_airflow.task_ids import PLAN


def planned_run(plan: Mapping[str, Any]) -> RunPlan:
    """Parse a plan. Raises AirflowFailException if `evaluate` cannot have written it."""
    try:
        return RUN_PLAN_JSON.of_plain(plan, f"the XCom {PLAN} of {EVALUATE}")
    except TableError as error:
        raise AirflowFailException(
            f"the XCom {PLAN} of {EVALUATE} is not as its task wrote it. Clear the whole run ({error})"
        ) from None


def plan_of(context: Context) -> RunPlan | None:
    """Return the plan of this run, or None if `evaluate` has written none."""
    plan = context["ti"].xcom_pull(task_ids=EVALUATE, key=PLAN)
    return None if plan is None else planned_run(plan)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """A checked round without its measures, from check_quality or from an expiry whose round waits."""

    round: str | None = None
    units: tuple[StagedUnit, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    holds: tuple[Hold, ...] = ()

    @property
    def heads_by_log(self) -> dict[int, int]:
        """Return partition -> the checked snapshot."""
        return {work.partition: unit.head_snapshot_id for unit in self.units for work in unit.partitions}

    def reference(self, round_id: str) -> RoundReference:
        """Return the reference to the round. `round_id`, from the run's plan, is used if the report names no round."""
        heads = tuple(unit.head_snapshot_id for unit in self.units)
        return RoundReference(
            self.round or round_id, heads, tuple(sorted(v.partition for v in self.verdicts if v.passed))
        )


@dataclass(frozen=True, slots=True)
class JobReport(CheckReport):
    """The result of any job.

    `error` is why it failed; empty if it did not fail or was killed. `branch` is the branch on which compact has staged
    its unit. `published` is None for a job that publishes nothing. `checked` is the round of an expiry that waits. The
    other fields are those of RoundResult. RollbackResult also has `snapshot_id` and `checkpoints`.
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
        """Return the checked round that another task decides on. An expiry itself publishes what need not wait."""
        return self if self.published is None else self.checked


logger = logging.getLogger(__name__)
_JOB_REPORT_JSON: Codec[JobReport] = Codec(JobReport)


def report_of(result: Mapping[str, Any], source: str) -> JobReport:
    """Parse the result of the task `source`. Raises AirflowFailException if its job cannot have written it."""
    try:
        return _JOB_REPORT_JSON.of_plain(result, f"the XCom of {source}")
    except TableError as error:
        raise AirflowFailException(
            f"the XCom of {source} is not as its task wrote it: a user has changed it. Nothing is published. "
            f"Clear {source} and the tasks after it ({error})"
        ) from None


def report_from(context: Context, source: str) -> JobReport | None:
    """Parse the XCom of a task of this run. Returns None if it has none."""
    result: dict[str, Any] | None = context["ti"].xcom_pull(task_ids=source)
    return report_of(result, source) if result else None


def readable_report_from(context: Context, source: str) -> JobReport | None:
    """Parse the XCom of a task as report_from does, but return None also if it is invalid."""
    try:
        return report_from(context, source)
    except AirflowFailException as error:
        logger.warning("%s", error)
        return None


def checked_by(context: Context, source: str) -> CheckReport | None:
    """Return the checked round of a task. Returns None if it has no verdict or nothing waits."""
    report = report_from(context, source)
    return report.waiting if report else None
