"""The plan of a run as `evaluate` hands it on, parsed in this one place. RunPlan.as_json writes it.

An XCom can be written by everybody who may edit the DAG, so what comes of it are numbers, names of logs and reasons; no
bound of a log is believed (cleantail.lake.runs.planned_units).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow.sdk import Context

from cleantail.codec import Codec
from cleantail.errors import TableError
from cleantail.log.due_work import ReconcileDecision
from cleantail.log.work_units import WorkUnit
from cleantail.rounds.checked_round import ExpiryRequest
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
