"""Airflow assets: the asset that a topic updates after a publication, and the assets that its DAG waits for.

The extra of an asset's event has the first dirty offset of each log:

    {"topic": "orders", "operation": "compact", "round": …, "snapshot_id": "81…", "partitions": [0],
     "checkpoints": {"0": 1042, "1": 977}}

`partitions` are those that the commit changed. The operation is compact, expire, reconcile or rollback. `snapshot_id`
is text, because it exceeds the integers of JavaScript.
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
from cleantail.rounds.job_report import JobReport

try:
    from airflow.sdk import AssetOrTimeSchedule, CronTriggerTimetable
except ImportError:  # until Airflow 3.1
    from airflow.timetables.assets import AssetOrTimeSchedule  # type: ignore[assignment]
    from airflow.timetables.trigger import CronTriggerTimetable  # type: ignore[assignment]

GROUP = "cleantail"
S = TypeVar("S", Topic, TopicGroup)


def asset_of(topic: str) -> Asset:
    """Return the topic's asset.

    Name and URI are equal, so `Asset("x-cleantail://orders")` in another DAG is the same.
    """
    uri = topic_asset_uri(topic)
    return Asset(name=uri, uri=uri, group=GROUP)


def schedule_of(topic: Topic | TopicGroup) -> Any:
    """Return the argument of DAG(schedule=…): cron, all the assets, cron or all the assets, or None."""
    cron, uris = parts_of(topic.schedule)
    if not uris:
        return cron
    assets = [_upstream(uri) for uri in uris]
    if cron is None:
        return assets
    return AssetOrTimeSchedule(timetable=CronTriggerTimetable(cron, timezone="UTC"), assets=assets)


def _upstream(uri: str) -> Any:
    """Refer to the asset by its URI only. An Asset with another name would replace the one of its owner."""
    return Asset.ref(uri=Asset(uri).uri)


def usable_topics(config_dir: Path) -> Iterator[tuple[Path, Topic | ConfigError]]:
    """Scan the topics. A schedule that Airflow rejects becomes a ConfigError of its file.

    A provider may have rules for the URIs of its scheme. A URI that breaks them must not hide the other DAGs.
    """
    for file, topic in scan_topics(config_dir):
        yield file, topic if isinstance(topic, ConfigError) else _with_usable_schedule(file, topic)


def usable_groups(config_dir: Path) -> Iterator[tuple[Path, TopicGroup | ConfigError]]:
    """Scan the groups as usable_topics scans the topics. Yields none if the defaults are broken: every topic reports
    that."""
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
    """Set the extra of the outlet's event. Airflow creates the event when the task succeeds."""
    context["outlet_events"][asset_of(topic)].extra = extra_of(topic, operation, report)


def extra_of(topic: str, operation: str, report: RoundResult) -> dict[str, Any]:
    return {
        "topic": topic,
        "operation": operation,
        "round": report.round,
        "snapshot_id": None if report.snapshot_id is None else str(report.snapshot_id),
        "partitions": list(report.published),
        "checkpoints": {str(partition): offset for partition, offset in report.checkpoints.items()},
    }
