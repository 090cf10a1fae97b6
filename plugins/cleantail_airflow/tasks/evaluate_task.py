"""The task `evaluate`: decide from metadata what a run does, and skip the tasks without work. Starts no Spark."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from airflow.sdk import BaseOperator, Context
from airflow.sdk.execution_time.xcom import XCom

from cleantail.config.loading import run_schedule_of
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.lake.evaluate import evaluate_topic, require_real_clock
from cleantail.log.work_units import WORK_UNIT_JSON
from cleantail.rounds.run_plan import EvaluatedTopic
from cleantail.rounds.stations import ROLLBACK, idle_tasks
from cleantail_airflow.airflow_exceptions import AirflowFailException, DownstreamTasksSkipped
from cleantail_airflow.dag_defaults import ALERT, OUTCOME, PLAN
from cleantail_airflow.outcomes.failures import noting
from cleantail_airflow.station_lineage import LineageOperator, lineage_of_evaluation
from cleantail_airflow.tasks.run_note import NOTE, idle_note
from cleantail_airflow.tasks.run_params import RECONCILE, require_known_params
from cleantail_airflow.tasks.spark_job import loaded_topic


class EvaluateOperator(LineageOperator, BaseOperator):
    """Decides the work of a run. Without due work, all later tasks are skipped without a process."""

    template_fields: Sequence[str] = ("topic", "reason")
    overwrite_rtif_after_execution = True  # so that `reason` shows under Rendered Templates

    def __init__(self, *, topic: str, config_dir: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.config_dir = config_dir
        self.reason: str | None = None

    @noting
    def execute(self, context: Context) -> NoReturn:
        from cleantail_airflow.alerts.alerting import EVALUATED, notify_missed_deadlines
        from cleantail_airflow.outcomes.run_metrics import send_plan, send_since_last_run

        require_known_params(context)
        context["ti"].xcom_push(EVALUATED, int(time.time() * 1000))
        topic = loaded_topic(self.topic, self.config_dir)
        params = context["params"]
        if params.get("rollback_to"):
            self.reason = "the run is a rollback: it does nothing else"
            skip_all_after(self, context, self.reason, {ROLLBACK, OUTCOME, ALERT})
        now_ms = clock_of_run(topic.platform, params["now_ms"])
        run = evaluate_topic(
            topic,
            now_ms=now_ms,
            force=params["force"],
            partition=params["partition"],
            reconcile=bool(params.get(RECONCILE)),
        )
        self.keep_lineage(lambda: lineage_of_evaluation(topic))
        send_plan(topic, run)
        send_since_last_run([self.topic], context["ti"])
        self.log.info("%s", run.table())
        self.reason = f"{run.reason}; {run.sweep_reason}; {run.reclaim.reason}"
        context["ti"].xcom_push(PLAN, run.as_json())
        schedule = run_schedule_of(topic, Path(self.config_dir))
        notify_missed_deadlines(topic, context, run.logs, now_ms, schedule)
        if not run.due:
            context["ti"].xcom_push(NOTE, idle_note(schedule, self.reason, run.logs))
            skip_all_after(self, context, self.reason, [ALERT] if has_to_notify(topic, run, now_ms) else [])
        set_return_value(context, [WORK_UNIT_JSON.plain(unit) for unit in run.units])
        reasons = {ROLLBACK: "the run was not triggered with rollback_to", **idle_tasks(run)}
        tasks = self.get_flat_relative_ids(upstream=False)
        skip(context, {task_id: reason for task_id, reason in reasons.items() if task_id in tasks})


def skip(context: Context, reasons: Mapping[str, str | None]) -> NoReturn:
    """End this task with success, and skip the tasks in `reasons`. Each gets its reason as an XCom."""
    ti = context["ti"]
    for task_id, reason in sorted(reasons.items()):
        XCom.set("skipped", reason, dag_id=ti.dag_id, task_id=task_id, run_id=ti.run_id)
    raise DownstreamTasksSkipped(tasks=sorted(reasons))  # type: ignore[no-untyped-call]  # Airflow has no type for it


def skip_all_after(task: BaseOperator, context: Context, reason: str, keep: Collection[str]) -> NoReturn:
    skip(context, dict.fromkeys(task.get_flat_relative_ids(upstream=False) - set(keep), reason))


def set_return_value(context: Context, mapped_over: list[Any]) -> None:
    """Store the list over which later tasks are mapped. A task that ends with `skip` cannot return it."""
    ti = context["ti"]
    where = {"dag_id": ti.dag_id, "task_id": ti.task_id, "run_id": ti.run_id}
    XCom.set("return_value", mapped_over, **where, _mapped_length=len(mapped_over))


def clock_of_run(platform: Platform, param_ms: int | None) -> int:
    """Return the run's clock (Unix ms): the param `now_ms`, else the wall clock.

    Raises AirflowFailException if the platform does not allow the param.
    """
    clock_ms = int(time.time() * 1000)
    if param_ms is None:
        return clock_ms
    try:
        require_real_clock(platform, param_ms, clock_ms)
    except CleantailError as e:
        raise AirflowFailException(str(e)) from None
    return param_ms


def has_to_notify(topic: Topic, run: EvaluatedTopic, now_ms: int) -> bool:
    """Return whether a run without work must notify the channels: an incident is open, begins or ends."""
    from cleantail.erasure.store import ErasureStore
    from cleantail.watch.alarms import erasure_alarms, log_alarms
    from cleantail_airflow.alerts.channels import load_book

    if not topic.alerts:
        return False
    if log_alarms(run.logs, run.readers, topic.config, now_ms) or load_book(topic.topic).incidents:
        return True
    return bool(erasure_alarms(ErasureStore(topic.platform).requests(topic.topic), int(time.time() * 1000)))
