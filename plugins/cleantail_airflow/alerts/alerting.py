"""Tells the channels of a topic what is wrong and what is over.

1. The tasks that tell are the one that sees a red check, `evaluate` where a deadline was missed, `approve` when it asks
   and when it was answered, and `alert` at the end of a run.
2. Each looks for conditions, and enters them into the topic's book of incidents (incident_book), which it has locked.
3. What the book has and a channel has not heard yet is due (cleantail.watch.incidents), and is sent
   (notifiers). The book keeps what each channel heard last.

A new channel is a class in cleantail.config.alert_channels and a branch in `deliver` of notifiers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import Context

from cleantail.config.alert_channels import Alert
from cleantail.config.platform import Platform
from cleantail.config.run_schedule import Schedule, parts_of
from cleantail.config.topic import Topic, dag_id_of
from cleantail.lake.foreign_errors import stack_of
from cleantail.lake.runs.evaluate import log_states, read_facts
from cleantail.log.horizons import Reader
from cleantail.log.log_state import LogState
from cleantail.log.partition_state import PartitionState
from cleantail.retries import repeated
from cleantail.rounds.approval import held_message
from cleantail.rounds.checked_round import CheckedRound
from cleantail.watch.alarms import check_failed, deadline_run_ms, missed_deadlines, round_waits
from cleantail.watch.approval_text import count_lines
from cleantail.watch.incidents import (
    Condition,
    Incident,
    Look,
    Notification,
    observed,
)
from cleantail_airflow.alerts.channels import BookStore, channel_label, locked_book, tell_channels
from cleantail_airflow.alerts.messages import Message, Place, asks_for_values, message_of, with_values
from cleantail_airflow.outcomes.failures import Failure

EVALUATED = "evaluated_ms"
"""XCom of `evaluate`: when it did (Unix ms, wall clock), whatever clock the run was given."""

logger = logging.getLogger(__name__)


def base_of(context: Context) -> str:
    """Returns the address of the UI."""
    ti = context["ti"]
    base: str = ti.log_url.partition(f"/dags/{ti.dag_id}/runs/")[0]
    return base


def run_url(context: Context) -> str:
    """Returns the address of this run in the UI: its id as it is in the address of the task's log."""
    ti = context["ti"]
    run_id = ti.log_url.partition("/runs/")[2].partition("/")[0]
    return f"{base_of(context)}/dags/{ti.dag_id}/runs/{run_id}"


def place_of(topic: str, platform: Platform, context: Context) -> Place:
    """Returns where the topic's page and this task's run are in the UI, from which messages take their links."""
    dag_id, run_id = dag_id_of(topic, platform.dag_prefix), context["ti"].run_id
    return Place(base_of(context), topic, dag_id, run_id, datetime.now(UTC).isoformat(timespec="seconds"))


def began_ms(context: Context) -> int:
    """Returns when the run began (Unix ms, wall clock).

    Where a task is cleared much later, Airflow says that the run began anew: then the XCom of `evaluate` counts.
    """
    from cleantail_airflow.task_ids import EVALUATE

    run: Any = context.get("dag_run")
    started = getattr(run, "start_date", None)
    evaluated = context["ti"].xcom_pull(task_ids=EVALUATE, key=EVALUATED)
    times = [int(started.timestamp() * 1000)] if started else []
    return min([*times, *([int(evaluated)] if evaluated else [])], default=_wall_ms())


def _wall_ms() -> int:
    return int(time.time() * 1000)


def tell_of_red(topic: Topic, platform: Platform, context: Context, red: Sequence[Failure], now_ms: int) -> None:
    """Tells of a red check at once: one condition for each partition that is held back."""

    def conditions() -> list[Condition]:
        logs, _ = read_logs(topic, platform, now_ms)
        backoff_ms = platform.cleaner.log_cleaner_backoff_ms
        alarms = red_alarms(red, logs or (), context["ti"].log_url, now_ms, backoff_ms)
        return [replace(alarm, seen_ms=_wall_ms()) for alarm in alarms]

    tell_now(topic, platform, context, EarlyLook(conditions, now_ms, failures=red))


def tell_of_missed(
    topic: Topic,
    platform: Platform,
    context: Context,
    logs: Sequence[LogState],
    now_ms: int,
    schedule: Schedule | None,
    unconverted: bool = False,
) -> None:
    """Tells of deadlines that the run before was to keep, also where this run will clean the logs. `schedule`: of the
    DAG, which is that of the topic's group where it has one; `unconverted`: as in read_facts.

    The end of this run then tells that they are over.
    """

    def conditions() -> list[Condition]:
        before_ms = deadline_run_ms(parts_of(schedule)[0], topic.config, now_ms)
        before = log_states(topic, read_facts(topic, platform, unconverted), before_ms)
        return missed_deadlines(logs, before, topic.config, now_ms, before_ms)

    # reading the table again, for the state at the run before, is worth it only where a deadline is missed now
    if missed_deadlines(logs, logs, topic.config, now_ms, now_ms):
        tell_now(topic, platform, context, EarlyLook(conditions, now_ms))


def _ends_nothing(_: Condition) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class EarlyLook:
    """Says what a task in the middle of a run tells at once.

    `conditions` looks for what is wrong, after the book was locked; `is_over` says which incidents the task has ended.
    """

    conditions: Callable[[], list[Condition]]
    now_ms: int
    is_over: Callable[[Condition], bool] = _ends_nothing
    failures: Sequence[Failure] = ()


def tell_now(topic: Topic, platform: Platform, context: Context, early: EarlyLook) -> list[str]:
    """Tells before the task ends, so that what is wrong does not wait for the rest of the run.

    The run's last task tells what cannot be told now, so nothing that goes wrong here makes the task fail. Returns the
    channels that were not reached.
    """
    if not topic.alerts:
        return []
    try:
        with locked_book(topic.topic, platform.home) as book_store:
            # 1. what is wrong now, seen by nobody else meanwhile
            conditions, run_id = tuple(early.conditions()), context["ti"].run_id
            look = Look(conditions, early.is_over, early.now_ms, began_ms(context), run_id)
            # 2. the incidents that this begins, or ends
            book_store.save(observed(book_store.load(), look))
            # 3. the channels
            return tell(topic, platform, book_store, early.failures, context)
    except Exception as error:
        # by its frames: what a library says may quote what it has read
        logger.error("what is wrong could not be told now; the task alert does it\n%s", stack_of(error))
        return [channel_label(alert) for alert in topic.alerts]


def red_alarms(
    red: Iterable[Failure], logs: Iterable[LogState], link: str, now_ms: int, backoff_ms: int
) -> list[Condition]:
    """Makes one condition for each partition, with all expectations that it failed."""
    states = {log.partition: log.state for log in logs}
    names: dict[int, list[str]] = {}
    for failure in red:
        names.setdefault(failure.partition, []).append(failure.expectation)
    return [
        check_failed(partition, states.get(partition, PartitionState()), expectations, link, now_ms, backoff_ms)
        for partition, expectations in sorted(names.items())
    ]


def read_logs(topic: Topic, platform: Platform, now_ms: int) -> tuple[tuple[LogState, ...] | None, tuple[Reader, ...]]:
    """Reads the logs as they are now: None where the table cannot be read, which is the incident of another task."""
    try:
        facts = read_facts(topic, platform)
        return log_states(topic, facts, now_ms), facts.readers if facts else ()
    except Exception as e:  # whatever the catalog's driver raises
        logger.warning("the logs cannot be looked at: %s", type(e).__name__)
        return None, ()


def tell(
    topic: Topic, platform: Platform, book_store: BookStore, failures: Iterable[Failure], context: Context
) -> list[str]:
    """Brings every channel of the topic up to date with its book. Returns the channels that could not be reached."""
    place, red = place_of(topic.topic, platform, context), list(failures)

    def message(alert: Alert, notification: Notification) -> Message:
        message = message_of(_with_links(notification, place), red, place)
        return with_values(message, topic, platform) if asks_for_values(topic, alert, notification.event) else message

    return tell_channels(topic.alerts, platform, book_store, message, context)


def _with_links(notification: Notification, place: Place) -> Notification:
    """Gives each condition without a link that of its log on the topic's page."""

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


PAUSES_S = (5, 20, 60)
"""The pauses between the tries to tell that a round waits for a person. The task holds its slot meanwhile."""
_ENDED = ("success", "failed", "skipped", "upstream_failed", "removed")
"""Airflow's states of a task that waits for nobody any more."""


def tell_that_it_waits(
    topic: Topic,
    platform: Platform,
    checked: CheckedRound,
    context: Context,
) -> None:
    """Tells that the round waits, and tries a channel that does not take it again: nothing else tells it meanwhile.

    The message has counts and no sample; Airflow shows that where the answer is given, behind its login.
    """
    waiting = _condition(context, "\n".join([held_message(topic.topic, checked.holds), *count_lines(checked)]))
    early = EarlyLook(lambda: [waiting], int(time.time() * 1000))
    for name in repeated(lambda: tell_now(topic, platform, context, early), PAUSES_S):
        logger.error("given up: %s does not know that a round waits for approval", name)


def tell_that_it_was_answered(topic: Topic, platform: Platform, context: Context) -> None:
    """Tells that the round does not wait any more: it was answered, or the time to answer is over."""
    subject = _condition(context, "").subject
    early = EarlyLook(list, int(time.time() * 1000), lambda condition: condition.subject == subject)
    tell_now(topic, platform, context, early)


def _condition(context: Context, text: str) -> Condition:
    ti = context["ti"]
    return round_waits(ti.task_id, ti.run_id, text, ti.log_url)


def waiting_subjects(run_ids: Mapping[str, str], context: Context) -> frozenset[str]:
    """Returns the subjects of the incidents (subject -> run id) whose task has not ended.

    Airflow is asked, since a person may have marked the task or its run.
    """
    ti = context["ti"]
    runs = sorted(set(run_ids.values()))
    states = ti.get_task_states(dag_id=ti.dag_id, run_ids=runs) if runs else {}
    waiting = {
        round_waits(task_id, run_id, "", "").subject
        for run_id, tasks in states.items()
        for task_id, state in tasks.items()
        if state not in _ENDED
    }
    return frozenset(run_ids) & waiting
