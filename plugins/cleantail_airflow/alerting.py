"""Telling the channels of a topic: what a task just saw, and at the end of a run everything that is wrong with it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from airflow.sdk import Context

from cleantail.alarms import check_failed, deadline_run_ms, missed_deadlines
from cleantail.config import Alert, Platform, Topic
from cleantail.evaluate import log_states, read_facts
from cleantail.incidents import (
    Book,
    Condition,
    Incident,
    Listener,
    after_telling,
    observed,
    to_tell,
    without_settled,
)
from cleantail.log_state import LogState
from cleantail.partition_state import PartitionState
from cleantail.readers import Reader
from cleantail.run_schedule import parts_of
from cleantail_airflow.incident_book import load_book, save_book
from cleantail_airflow.messages import Message, Place, messages_of
from cleantail_airflow.notifiers import channel, deliver
from cleantail_airflow.red_check import Failure

ANNOUNCE_PAUSES_S = (5, 20, 60)
"""Between the tries to tell that a round waits for a person. The task holds its slot meanwhile."""

logger = logging.getLogger(__name__)


def place_of(topic: str, context: Context) -> Place:
    """Where this task is in the UI."""
    ti = context["ti"]
    base = ti.log_url.partition(f"/dags/{ti.dag_id}/runs/")[0]
    return Place(base, topic, ti.run_id, datetime.now(UTC).isoformat(timespec="seconds"))


def tell_of_red(topic: Topic, platform: Platform, context: Context, red: Sequence[Failure], now_ms: int) -> None:
    """A red check."""

    def found() -> list[Condition]:
        logs, _ = read_logs(topic, platform, now_ms)
        return red_alarms(red, logs or (), context["ti"].log_url, now_ms, platform.cleaner.log_cleaner_backoff_ms)

    if topic.alerts:
        _tell_now(topic, platform, context, found, red, now_ms)


def tell_of_missed(topic: Topic, platform: Platform, context: Context, logs: Sequence[LogState], now_ms: int) -> None:
    """Deadlines that the run before was to keep, also where this run will clean the logs: its end then tells that they
    are over."""

    def found() -> list[Condition]:
        before_ms = deadline_run_ms(parts_of(topic.schedule)[0], topic.config, now_ms)
        before = log_states(topic, read_facts(topic, platform), before_ms)
        return missed_deadlines(logs, before, topic.config, now_ms, before_ms)

    overdue_now = missed_deadlines(logs, logs, topic.config, now_ms, now_ms)
    if topic.alerts and overdue_now:  # else the table is not read a second time
        _tell_now(topic, platform, context, found, (), now_ms)


def _tell_now(
    topic: Topic,
    platform: Platform,
    context: Context,
    found: Callable[[], list[Condition]],
    red: Sequence[Failure],
    now_ms: int,
) -> None:
    """At once, before the task ends: what is wrong is not to wait for the rest of the run. What cannot be told now, the
    run's last task tells if it lasts, so nothing that goes wrong here makes the task fail."""
    try:
        book = observed(before := load_book(topic.topic), found(), _nothing, now_ms)
        tell(topic, platform.home, book, red, context, partial(save_book, topic.topic, before))
    except Exception:
        logger.exception("what is wrong could not be told now; the task alert does it")


def _nothing(_: Condition) -> bool:
    return False


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


def tell(
    topic: Topic,
    home: Path,
    book: Book,
    failures: Iterable[Failure],
    context: Context,
    save: Callable[[Book], None],
) -> list[str]:
    """Brings every channel up to date; the book is saved after each. Returns the channels that could not be reached."""
    listeners = [Listener(alert.name, alert.events) for alert in topic.alerts]
    place, unreached, found = place_of(topic.topic, context), [], list(failures)
    for alert, listener in zip(topic.alerts, listeners, strict=True):
        begun, ended = to_tell(book, listener)
        for message, incidents in messages_of(_with_links([*begun, *ended], place), found, place):
            if not _delivered(alert, message, context, home):
                unreached.append(channel(alert))
                break
            book = after_telling(book, listener, incidents)
        save(without_settled(book, listeners))
    return list(dict.fromkeys(unreached))


def announce(
    topic: Topic, home: Path, message: Message, context: Context, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Tells every channel that wants the message's event, once: what waits for a person is nothing that gets well by
    itself, so it is no incident. No later run tells it either, so a channel that does not take it is tried again."""
    waiting = [alert for alert in topic.alerts if message.event in alert.events]
    for pause_s in ANNOUNCE_PAUSES_S:
        if waiting := [alert for alert in waiting if not _delivered(alert, message, context, home)]:
            sleep(pause_s)
    for alert in waiting:
        if not _delivered(alert, message, context, home):
            logger.error("given up: %s does not know that %s", channel(alert), message.headline)


def _delivered(alert: Alert, message: Message, context: Context, home: Path) -> bool:
    try:
        deliver(alert, message, context, home)
    except Exception as error:  # whatever a library raises must not silence the next channel
        logger.error("alert by %s failed: %s", channel(alert), type(error).__name__)
        return False
    logger.info("alert sent by %s: %s", channel(alert), message.subject)
    return True


def _with_links(incidents: Iterable[Incident], place: Place) -> list[Incident]:
    """What was seen in the table leads to the log on the topic's page."""
    return [
        i if i.condition.link else replace(i, condition=replace(i.condition, link=place.page(i.condition.partition)))
        for i in incidents
    ]
