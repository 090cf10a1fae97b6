"""The base of the Spark tasks of one topic, and the last task of a run, which fails where another has failed.

What the job of a task reports is the task's XCom.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from airflow.sdk import BaseOperator, Context

from cleantail.config.loading import find_topic
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, HeldError
from cleantail.lineage import StationLineage
from cleantail.rounds.checked_round import ROUND_RESULT_JSON, RoundResult
from cleantail.watch.job_results import EndedJob
from cleantail_airflow.airflow_exceptions import AirflowException, AirflowFailException
from cleantail_airflow.catalog_login import with_login
from cleantail_airflow.outcomes.failures import Failure, RedCheck, cause_of_crash, failures_of, warnings_of
from cleantail_airflow.outcomes.run_xcoms import JobReport, plan_of, report_of
from cleantail_airflow.tasks.spark_job import SparkJobOperator

DONE_BEFORE = "no application was started: that of an earlier task has done this work"
FINAL_EXIT_CODES = (CleantailError.exit_code, HeldError.exit_code)
"""Exit codes of a job after which trying again does not help: bad input or configuration, a person has to decide."""


class CleantailSparkOperator(SparkJobOperator):
    """Runs a job of one topic. `failed`, `succeeded` and `ended` say what becomes of its report."""

    def __init__(self, *, topic: str, config_dir: str, **kwargs: Any) -> None:
        super().__init__(config_dir=config_dir, of=topic, named=("--topic", topic), **kwargs)
        self.topic = topic

    def done_before(self, context: Context) -> RoundResult | None:
        """Returns what this task's job would report, where the application of an earlier task has done its work as
        well; None where it is to be started."""
        return None

    def _run_job(self, context: Context) -> dict[str, Any]:
        try:
            result = self.done_before(context)
        except CleantailError as error:
            raise as_airflow(str(error), error.exit_code) from None
        if result is None:
            return super()._run_job(context)
        self.reason = DONE_BEFORE
        self.log.info("%s", self.reason)
        ended = EndedJob(self.job, dict(ROUND_RESULT_JSON.plain(result)))
        self.received(context, ended, None if result.ok else AirflowException(f"{self.job} is red"))
        return ended.xcom

    def require_configured(self) -> None:
        find_topic(self.topic, Path(self.config_dir))

    def records(self, context: Context) -> int | None:
        plan = plan_of(context)
        return plan.records if plan else None

    def received(self, context: Context, ended: EndedJob, error: AirflowException | None) -> None:
        from cleantail_airflow.outcomes.run_metrics import send_result

        send_result(self.topic, ended)
        report = report_of(ended.xcom, self.job)
        self.keep_lineage(lambda: self.told(context, ended, report))
        if error:
            self.failed(context, ended, report, error)
        elif ended.is_empty:  # a job that ended well has left a document
            raise AirflowException(f"{self.job} wrote no result")
        else:
            self.succeeded(report)
        self.ended(context, ended, report)

    def told(self, context: Context, ended: EndedJob, report: JobReport) -> StationLineage | None:
        """Returns what the job has read and written, red or green."""
        from cleantail_airflow.station_lineage import done

        topic = loaded_topic(self.topic, self.config_dir)
        return done(topic, ended, report, self.snapshots_read(context))

    def snapshots_read(self, context: Context) -> tuple[int, ...]:
        """Returns the snapshots that the job went by, where its own report does not name them."""
        return ()

    def succeeded(self, report: JobReport) -> None:
        """Logs the warnings of a job that ended well."""
        for warning in warnings_of(self.topic, report.verdicts):
            self.log.warning("%s", warning)

    def failed(self, context: Context, ended: EndedJob, report: JobReport, error: AirflowException) -> None:
        """Raises the error that says most; a subclass may return where the failure is not its task's.

        1. The expectations that failed, as RedCheck; the channels hear of them at once.
        2. The error that the job reports.
        3. What spark-submit printed, where the job crashed and reports nothing.
        """
        if red := failures_of(self.topic, report.verdicts, report.heads_by_log):
            context["ti"].xcom_push("return_value", ended.xcom)
            self._tell(context, red)
            raise RedCheck(self.topic, red) from None
        if not report.error:
            raise AirflowException(f"{self.job} crashed: {cause_of_crash(str(error))}") from None
        raise as_airflow(report.error, self.exit_code) from None

    def ended(self, context: Context, ended: EndedJob, report: JobReport) -> None:
        """Does what is left to do after a task that is not red."""

    def _tell(self, context: Context, red: Sequence[Failure]) -> None:
        from cleantail_airflow.alerts.alerting import tell_of_red

        plan = plan_of(context)
        topic = loaded_topic(self.topic, self.config_dir)
        tell_of_red(topic, context, red, plan.now_ms if plan else int(time.time() * 1000))


class OutcomeOperator(BaseOperator):
    """Fails where a task before it has failed. It is the run's last task: without it the success of a later task would
    make the run green."""

    def execute(self, context: Context) -> NoReturn:
        ti = context["ti"]
        states = ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id]).get(ti.run_id, {})
        failed = sorted(name for name, state in states.items() if state == "failed")
        raise AirflowFailException(
            f"failed: {', '.join(failed)}; their logs have the reasons, and the DAG's docs the remedies"
        )


def as_airflow(message: str, exit_code: int | None) -> AirflowException:
    """Returns the error of a task whose job ends with this exit code: one after which Airflow tries again, or not."""
    return (AirflowFailException if exit_code in FINAL_EXIT_CODES else AirflowException)(message)


def loaded_topic(topic: str, config_dir: str) -> Topic:
    """Return the topic from its YAML, with the catalog's login in the environment of its platform.

    Raises ConfigError, and CleantailError if a connection is missing.
    """
    loaded = find_topic(topic, Path(config_dir))
    with_login(loaded.platform)
    return loaded
