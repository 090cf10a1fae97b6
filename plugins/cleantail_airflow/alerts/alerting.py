"""Notify the channels of a topic when something is wrong, and when it is over.

1. These tasks notify: the task in which a check fails, `evaluate` if a deadline was missed, `approve` at its question
   and at the answer, and `alert` at the end of a run.
2. Each task locks the topic's book of incidents (channels) and enters the conditions that it finds.
3. The task sends each channel the messages that it has not received (cleantail.watch.incidents decides what is due).
   The book stores the last message of each channel.

To add a channel, add a class to cleantail.config.alert_channels and a branch to `deliver` in channels.
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
from cleantail.config.run_schedule import Schedule, parts_of
from cleantail.config.topic import Topic, dag_id_of
from cleantail.lake.evaluate import log_states, read_facts
from cleantail.lake.foreign_errors import stack_of
from cleantail.log.horizons import Reader
from cleantail.log.log_state import LogState
from cleantail.log.partition_state import PartitionState
from cleantail.retries import repeated
from cleantail.rounds.approval import held_message
from cleantail.rounds.checked_round import CheckedRound
from cleantail.rounds.stations import EVALUATE
from cleantail.watch.alarms import check_failed, deadline_run_ms, missed_deadlines, round_waits
from cleantail.watch.approval_text import count_lines
from cleantail.watch.incidents import (
    Condition,
    Notification,
    Observation,
    observed,
)
from cleantail_airflow.alerts.channels import BookStore, channel_label, locked_book, send_to_channels
from cleantail_airflow.alerts.messages import Message, MessageOrigin, may_have_values, message_of, with_values
from cleantail_airflow.outcomes.failures import Failure

EVALUATED = "evaluated_ms"
"""XCom of `evaluate`: when it ran (Unix ms, wall clock). The run itself may use another clock."""

logger = logging.getLogger(__name__)


def base_of(context: Context) -> str:
    ti = context["ti"]
    base: str = ti.log_url.partition(f"/dags/{ti.dag_id}/runs/")[0]
    return base


def run_url(context: Context) -> str:
    """Return the address of this run in the UI. The run's id is quoted as in the address of the task's log."""
    ti = context["ti"]
    run_id = ti.log_url.partition("/runs/")[2].partition("/")[0]
    return f"{base_of(context)}/dags/{ti.dag_id}/runs/{run_id}"


def origin_of(topic: Topic, context: Context) -> MessageOrigin:
    """Return where the topic's page and this task's run are in the UI."""
    dag_id, run_id = dag_id_of(topic.topic, topic.platform.dag_prefix), context["ti"].run_id
    return MessageOrigin(base_of(context), topic.topic, dag_id, run_id, datetime.now(UTC).isoformat(timespec="seconds"))


def began_ms(context: Context) -> int:
    """Return when the run began (Unix ms, wall clock).

    If a task is cleared, Airflow resets the start of its run. Then the XCom of `evaluate` has the true time.
    """
    run: Any = context.get("dag_run")
    started = getattr(run, "start_date", None)
    evaluated = context["ti"].xcom_pull(task_ids=EVALUATE, key=EVALUATED)
    times = [int(started.timestamp() * 1000)] if started else []
    return min([*times, *([int(evaluated)] if evaluated else [])], default=_wall_ms())


def _wall_ms() -> int:
    return int(time.time() * 1000)


def observation(
    context: Context, conditions: Iterable[Condition], is_over: Callable[[Condition], bool], **more: Any
) -> Observation:
    """Return what this task sees now. `is_over` decides which incidents this task has ended. `more`: other fields of
    Observation."""
    seen_in = (_wall_ms(), began_ms(context), context["ti"].run_id)
    return Observation(tuple(conditions), is_over, *seen_in, **more)


def notify_failed_checks(topic: Topic, context: Context, red: Sequence[Failure], now_ms: int) -> None:
    """Notify of a failed check at once, with one condition for each blocked partition."""

    def conditions() -> list[Condition]:
        logs, _ = read_logs(topic, now_ms)
        backoff_ms = topic.platform.cleaner.log_cleaner_backoff_ms
        alarms = red_alarms(red, logs or (), context["ti"].log_url, now_ms, backoff_ms)
        return [replace(alarm, seen_ms=_wall_ms()) for alarm in alarms]

    notify_now(topic, context, EarlyConditions(conditions, failures=red))


def notify_missed_deadlines(
    topic: Topic,
    context: Context,
    logs: Sequence[LogState],
    now_ms: int,
    schedule: Schedule | None,
    unconverted: bool = False,
) -> None:
    """Notify of deadlines that the previous run has missed, even if this run will clean the logs.

    The end of this run then notifies that these incidents are over. `schedule`: of the DAG, which may be a group's.
    `unconverted` is passed to read_facts.
    """

    def conditions() -> list[Condition]:
        before_ms = deadline_run_ms(parts_of(schedule)[0], topic.config, now_ms)
        before = log_states(topic, read_facts(topic, unconverted), before_ms)
        return missed_deadlines(logs, before, topic.config, now_ms, before_ms)

    # read the table again, for the state at the previous run, only if a deadline is missed now
    if missed_deadlines(logs, logs, topic.config, now_ms, now_ms):
        notify_now(topic, context, EarlyConditions(conditions))


@dataclass(frozen=True, slots=True)
class EarlyConditions:
    """The checks of a task in the middle of a run.

    `conditions` is called after the book was locked, and returns the conditions that hold. `is_over` returns whether
    this task has ended an incident, and `outcome` is how that incident ended.
    """

    conditions: Callable[[], list[Condition]]
    is_over: Callable[[Condition], bool] = lambda _: False
    failures: Sequence[Failure] = ()
    outcome: str = ""


def notify_now(topic: Topic, context: Context, early: EarlyConditions) -> list[str]:
    """Notify now, before the run ends. Returns the channels that were not reached.

    An error here never fails the task, because the run's last task sends the missing messages.
    """
    if not topic.alerts:
        return []
    try:
        with locked_book(topic.topic, topic.platform.home) as book_store:
            # 1. find the problems, under the lock
            seen = observation(context, early.conditions(), early.is_over, outcome=early.outcome)
            # 2. write the incidents that this begins or ends
            book_store.save(observed(book_store.load(), seen))
            # 3. notify the channels
            return notify_channels(topic, book_store, early.failures, context)
    except Exception as error:
        # log the stack frames only: an error's message may contain record data
        logger.error("the channels were not notified now; the task alert will notify them\n%s", stack_of(error))
        return [channel_label(alert) for alert in topic.alerts]


def red_alarms(
    red: Iterable[Failure], logs: Iterable[LogState], link: str, now_ms: int, backoff_ms: int
) -> list[Condition]:
    """Return one condition for each partition, with all expectations that it failed.

    `now_ms`: when the check failed, if its verdict does not have that time.
    """
    states = {log.partition: log.state for log in logs}
    failed: dict[int, list[Failure]] = {}
    for failure in red:
        failed.setdefault(failure.partition, []).append(failure)
    return [
        check_failed(
            partition,
            states.get(partition, PartitionState()),
            [failure.expectation for failure in failures],
            link,
            failures[0].judged_ms or now_ms,
            backoff_ms,
        )
        for partition, failures in sorted(failed.items())
    ]


def read_logs(topic: Topic, now_ms: int) -> tuple[tuple[LogState, ...] | None, tuple[Reader, ...]]:
    """Return the logs and readers. Logs are None if the table cannot be read, which another task reports."""
    try:
        facts = read_facts(topic)
        return log_states(topic, facts, now_ms), facts.readers if facts else ()
    except Exception as e:  # catalog drivers raise any type
        logger.warning("the logs cannot be read: %s", type(e).__name__)
        return None, ()


def notify_channels(topic: Topic, book_store: BookStore, failures: Iterable[Failure], context: Context) -> list[str]:
    """Send missing messages to every channel of the topic. Returns the channels that were not reached."""
    place, red = origin_of(topic, context), list(failures)

    def message(alert: Alert, notification: Notification) -> Message:
        message = message_of(notification, red, place)
        return with_values(message, topic) if may_have_values(topic, alert, notification.event) else message

    return send_to_channels(topic.alerts, topic.platform, book_store, message, context)


PAUSES_S = (5, 20, 60)
"""Pauses between the tries to notify that a round waits for a person. The task keeps its slot during them."""
_ENDED = ("success", "failed", "skipped", "upstream_failed", "removed")
"""Airflow's states of a task that no longer waits."""


def notify_round_waits(topic: Topic, checked: CheckedRound, context: Context) -> None:
    """Notify that the round waits. Retries failed channels, because no other task notifies while it waits.

    The message has counts and no sample. Airflow shows the sample behind its login, where the answer is given.
    """
    waiting = _condition(context, "\n".join([held_message(topic.topic, checked.holds), *count_lines(checked)]))
    early = EarlyConditions(lambda: [waiting])
    for name in repeated(lambda: notify_now(topic, context, early), PAUSES_S):
        logger.error("gave up: %s was not notified that a round waits for approval", name)


def notify_round_answered(topic: Topic, context: Context, outcome: str) -> None:
    """Notify that the round no longer waits. `outcome`: `approved by Anna`, `rejected by Anna`, `not approved in
    time`."""
    subject = _condition(context, "").subject
    early = EarlyConditions(list, lambda condition: condition.subject == subject, outcome=outcome)
    notify_now(topic, context, early)


def _condition(context: Context, text: str) -> Condition:
    ti = context["ti"]
    return round_waits(ti.task_id, ti.run_id, text, ti.log_url)


def waiting_subjects(run_ids: Mapping[str, str], context: Context) -> frozenset[str]:
    """Return the subjects of `run_ids` (subject -> run id) whose task has not ended.

    Airflow is queried, because a person may have marked the task or its run.
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
