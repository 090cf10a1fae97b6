"""Parse the XComs of a run: the plan of `evaluate`, and the reports of jobs.

Every editor of a DAG can write its XComs. So a report only names the round, and is no reason for a job to publish data.
"""

from __future__ import annotations

import logging
from typing import Any, TypeVar

from airflow.sdk import Context

from cleantail.codec import Codec
from cleantail.errors import TableError
from cleantail.rounds.job_report import EndedJob, JobReport
from cleantail.rounds.run_plan import RUN_PLAN_JSON, RunPlan
from cleantail.rounds.stations import CHECK_QUALITY, EVALUATE
from cleantail_airflow.airflow_exceptions import AirflowFailException
from cleantail_airflow.dag_defaults import PLAN

T = TypeVar("T")


def parsed(codec: Codec[T], xcom: Any, where: str) -> T:
    """Parse an XCom. Raises AirflowFailException for an XCom that its task cannot have written."""
    try:
        return codec.of_plain(xcom, where)
    except TableError as error:
        raise AirflowFailException(f"{where} is not as its task wrote it. Clear the whole run ({error})") from None


def plan_of(context: Context) -> RunPlan | None:
    plan = context["ti"].xcom_pull(task_ids=EVALUATE, key=PLAN)
    return None if plan is None else parsed(RUN_PLAN_JSON, plan, f"the XCom {PLAN} of {EVALUATE}")


logger = logging.getLogger(__name__)


def report_of(ended: EndedJob) -> JobReport:
    """Return the report of a job. Raises AirflowFailException if the job cannot have written it."""
    try:
        return ended.report
    except TableError as error:
        raise AirflowFailException(
            f"the XCom of {ended.job} is not as its task wrote it: a user has changed it. Nothing is published. "
            f"Clear {ended.job} and the tasks after it ({error})"
        ) from None


def report_from(context: Context, source: str) -> JobReport | None:
    """Parse the XCom of a task of this run. Returns None if the task has no XCom."""
    result: dict[str, Any] | None = context["ti"].xcom_pull(task_ids=source)
    return report_of(EndedJob(source, result)) if result else None


def readable_report_from(context: Context, source: str) -> JobReport | None:
    """Parse the XCom of a task as report_from does, but also return None if the XCom is invalid."""
    try:
        return report_from(context, source)
    except AirflowFailException as error:
        logger.warning("%s", error)
        return None


def checked_by(context: Context, source: str) -> JobReport | None:
    """Return the check of a round on which another task decides. None if there is no check, or if no round waits.

    An expiry or a reconciliation publishes the partitions that need not wait.
    """
    report = report_from(context, source)
    if report is None or source == CHECK_QUALITY:
        return report
    return JobReport.of_check(report.checked, units=report.checked.units) if report.checked else None
