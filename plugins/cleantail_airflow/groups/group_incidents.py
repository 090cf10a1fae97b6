"""What is wrong with a group as a whole, as an evaluation that failed: one incident, which each channel of its topics
hears of once, however many topics share the channel."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import Context

from cleantail.config.alert_channels import Alert, Event
from cleantail.config.loading import default_alerts
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic, dag_id_of
from cleantail.watch.incidents import Condition, Look, Notification, observed
from cleantail_airflow.alerts.alerting import base_of, began_ms, run_url
from cleantail_airflow.alerts.channels import load_book, locked_book, tell_channels
from cleantail_airflow.alerts.ended_run import EndedTask, FailedTask, RunCoverage, run_alarms
from cleantail_airflow.alerts.messages import Message, Place, message_of
from cleantail_airflow.groups.group_topics import topics_of_group
from cleantail_airflow.task_ids import EVALUATE


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
