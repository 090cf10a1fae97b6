"""The base of all Spark tasks, the task that decides what they do, and the leaf that makes a run red.

Argv goes in, one JSON object comes back and is the task's XCom. What a job read in the data (observed values of a
check) travels only through XComs that are pulled inside `execute`: nothing of it is ever rendered as a template.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, BaseOperator, Context
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSkipException,
    DownstreamTasksSkipped,
)
from airflow.sdk.execution_time.xcom import XCom

from cleantail.config import Platform, Topic, find_topic, load_platform
from cleantail_airflow.failure_notes import noted
from cleantail_airflow.idle import NOTE, idle_note, not_due
from cleantail_airflow.places import job_file, spark_environment
from cleantail_airflow.red_check import Failure, RedCheck, failures_of, warnings_of
from cleantail_airflow.run_params import require_known_params

if TYPE_CHECKING:
    from cleantail.evaluate import RunPlan

EVALUATE = "evaluate"
ALERT = "alert"
ALERT_EARLY = "alert_early"
"""Of a topic whose rounds can wait for a person: what is wrong with it is told before that."""
OUTCOME = "outcome"
PLAN = "plan"
"""XCom of `evaluate`: the whole RunPlan. Its return value is the list of work units, over which compact is mapped."""
ARGUMENT_CHARS = 100_000
"""Linux takes no argument over 128 KiB: a longer one goes by a file, as argparse's @FILE."""
FINAL = (2, 5)
"""Exit codes of a job after which trying again does not help: bad input or configuration, a person has to decide."""


class EvaluateOperator(BaseOperator):
    """Decides what a run does, from metadata alone. If nothing is due it skips all tasks after it, free of charge."""

    template_fields: Sequence[str] = ("topic", "reason")
    overwrite_rtif_after_execution = True  # so that `reason` shows under Rendered Templates

    def __init__(self, *, topic: str, config_dir: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.config_dir = config_dir
        self.reason: str | None = None

    def execute(self, context: Context) -> NoReturn:
        with noted(context):
            self._evaluate(context)

    def _evaluate(self, context: Context) -> NoReturn:
        from cleantail.evaluate import evaluate_topic
        from cleantail_airflow.alerting import EVALUATED, tell_of_missed
        from cleantail_airflow.run_metrics import send_plan, send_since_last_run

        require_known_params(context)
        context["ti"].xcom_push(EVALUATED, int(time.time() * 1000))
        topic, platform = topic_and_platform(self.topic, self.config_dir)
        wanted = context["params"]
        if wanted.get("rollback_to"):
            self.reason = "the run is a rollback: it does nothing else"
            self._skip_all_after(context, {"rollback", OUTCOME, ALERT})
        now_ms = wanted["now_ms"] if wanted["now_ms"] is not None else int(time.time() * 1000)
        run = evaluate_topic(topic, platform, now_ms=now_ms, force=wanted["force"], partition=wanted["partition"])
        send_plan(topic, run)
        send_since_last_run(self.topic, context["ti"])
        plan = run.as_json()
        self.log.info("%s", run.table())
        self.reason = f"{plan['reason']}; {plan['sweep_reason']}; {plan['reclaim']['reason']}"
        context["ti"].xcom_push(PLAN, plan)
        tell_of_missed(topic, platform, context, run.logs, now_ms)
        if not (plan["units"] or plan["sweep"] or plan["reclaim"]["due"]):
            context["ti"].xcom_push(NOTE, idle_note(topic, self.reason, run.logs))
            self._skip_all_after(context, keep=[ALERT] if _something_to_tell(topic, run, now_ms) else [])
        self._skip_not_due(context, plan)

    def _skip_not_due(self, context: Context, plan: dict[str, Any]) -> NoReturn:
        """Ends evaluate well. What has nothing to do is skipped here: no process starts to find that out for itself."""
        ti = context["ti"]
        reasons = not_due(plan)
        tasks = sorted(reasons.keys() & self.get_flat_relative_ids(upstream=False))
        # raised, so Airflow does not keep what would be returned: the units, over which compact is mapped
        where = {"dag_id": ti.dag_id, "task_id": ti.task_id, "run_id": ti.run_id}
        XCom.set("return_value", plan["units"], **where, _mapped_length=len(plan["units"]))
        for task_id in tasks:
            XCom.set("skipped", reasons[task_id], dag_id=ti.dag_id, task_id=task_id, run_id=ti.run_id)
        raise DownstreamTasksSkipped(tasks=tasks)  # type: ignore[no-untyped-call]

    def _skip_all_after(self, context: Context, keep: Collection[str] = ()) -> NoReturn:
        """No process and no slot of the pool for a run without work; each skipped task keeps the reason as XCom."""
        ti = context["ti"]
        tasks = sorted(self.get_flat_relative_ids(upstream=False) - set(keep))
        for task_id in tasks:
            XCom.set("skipped", self.reason, dag_id=ti.dag_id, task_id=task_id, run_id=ti.run_id)
        raise DownstreamTasksSkipped(tasks=tasks)  # type: ignore[no-untyped-call]


class CleantailSparkOperator(SparkSubmitOperator):
    """Runs spark_jobs/<job>.py for one topic; returns its result. Subclasses say with which arguments, or why not."""

    template_fields: Sequence[str] = ("application", "application_args", "conf", "reason")
    overwrite_rtif_after_execution = True  # so that the final arguments and `reason` show under Rendered Templates
    job: ClassVar[str]

    def __init__(self, *, topic: str, config_dir: str, **kwargs: Any) -> None:
        super().__init__(
            application=str(job_file(self.job)),
            application_args=["--config", config_dir, "--topic", topic],
            name=f"cleantail {self.job} {topic}",
            **kwargs,
        )
        self.topic = topic
        self.config_dir = config_dir
        self.reason: str | None = None

    def arguments(self, context: Context) -> list[str]:
        """The job's own arguments; calls `skip` where it has nothing to do."""
        raise NotImplementedError

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]  # the base returns nothing
        with noted(context):
            return self._run_job(context)

    def _run_job(self, context: Context) -> dict[str, Any]:
        own = self.arguments(context)
        master = self._master()
        _, platform = topic_and_platform(self.topic, self.config_dir)
        self.conf = _submit_conf(platform, master, plan_of(context))
        self.env_vars = spark_environment(os.environ)
        with TemporaryDirectory(prefix="cleantail-") as folder:
            file = Path(folder) / "result.json"
            own = [_by_file_if_long(argument, Path(folder)) for argument in own]
            self.application_args = [*(self.application_args or ()), *own, "--result", str(file)]
            try:
                super().execute(context)
            except AirflowException as error:
                return self.failed(context, self._result(file), error)
            return self.succeeded(self._result(file))

    def _result(self, file: Path) -> dict[str, Any]:
        """What the job said, which is also what is sent as metrics."""
        from cleantail_airflow.run_metrics import send_result

        result = _read(file)
        send_result(self.job, self.topic, result)
        return result

    def succeeded(self, result: dict[str, Any]) -> dict[str, Any]:
        """A job that ended well without saying so did not end well."""
        if not result:
            raise AirflowException(f"{self.job} wrote no result")
        for warning in warnings_of(self.topic, result):
            self.log.warning("%s", warning)
        return result

    def failed(self, context: Context, result: dict[str, Any], error: AirflowException) -> dict[str, Any]:
        """Raises what tells most: the failed expectations, else the job's own words, else what spark-submit printed."""
        if red := failures_of(self.topic, result):
            context["ti"].xcom_push("return_value", result)
            self._tell(context, red)
            raise RedCheck(self.topic, red) from None
        if "error" not in result:
            raise AirflowException(f"{self.job} crashed: {_without_command(error)}") from None
        kind = AirflowFailException if self.exit_code in FINAL else AirflowException
        raise kind(result["error"]) from None

    def _tell(self, context: Context, red: Sequence[Failure]) -> None:
        from cleantail_airflow.alerting import tell_of_red

        plan, places = plan_of(context), topic_and_platform(self.topic, self.config_dir)
        tell_of_red(*places, context, red, plan["now_ms"] if plan else int(time.time() * 1000))

    @property
    def exit_code(self) -> int | None:
        process = getattr(self._hook, "_submit_sp", None)
        return getattr(process, "returncode", None)

    def skip(self, reason: str) -> NoReturn:
        self.reason = reason
        self.log.info("skipped: %s", reason)  # Airflow's own line with it is folded away in the UI
        raise AirflowSkipException(reason)

    def _master(self) -> str:
        """The connection's. Without a connection the hook would submit to a YARN cluster that nobody named."""
        try:
            connection = BaseHook.get_connection(self._conn_id)
        except AirflowNotFoundException:
            raise AirflowFailException(
                f"there is no Airflow connection {self._conn_id}: make one of type spark, as in "
                f"""AIRFLOW_CONN_{self._conn_id.upper()}='{{"conn_type": "spark", "host": "local[2]"}}'"""
            ) from None
        if connection.conn_type != "spark":
            kind = connection.conn_type
            raise AirflowFailException(f"the Airflow connection {self._conn_id} is of type {kind}, not spark")
        return connection.host or ""


class OutcomeOperator(BaseOperator):
    """Runs only where a task failed, and fails, so that no later success hides a red task."""

    def execute(self, context: Context) -> NoReturn:
        ti = context["ti"]
        states = ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id]).get(ti.run_id, {})
        failed = sorted(name for name, state in states.items() if state == "failed")
        raise AirflowFailException(f"failed: {', '.join(failed)}; the log of each says why, the DAG's docs what to do")


def _something_to_tell(topic: Topic, run: RunPlan, now_ms: int) -> bool:
    """Whether a run without work has a reason to tell the channels: something is wrong, or what was is over."""
    from cleantail.alarms import log_alarms
    from cleantail_airflow.incident_book import load_book

    if not topic.alerts:
        return False
    return bool(log_alarms(run.logs, run.readers, topic.config, now_ms) or load_book(topic.topic).incidents)


def plan_of(context: Context) -> dict[str, Any] | None:
    """The RunPlan of this run, None if evaluate did not come so far."""
    plan: dict[str, Any] | None = context["ti"].xcom_pull(task_ids=EVALUATE, key=PLAN)
    return plan


def topic_and_platform(topic: str, config_dir: str) -> tuple[Topic, Platform]:
    path = Path(config_dir)
    return find_topic(topic, path, os.environ), load_platform(path, os.environ)


def _submit_conf(platform: Platform, master: str, plan: dict[str, Any] | None) -> dict[str, str]:
    """The platform's Spark settings; the master is that of the Airflow connection, which the hook adds."""
    from cleantail.spark_settings import spark_conf

    spark = platform.spark.model_copy(update={"master": master})
    conf = spark_conf(platform.model_copy(update={"spark": spark}), os.environ, (plan or {}).get("records"))
    return {key: value for key, value in conf.items() if key != "spark.master"}


def _without_command(error: AirflowException) -> str:
    """The hook's message starts with the whole command line, which the log has already; the cause is at its end."""
    _, mark, rest = str(error).partition("Error code is: ")
    return f"{mark}{rest}" if mark else str(error)


def _by_file_if_long(argument: str, folder: Path) -> str:
    if len(argument) <= ARGUMENT_CHARS:
        return argument
    file = folder / f"argument-{len(list(folder.iterdir()))}"
    file.write_text(argument)
    return f"@{file}"


def _read(file: Path) -> dict[str, Any]:
    """The job's result, {} where it left none or half of one."""
    try:
        result: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return result
