"""The last task of a group's run: tells the channels of each topic what began and what is over, and remembers which
topics are left to the next run."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context

from cleantail.config.topic import Topic
from cleantail.rounds.pack_results import BEGUN, EXPIRE_TOMBSTONES, SUSPECTED, WAITS, PackResult, TopicOutcome
from cleantail_airflow.airflow_exceptions import AirflowException, AirflowFailException
from cleantail_airflow.alerts.alerting import run_url
from cleantail_airflow.alerts.channels import locked_book
from cleantail_airflow.alerts.ended_run import EndedTask, FailedTask, RunOfTopic, ended_tasks, failed_tasks, tell_of_run
from cleantail_airflow.groups.group_incidents import tell_of_broken, tell_of_evaluation
from cleantail_airflow.groups.group_params import TOPIC, Asked
from cleantail_airflow.groups.group_plan import GroupPlan, group_plan_of
from cleantail_airflow.groups.group_topics import topics_of_group
from cleantail_airflow.groups.left_over import left_since, remember
from cleantail_airflow.groups.pack_report import STATIONS, results_of_packs
from cleantail_airflow.task_ids import EVALUATE, RUN_PACK
from cleantail_airflow.tasks.spark_job import platform_of

CRASHED = "the Spark application of its pack ended before its turn; the log of run_pack has the reason"


class AlertGroupOperator(BaseOperator):
    """Tells of each topic that was worked on, or of which `evaluate` found something to tell.

    It runs whatever became of the other tasks. Where a channel cannot be reached the task is red and tried again.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, group: str, config_dir: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.group = group
        self.config_dir = config_dir

    def execute(self, context: Context) -> None:
        plan = group_plan_of(context)
        if plan is None:
            self._tell_without_plan(context)
            return
        # 1. what became of the topics
        results = results_of_packs(context, len(plan.packs))
        outcomes = {outcome.topic: outcome for result in results if result for outcome in result.topics}
        skipped = _not_begun(plan, results, context)
        # 2. what is first in the next run
        waiting, before = {*plan.left_over, *skipped}, left_since(self.group)
        still = (
            waiting if plan.partition is None else {*waiting, *before}
        )  # the other logs of a topic were not asked for
        remember(self.group, still, before, plan.now_ms, context["params"][TOPIC] or None)
        if waiting:
            self.log.warning("left to the next run: %s", ", ".join(sorted(waiting)))
        # 3. the channels
        unreached = [*self._tell_of_group([], context), *self._tell_of_broken(plan, context)]
        names = {*plan.due, *plan.broken, *plan.to_tell}
        self._tell(
            names,
            lambda name: self._run_of(name, plan, outcomes.get(name), name in waiting, context),
            None,
            context,
            unreached,
        )

    def _tell_without_plan(self, context: Context) -> None:
        """Tells what became of a rollback, and of an evaluation that failed, which concerns all topics alike: so it is
        told once, unless the run was for one topic."""
        ended = ended_tasks(context)
        failed = failed_tasks(ended, context)
        try:
            asked = Asked.of(context)
            list(topics_of_group(self.group, self.config_dir, asked.topic))
        except AirflowFailException:  # nothing was done: that concerns who has triggered the run so
            self.log.info("the trigger was refused; the log of evaluate has the reason")
            return
        if not (failed or asked.rollback_to):
            self.log.info("evaluate made no plan; its log has the reason")
            return
        if not asked.topic:
            _require_told(self._tell_of_group(failed, context))
            return
        run = RunOfTopic(int(time.time() * 1000), ended, failed, asked.partition, all_tried=False)
        self._tell(None, lambda _: run, asked.topic, context)

    def _tell_of_group(self, failed: Sequence[FailedTask], context: Context) -> list[str]:
        """Tells that the evaluation failed, or that it is well again; returns the channels that were not reached."""
        unreached = tell_of_evaluation(self.group, self.config_dir, platform_of(self.config_dir), context, failed)
        return [f"{channel} of the group" for channel in unreached]

    def _tell_of_broken(self, plan: GroupPlan, context: Context) -> list[str]:
        """Tells whose YAML is broken, or right again; returns the channels that were not reached."""
        platform, only = platform_of(self.config_dir), context["params"][TOPIC] or None
        unreached = tell_of_broken(self.group, self.config_dir, platform, context, plan.broken, only)
        return [f"{channel} of the defaults" for channel in unreached]

    def _tell(
        self,
        names: Collection[str] | None,
        run_of: Callable[[str], RunOfTopic],
        only: str | None,
        context: Context,
        before: Sequence[str] = (),
    ) -> None:
        """Tells the channels of these topics, as far as they are in the group still; None is all. Raises
        AirflowException where a channel was not reached, now or `before`."""
        platform = platform_of(self.config_dir)
        unreached = dict.fromkeys(before)
        for name, topic in topics_of_group(self.group, self.config_dir, only):
            if not isinstance(topic, Topic) or not topic.alerts or (names is not None and name not in names):
                continue
            run = run_of(name)
            with locked_book(name, platform.home) as book_store:
                told = tell_of_run(topic, book_store, context, run)
            unreached |= {f"{channel} of {name}": None for channel in told}
        _require_told(unreached)

    def _run_of(
        self, name: str, plan: GroupPlan, outcome: TopicOutcome | None, waits: bool, context: Context
    ) -> RunOfTopic:
        """Returns what the run did with one topic, as if it had been alone in it."""
        failed = _failed(name, plan, outcome, waits, context)
        names = {task.task_id for task in failed}
        well = [] if waits else [EVALUATE, *_done(outcome)]
        ended = [EndedTask(task_id, "failed" if task_id in names else "success") for task_id in {*well, *names}]
        expired = outcome.rounds.get(EXPIRE_TOMBSTONES) if outcome else None
        return RunOfTopic(
            now_ms=plan.now_ms,
            ended=ended,
            failed=failed,
            only_partition=plan.partition,
            overrun=expired.left_behind if expired else (),
            all_tried=not waits,
        )


def _require_told(unreached: Collection[str]) -> None:
    if unreached:
        raise AirflowException(f"these channels were not notified, the next run tries again: {', '.join(unreached)}")


def _failed(
    name: str, plan: GroupPlan, outcome: TopicOutcome | None, waits: bool, context: Context
) -> list[FailedTask]:
    """Returns the stations that failed for a topic."""
    now_ms = int(time.time() * 1000)
    if error := plan.broken.get(name):
        return [FailedTask(EVALUATE, error, _link(EVALUATE, context), at_ms=now_ms)]
    if outcome is None:
        worked_on = name in plan.due and not waits
        return [FailedTask(RUN_PACK, CRASHED, _link(RUN_PACK, context), at_ms=now_ms)] if worked_on else []
    failed = []
    for station in STATIONS:
        link = _link(RUN_PACK if station.task_id in plan.skipped else station.task_id, context)
        if red := tuple(station.red(outcome)):
            failed.append(FailedTask(station.task_id, "", link, red, now_ms))
        if outcome.error and outcome.station in station.errors_of:
            failed.append(FailedTask(station.task_id, outcome.error, link, at_ms=now_ms))
    return failed


def _done(outcome: TopicOutcome | None) -> list[str]:
    """Returns the tasks that did something for a topic: of no other one a failure is over by a run in which something
    failed."""
    if outcome is None:
        return []
    died_here = outcome.error in (BEGUN, WAITS, SUSPECTED)
    return [*([] if died_here else [RUN_PACK]), *(station.task_id for station in STATIONS if station.line(outcome))]


def _not_begun(plan: GroupPlan, results: Sequence[PackResult | None], context: Context) -> set[str]:
    """Returns the topics of the packs that the run had no time for: their task was skipped."""
    ti: Any = context["ti"]
    rows = ti.get_task_breadcrumbs(dag_id=ti.dag_id, run_id=ti.run_id)
    skipped = {row["map_index"] for row in rows if row["task_id"] == RUN_PACK and str(row["state"]) == "skipped"}
    packs = zip(plan.packs, results, strict=True)
    return {t for number, (pack, result) in enumerate(packs) if number in skipped and not result for t in pack.topics}


def _link(task_id: str, context: Context) -> str:
    return f"{run_url(context)}/tasks/{task_id}"
