"""The last task of a group's run: notify each topic's channels, and store which topics are left to the next run."""

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
from cleantail.rounds.pack_results import BEGUN, SUSPECTED, WAITS
from cleantail.rounds.stations import EVALUATE, EXPIRE_TOMBSTONES, RUN_PACK, SHOWN, TopicOutcome
from cleantail.watch.incidents import Condition, Observation, cause_of, observed
from cleantail_airflow.airflow_exceptions import AirflowException, AirflowFailException
from cleantail_airflow.alerts.alerting import base_of, observation, run_url
from cleantail_airflow.alerts.channels import load_book, locked_book, send_to_channels
from cleantail_airflow.alerts.ended_run import (
    EndedTask,
    FailedInstance,
    RunCoverage,
    RunOfTopic,
    ended_tasks,
    failed_tasks,
    notify_of_run,
    run_alarms,
)
from cleantail_airflow.alerts.messages import MessageOrigin, message_of
from cleantail_airflow.groups.group_plan import (
    TOPIC,
    GroupPlan,
    GroupRunParams,
    group_plan_of,
    left_since,
    remember,
    topics_of_group,
)
from cleantail_airflow.groups.station_tasks import pack_result, red_in
from cleantail_airflow.outcomes.failures import noting
from cleantail_airflow.tasks.spark_job import platform_of


@dataclass(frozen=True, slots=True)
class GroupPlace(MessageOrigin):
    """The place of a group's messages: the page is the group's DAG, and `topic` names the group."""

    def page(self, partition: int | None = None) -> str:
        return f"{self.base}/dags/{self.dag_id}"


def book_of(group: str) -> str:
    """Return the name of the group's book of incidents. Topic names have no colon, so no topic has this name."""
    return f"group:{group}"


def book_of_broken(group: str) -> str:
    """Return the name of the book of the group's broken YAML files.

    The topics' own books are not used: a broken file does not name the topic's channels.
    """
    return f"yaml:{group}"


def is_open(group: str) -> bool:
    return any(load_book(book).incidents for book in (book_of(group), book_of_broken(group)))


def notify_of_broken(
    group: str, config_dir: str, platform: Platform, context: Context, broken: Mapping[str, str], only: str | None
) -> list[str]:
    """Notify the channels of defaults.yaml of YAML files that are broken or correct again.

    `broken`: topic -> why it cannot be evaluated. `only`: the run was for this topic, so only its file is reported.
    Returns the channels that were not reached.
    """
    if not broken and not load_book(book_of_broken(group)).incidents:
        return []
    unreadable = {name for name, topic in topics_of_group(group, config_dir) if not isinstance(topic, Topic)}
    files = {name: error for name, error in broken.items() if name in unreadable}
    place, link = _place_of(group, platform, context), f"{run_url(context)}/tasks/{EVALUATE}"
    conditions = [
        Condition(
            Event.RUN_FAILED, f"topic {name}", f"topic {name} cannot be evaluated: {error}", link, cause=cause_of(error)
        )
        for name, error in sorted(files.items())
    ]
    seen = observation(context, conditions, lambda c: only is None or c.subject == f"topic {only}")
    return _notify(book_of_broken(group), seen, default_alerts(Path(config_dir)), place, platform, context)


def notify_of_evaluation(
    group: str, config_dir: str, platform: Platform, context: Context, failed: Sequence[FailedInstance]
) -> list[str]:
    """Notify that the evaluation of the group failed or, if `failed` is empty, that it succeeds again.

    All channels of the group's topics get the message, each once. Returns the channels that were not reached.
    """
    if not failed and not load_book(book_of(group)).incidents:
        return []
    coverage = RunCoverage.of([EndedTask(EVALUATE, "failed" if failed else "success")], None, None)
    seen = observation(context, run_alarms(failed), coverage.includes)
    topics = (topic for _, topic in topics_of_group(group, config_dir) if isinstance(topic, Topic))
    alerts = [alert for topic in topics for alert in topic.alerts]
    return _notify(book_of(group), seen, alerts, _place_of(group, platform, context), platform, context)


def _notify(
    book: str,
    seen: Observation,
    alerts: Sequence[Alert],
    place: GroupPlace,
    platform: Platform,
    context: Context,
) -> list[str]:
    """Enter what was seen in a book of the group, and notify these channels. Returns those that were not reached."""
    with locked_book(book, platform.home) as book_store:
        book_store.save(observed(book_store.load(), seen))
        return send_to_channels(alerts, platform, book_store, lambda _, said: message_of(said, (), place), context)


def _place_of(group: str, platform: Platform, context: Context) -> GroupPlace:
    at = datetime.now(UTC).isoformat(timespec="seconds")
    dag_id = dag_id_of(group, platform.dag_prefix)
    return GroupPlace(base_of(context), f"group {group}", dag_id, context["ti"].run_id, at)


CRASHED = "the Spark application of its pack ended before its turn; the log of run_pack has the reason"


class AlertGroupOperator(BaseOperator):
    """Notifies the channels of each topic that the run worked on, or about which `evaluate` found something to report.

    Runs whether or not other tasks failed. If a channel cannot be reached, the task fails and is tried again.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, group: str, config_dir: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.group = group
        self.config_dir = config_dir

    @noting
    def execute(self, context: Context) -> None:
        plan = group_plan_of(context)
        if plan is None:
            self._notify_without_plan(context)
            return
        # 1. Read the outcomes of the topics.
        ti: Any = context["ti"]
        xcoms = ti.xcom_pull(task_ids=RUN_PACK, map_indexes=range(len(plan.packs)))
        results = [pack_result(xcom) if xcom else None for xcom in xcoms]
        outcomes = {outcome.topic: outcome for result in results if result for outcome in result.topics}
        # packs are skipped if the run has no time left
        rows = ti.get_task_breadcrumbs(dag_id=ti.dag_id, run_id=ti.run_id)
        numbers = {row["map_index"] for row in rows if row["task_id"] == RUN_PACK and str(row["state"]) == "skipped"}
        packs = enumerate(zip(plan.packs, results, strict=True))
        skipped = {t for number, (pack, result) in packs if number in numbers and not result for t in pack.topics}
        # 2. Store the topics that come first in the next run.
        waiting, before = {*plan.left_over, *skipped}, left_since(self.group)
        # a run for one partition does not evaluate the other logs of a topic
        still = waiting if plan.partition is None else {*waiting, *before}
        remember(self.group, still, before, plan.now_ms, context["params"][TOPIC] or None)
        if waiting:
            self.log.warning("left to the next run: %s", ", ".join(sorted(waiting)))
        # 3. Notify the channels.
        unreached = [*self._notify_of_group([], context), *self._notify_of_broken(plan, context)]
        names = {*plan.due, *plan.broken, *plan.to_report}
        self._notify_topics(
            names,
            lambda name: self._run_of(name, plan, outcomes.get(name), name in waiting, context),
            None,
            context,
            unreached,
        )

    def _notify_without_plan(self, context: Context) -> None:
        """Report a rollback, or a failed evaluation. The latter concerns all topics, so it is sent once, for the group.

        If the run was for one topic, only that topic's channels are notified.
        """
        ended = ended_tasks(context)
        failed = failed_tasks(ended, context)
        try:
            requested = GroupRunParams.of(context)
            list(topics_of_group(self.group, self.config_dir, requested.topic))
        except AirflowFailException:  # nothing was done, so only the user who triggered the run needs the message
            self.log.info("the trigger was refused; the log of evaluate has the reason")
            return
        if not (failed or requested.rollback_to):
            self.log.info("evaluate made no plan; its log has the reason")
            return
        if not requested.topic:
            _require_reached(self._notify_of_group(failed, context))
            return
        run = RunOfTopic(int(time.time() * 1000), ended, failed, requested.partition, all_tried=False)
        self._notify_topics(None, lambda _: run, requested.topic, context)

    def _notify_of_group(self, failed: Sequence[FailedInstance], context: Context) -> list[str]:
        unreached = notify_of_evaluation(self.group, self.config_dir, platform_of(self.config_dir), context, failed)
        return [f"{channel} of the group" for channel in unreached]

    def _notify_of_broken(self, plan: GroupPlan, context: Context) -> list[str]:
        platform, only = platform_of(self.config_dir), context["params"][TOPIC] or None
        unreached = notify_of_broken(self.group, self.config_dir, platform, context, plan.broken, only)
        return [f"{channel} of the defaults" for channel in unreached]

    def _notify_topics(
        self,
        names: Collection[str] | None,
        run_of: Callable[[str], RunOfTopic],
        only: str | None,
        context: Context,
        before: Sequence[str] = (),
    ) -> None:
        """Notify the channels of these topics if they are still in the group. `names` None: of all its topics.

        Raises AirflowException if a channel was not reached. `before`: the channels that earlier notifications did
        not reach.
        """
        platform = platform_of(self.config_dir)
        unreached = dict.fromkeys(before)
        for name, topic in topics_of_group(self.group, self.config_dir, only):
            if not isinstance(topic, Topic) or not topic.alerts or (names is not None and name not in names):
                continue
            run = run_of(name)
            with locked_book(name, platform.home) as book_store:
                missed = notify_of_run(topic, book_store, context, run)
            unreached |= {f"{channel} of {name}": None for channel in missed}
        _require_reached(unreached)

    def _run_of(
        self, name: str, plan: GroupPlan, outcome: TopicOutcome | None, waits: bool, context: Context
    ) -> RunOfTopic:
        """Return the run's work on one topic, in the form of a topic's own run."""
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


def _require_reached(unreached: Collection[str]) -> None:
    if unreached:
        raise AirflowException(f"these channels were not notified, the next run tries again: {', '.join(unreached)}")


def _failed(
    name: str, plan: GroupPlan, outcome: TopicOutcome | None, waits: bool, context: Context
) -> list[FailedInstance]:
    now_ms = int(time.time() * 1000)
    if error := plan.broken.get(name):
        return [FailedInstance(EVALUATE, error, _link(EVALUATE, context), at_ms=now_ms)]
    if outcome is None:
        worked_on = name in plan.due and not waits
        return [FailedInstance(RUN_PACK, CRASHED, _link(RUN_PACK, context), at_ms=now_ms)] if worked_on else []
    failed = []
    for station in SHOWN.values():
        link = _link(RUN_PACK if station.name in plan.skipped else station.name, context)
        if red := tuple(red_in(station, outcome)):
            failed.append(FailedInstance(station.name, "", link, red, now_ms))
        if outcome.error and outcome.station in station.errors_of:
            failed.append(FailedInstance(station.name, outcome.error, link, at_ms=now_ms))
    return failed


def _done(outcome: TopicOutcome | None) -> list[str]:
    """Return the tasks that worked for a topic.

    A run in which something failed ends the incidents of these tasks only.
    """
    if outcome is None:
        return []
    died_here = outcome.error in (BEGUN, WAITS, SUSPECTED)
    return [*([] if died_here else [RUN_PACK]), *(station.name for station in SHOWN.values() if station.line(outcome))]


def _link(task_id: str, context: Context) -> str:
    return f"{run_url(context)}/tasks/{task_id}"
