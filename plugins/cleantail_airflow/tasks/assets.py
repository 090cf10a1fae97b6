"""Airflow assets: the one that a topic updates when something was published, and those that its DAG waits for.

An event of a topic's asset has the clean point of every log as its extra:

    {"topic": "orders", "operation": "compact", "round": …, "snapshot_id": "81…", "partitions": [0],
     "checkpoints": {"0": 1042, "1": 977}}

`partitions` are those that this commit changed; the operation is compact, expire or rollback. `snapshot_id` is text: it
is too long for a number of JavaScript.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from airflow.sdk import Asset, Context

from cleantail.config.loading import scan_groups, scan_topics
from cleantail.config.run_schedule import parts_of, topic_asset_uri
from cleantail.config.topic import Topic
from cleantail.config.topic_group import TopicGroup
from cleantail.errors import ConfigError, Problem, not_allowed
from cleantail.rounds.checked_round import RoundResult
from cleantail_airflow.outcomes.run_xcoms import JobReport

try:
    from airflow.sdk import AssetOrTimeSchedule, CronTriggerTimetable
except ImportError:  # until Airflow 3.1
    from airflow.timetables.assets import AssetOrTimeSchedule  # type: ignore[assignment]
    from airflow.timetables.trigger import CronTriggerTimetable  # type: ignore[assignment]

GROUP = "cleantail"
S = TypeVar("S", Topic, TopicGroup)


def asset_of(topic: str) -> Asset:
    """Makes the topic's asset. Name and URI are one text, so `Asset("x-cleantail://orders")` elsewhere is this one."""
    uri = topic_asset_uri(topic)
    return Asset(name=uri, uri=uri, group=GROUP)


def schedule_of(topic: Topic | TopicGroup) -> Any:
    """Returns what DAG(schedule=…) takes: cron, all the assets, cron or all the assets, or None."""
    cron, uris = parts_of(topic.schedule)
    if not uris:
        return cron
    assets = [_upstream(uri) for uri in uris]
    if cron is None:
        return assets
    return AssetOrTimeSchedule(timetable=CronTriggerTimetable(cron, timezone="UTC"), assets=assets)


def _upstream(uri: str) -> Any:
    """Refers to whichever asset has this URI: an Asset of ours with another name would put its owner's out."""
    return Asset.ref(uri=Asset(uri).uri)


def usable_topics(config_dir: Path) -> Iterator[tuple[Path, Topic | ConfigError]]:
    """Scans the topics, where a schedule that only Airflow can judge is a problem of its own file.

    A provider may have rules for the URIs of its scheme; one that breaks them must not hide every other DAG.
    """
    for file, topic in scan_topics(config_dir):
        yield file, topic if isinstance(topic, ConfigError) else _with_usable_schedule(file, topic)


def usable_groups(config_dir: Path) -> Iterator[tuple[Path, TopicGroup | ConfigError]]:
    """Scans the groups in the same way; there are none where the defaults are broken, which every topic tells."""
    try:
        groups = list(scan_groups(config_dir))
    except ConfigError:
        return
    for file, group in groups:
        yield file, group if isinstance(group, ConfigError) else _with_usable_schedule(file, group)


def _with_usable_schedule(file: Path, scheduled: S) -> S | ConfigError:
    for uri in parts_of(scheduled.schedule)[1]:
        try:
            _upstream(uri)
        except ValueError as error:
            return ConfigError(file, [Problem("schedule.assets", not_allowed(uri), str(error), uri)])
    return scheduled


def announce(context: Context, topic: str, operation: str, report: JobReport) -> None:
    """Gives the event of the task's outlet what was published; Airflow makes the event when the task succeeds."""
    context["outlet_events"][asset_of(topic)].extra = extra_of(topic, operation, report)


def extra_of(topic: str, operation: str, report: JobReport | RoundResult) -> dict[str, Any]:
    """Returns what the event of a topic's asset says of what was published."""
    return {
        "topic": topic,
        "operation": operation,
        "round": report.round,
        "snapshot_id": None if report.snapshot_id is None else str(report.snapshot_id),
        "partitions": list(report.published or ()),
        "checkpoints": {str(partition): offset for partition, offset in report.checkpoints.items()},
    }
