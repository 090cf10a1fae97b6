"""Telling the channels of a topic. All who tell do it here, by one rule (`notifications`) and one book: the task
that sees a red check, `evaluate` a missed deadline, `approve` that it asks and that it was answered, and at the end of
a run the task `alert` everything.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import Context

from cleantail.config.alert_channels import Alert
from cleantail.config.claims.dag_ids import dag_id_of
from cleantail.config.platform import Platform
from cleantail.config.run_schedule import parts_of
from cleantail.config.topic import Topic
from cleantail.lake.outside_errors import stack_of
from cleantail.lake.runs.evaluate import log_states, read_facts
from cleantail.log.log_state import LogState
from cleantail.log.partition_state import PartitionState
from cleantail.log.reader_positions import Reader
from cleantail.watch.alerting.alarms import check_failed, deadline_run_ms, missed_deadlines
from cleantail.watch.alerting.incidents import Condition, Incident, Look, observed
from cleantail.watch.alerting.notifications import (
    Listener,
    Notification,
    after_sending,
    before_sending,
    due_notifications,
    without_answer,
    without_settled,
)
from cleantail_airflow.alerts.alert_values import asks_for_values, with_values
from cleantail_airflow.alerts.incident_book import Shelf, shelf_of
from cleantail_airflow.alerts.messages import Message, Place, message_of
from cleantail_airflow.alerts.notifiers import channel, deliver
from cleantail_airflow.alerts.red_check import Failure

EVALUATED = "evaluated_ms"
"""XCom of `evaluate`: when it did (Unix ms, wall clock), whatever clock the run was given."""

logger = logging.getLogger(__name__)


def base_of(context: Context) -> str:
    """The address of the UI."""
    ti = context["ti"]
    base: str = ti.log_url.partition(f"/dags/{ti.dag_id}/runs/")[0]
    return base


def place_of(topic: str, platform: Platform, context: Context) -> Place:
    """Where this task is in the UI."""
    dag_id, run_id = dag_id_of(topic, platform.dag_prefix), context["ti"].run_id
    return Place(base_of(context), topic, dag_id, run_id, datetime.now(UTC).isoformat(timespec="seconds"))


def began_ms(context: Context) -> int:
    """When the run began (Unix ms, wall clock), also where a task of it is cleared much later: Airflow then says that
    the run began anew, and its `evaluate` knows better."""
    from cleantail_airflow.task_ids import EVALUATE

    run: Any = context.get("dag_run")
    started = getattr(run, "start_date", None)
    evaluated = context["ti"].xcom_pull(task_ids=EVALUATE, key=EVALUATED)
    times = [int(started.timestamp() * 1000)] if started else []
    return min([*times, *([int(evaluated)] if evaluated else [])], default=_wall_ms())


def _wall_ms() -> int:
    return int(time.time() * 1000)


def tell_of_red(topic: Topic, platform: Platform, context: Context, red: Sequence[Failure], now_ms: int) -> None:
    """A red check."""

    def found() -> list[Condition]:
        logs, _ = read_logs(topic, platform, now_ms)
        backoff_ms = platform.cleaner.log_cleaner_backoff_ms
        conditions = red_alarms(red, logs or (), context["ti"].log_url, now_ms, backoff_ms)
        return [replace(condition, seen_ms=_wall_ms()) for condition in conditions]

    tell_now(topic, platform, context, Sight(found, now_ms, failures=red))


def tell_of_missed(topic: Topic, platform: Platform, context: Context, logs: Sequence[LogState], now_ms: int) -> None:
    """Deadlines that the run before was to keep, also where this run will clean the logs: its end then tells that they
    are over."""

    def found() -> list[Condition]:
        before_ms = deadline_run_ms(parts_of(topic.schedule)[0], topic.config, now_ms)
        before = log_states(topic, read_facts(topic, platform), before_ms)
        return missed_deadlines(logs, before, topic.config, now_ms, before_ms)

    if missed_deadlines(logs, logs, topic.config, now_ms, now_ms):  # else the table is not read a second time
        tell_now(topic, platform, context, Sight(found, now_ms))


def _nothing(_: Condition) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Sight:
    """What a task in the middle of a run has to tell at once: what is wrong, and which incidents it has ended."""

    found: Callable[[], list[Condition]]
    now_ms: int
    is_over: Callable[[Condition], bool] = _nothing
    failures: Sequence[Failure] = ()


def tell_now(topic: Topic, platform: Platform, context: Context, sight: Sight) -> list[str]:
    """Before the task ends: what is wrong is not to wait for the rest of the run. What cannot be told now, the run's
    last task tells, so nothing that goes wrong here makes the task fail. Returns the channels that were not reached."""
    if not topic.alerts:
        return []
    try:
        with shelf_of(topic.topic, platform.home) as shelf:
            conditions, run_id = tuple(sight.found()), context["ti"].run_id
            look = Look(conditions, sight.is_over, sight.now_ms, began_ms(context), run_id)
            shelf.save(observed(shelf.load(), look))
            return tell(topic, platform, shelf, sight.failures, context)
    except Exception as error:
        # by its frames: what a library says may quote what it has read
        logger.error("what is wrong could not be told now; the task alert does it\n%s", stack_of(error))
        return [channel(alert) for alert in topic.alerts]


def red_alarms(
    red: Iterable[Failure], logs: Iterable[LogState], link: str, now_ms: int, backoff_ms: int
) -> list[Condition]:
    """One for each partition, with all expectations that it failed."""
    states = {log.partition: log.state for log in logs}
    names: dict[int, list[str]] = {}
    for failure in red:
        names.setdefault(failure.partition, []).append(failure.expectation)
    return [
        check_failed(partition, states.get(partition, PartitionState()), found, link, now_ms, backoff_ms)
        for partition, found in sorted(names.items())
    ]


def read_logs(topic: Topic, platform: Platform, now_ms: int) -> tuple[tuple[LogState, ...] | None, tuple[Reader, ...]]:
    """The logs as they are now, None where the table cannot be read: that is the incident of another task."""
    try:
        facts = read_facts(topic, platform)
        return log_states(topic, facts, now_ms), facts.readers if facts else ()
    except Exception as e:  # whatever the catalog's driver raises
        logger.warning("the logs cannot be looked at: %s", type(e).__name__)
        return None, ()


def tell(topic: Topic, platform: Platform, shelf: Shelf, failures: Iterable[Failure], context: Context) -> list[str]:
    """Brings every channel up to date with the book. Returns the channels that could not be reached.

    The book says what is being told before a message goes out, and what was told when the channel has it: whenever the
    task dies, and whatever the channel had heard by then, the next one who tells knows that it has to be told again.
    """
    place, unreached, seen = place_of(topic.topic, platform, context), [], list(failures)
    channels = _channels(topic)
    for alert, listener in channels:
        for notification in due_notifications(shelf.load(), listener):
            by = uuid.uuid4().hex
            shelf.save(before_sending(shelf.load(), listener, notification, by))
            message = message_of(_with_links(notification, place), seen, place)
            if asks_for_values(topic, alert, notification.event):
                message = with_values(message, topic, platform)
            if not _delivered(alert, message, context, platform):
                unreached.append(channel(alert))
                shelf.save(without_answer(shelf.load(), listener, notification, by))
                break
            shelf.save(after_sending(shelf.load(), listener, notification, by))
    shelf.save(without_settled(shelf.load(), [listener for _, listener in channels]))
    return list(dict.fromkeys(unreached))


def _channels(topic: Topic) -> list[tuple[Alert, Listener]]:
    """One that stands in the YAML twice, for other events, is one."""
    alerts = {alert.name: alert for alert in topic.alerts}
    events = {name: {e for alert in topic.alerts if alert.name == name for e in alert.events} for name in alerts}
    return [(alert, Listener(name, frozenset(events[name]))) for name, alert in alerts.items()]


def _delivered(alert: Alert, message: Message, context: Context, platform: Platform) -> bool:
    try:
        deliver(alert, message, context, platform)
    except Exception as error:  # whatever a library raises must not silence the next channel
        logger.error("alert by %s failed: %s", channel(alert), type(error).__name__)
        return False
    logger.info("alert sent by %s: %s", channel(alert), message.subject)
    return True


def _with_links(notification: Notification, place: Place) -> Notification:
    """What was seen in the table leads to the log on the topic's page."""

    def linked(incidents: Iterable[Incident]) -> tuple[Incident, ...]:
        return tuple(
            replace(i, condition=replace(c, link=c.link or place.page(c.partition)))
            for i in incidents
            for c in [i.condition]
        )

    return replace(
        notification,
        begun=linked(notification.begun),
        ended=linked(notification.ended),
        still=linked(notification.still),
    )
