"""The last task of a group's run: tells the channels of each topic what began and what is over, and remembers which
topics are left to the next run."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator, Context

from cleantail.config.alert_channels import Alert, Event
from cleantail.config.loading import default_alerts
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic, dag_id_of
from cleantail.rounds.pack_results import BEGUN, SUSPECTED, WAITS, PackResult
from cleantail.rounds.stations import EVALUATE, EXPIRE_TOMBSTONES, SHOWN, TopicOutcome
from cleantail.watch.incidents import Condition, Look, Notification, observed
from cleantail_airflow.airflow_exceptions import AirflowException, AirflowFailException
from cleantail_airflow.alerts.alerting import base_of, began_ms, run_url
from cleantail_airflow.alerts.channels import load_book, locked_book, tell_channels
from cleantail_airflow.alerts.ended_run import (
    EndedTask,
    FailedTask,
    RunCoverage,
    RunOfTopic,
    ended_tasks,
    failed_tasks,
    run_alarms,
    tell_of_run,
)
from cleantail_airflow.alerts.messages import Message, Place, message_of
from cleantail_airflow.groups.group_plan import (
    TOPIC,
    Asked,
    GroupPlan,
    group_plan_of,
    left_since,
    remember,
    topics_of_group,
)
from cleantail_airflow.groups.station_tasks import red_in, results_of_packs
from cleantail_airflow.task_ids import RUN_PACK
from cleantail_airflow.tasks.spark_job import platform_of


@dataclass(frozen=True, slots=True)
class GroupPlace(Place):
    """Names the page that messages of a group lead to: its DAG. `topic` names the group, as no topic can be called."""

    def page(self, partition: int | None = None) -> str:
        return f"{self.base}/dags/{self.dag_id}"


def book_of(group: str) -> str:
    """Returns the name of the group's book of incidents: no topic's, which has no colon."""
    return f"group:{group}"


def book_of_broken(group: str) -> str:
    """Returns the name of the book of the group's broken YAML files. The books of their topics are left alone: what is
    wrong with a topic its own channels hear, which a broken file does not name."""
    return f"yaml:{group}"


def is_open(group: str) -> bool:
    """Returns whether something is wrong with the group or its files, as far as channels know."""
    return any(load_book(book).incidents for book in (book_of(group), book_of_broken(group)))


def tell_of_broken(
    group: str, config_dir: str, platform: Platform, context: Context, broken: Mapping[str, str], only: str | None
) -> list[str]:
    """Tells the channels of defaults.yaml whose YAML is broken, and whose is right again; in a run for `only` one topic
    of that alone. `broken`: topic -> why nothing could be done for it. Returns the channels that were not reached."""
    if not broken and not load_book(book_of_broken(group)).incidents:
        return []
    unreadable = {name for name, topic in topics_of_group(group, config_dir) if not isinstance(topic, Topic)}
    files = {name: error for name, error in broken.items() if name in unreadable}
    place, link = _place_of(group, platform, context), f"{run_url(context)}/tasks/{EVALUATE}"
    conditions = [
        Condition(Event.RUN_FAILED, f"topic {name}", f"topic {name} cannot be evaluated: {error}", link)
        for name, error in sorted(files.items())
    ]
    look = Look(
        tuple(conditions),
        lambda condition: only is None or condition.subject == f"topic {only}",
        int(time.time() * 1000),
        began_ms(context),
        context["ti"].run_id,
    )
    with locked_book(book_of_broken(group), platform.home) as book_store:
        book_store.save(observed(book_store.load(), look))
        alerts = default_alerts(Path(config_dir))
        return tell_channels(alerts, platform, book_store, lambda _, said: message_of(said, (), place), context)


def tell_of_evaluation(
    group: str, config_dir: str, platform: Platform, context: Context, failed: Sequence[FailedTask]
) -> list[str]:
    """Tells that the evaluation of the group failed, or, without `failed`, that it is well again. Returns the channels
    that could not be reached."""
    if not failed and not load_book(book_of(group)).incidents:
        return []
    place = _place_of(group, platform, context)

    def message(_: Alert, notification: Notification) -> Message:
        return message_of(notification, (), place)

    with locked_book(book_of(group), platform.home) as book_store:
        ended = [EndedTask(EVALUATE, "failed" if failed else "success")]
        coverage, run_id = RunCoverage.of(ended, None, None), context["ti"].run_id
        look = Look(tuple(run_alarms(failed)), coverage.includes, int(time.time() * 1000), began_ms(context), run_id)
        book_store.save(observed(book_store.load(), look))
        topics = (topic for _, topic in topics_of_group(group, config_dir) if isinstance(topic, Topic))
        alerts = [alert for topic in topics for alert in topic.alerts]
        return tell_channels(alerts, platform, book_store, message, context)


def _place_of(group: str, platform: Platform, context: Context) -> GroupPlace:
    at = datetime.now(UTC).isoformat(timespec="seconds")
    dag_id = dag_id_of(group, platform.dag_prefix)
    return GroupPlace(base_of(context), f"group {group}", dag_id, context["ti"].run_id, at)


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
    for station in SHOWN.values():
        link = _link(RUN_PACK if station.name in plan.skipped else station.name, context)
        if red := tuple(red_in(station, outcome)):
            failed.append(FailedTask(station.name, "", link, red, now_ms))
        if outcome.error and outcome.station in station.errors_of:
            failed.append(FailedTask(station.name, outcome.error, link, at_ms=now_ms))
    return failed


def _done(outcome: TopicOutcome | None) -> list[str]:
    """Returns the tasks that did something for a topic: of no other one a failure is over by a run in which something
    failed."""
    if outcome is None:
        return []
    died_here = outcome.error in (BEGUN, WAITS, SUSPECTED)
    return [*([] if died_here else [RUN_PACK]), *(station.name for station in SHOWN.values() if station.line(outcome))]


def _not_begun(plan: GroupPlan, results: Sequence[PackResult | None], context: Context) -> set[str]:
    """Returns the topics of the packs that the run had no time for: their task was skipped."""
    ti: Any = context["ti"]
    rows = ti.get_task_breadcrumbs(dag_id=ti.dag_id, run_id=ti.run_id)
    skipped = {row["map_index"] for row in rows if row["task_id"] == RUN_PACK and str(row["state"]) == "skipped"}
    packs = zip(plan.packs, results, strict=True)
    return {t for number, (pack, result) in enumerate(packs) if number in skipped and not result for t in pack.topics}


def _link(task_id: str, context: Context) -> str:
    return f"{run_url(context)}/tasks/{task_id}"
