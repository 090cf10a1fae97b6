"""`reconcile`: removes keys that are alive in the table and gone at the brokers."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING

import click

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, HeldError
from cleantail_cli import parameters
from cleantail_cli.command import Invocation, command
from cleantail_cli.output import Report
from cleantail_cli.parameters import clock
from cleantail_cli.progress import Progress
from cleantail_cli.spark import spark_session

if TYPE_CHECKING:
    from cleantail.kafka.source_topic import SourceTopic
    from cleantail.rounds.checked_round import RoundResult


@command(
    "reconcile",
    parameters.topic,
    parameters.dry_run,
    click.option("--approve", is_flag=True, help="Publish also what would wait for approval."),
    examples=["cleantail reconcile orders --dry-run", "cleantail reconcile orders"],
)
def reconcile(call: Invocation, topic: str, dry_run: bool, approve: bool) -> int:
    """Remove keys that are gone at the source.

    Compares the keys that are alive in the table with what Kafka has now, and removes those that are gone there by a
    round of its own, which is checked and published as any other: for deletions that the broker's cleaner removed
    before they were read. Reads the topic to its end first. --dry-run only counts. Refused where `delete` is in the
    source topic's cleanup.policy. Exit code 5 where the round waits for approval: it is dropped, and --approve makes
    and publishes it.
    """
    from cleantail.home.locks import exclusive
    from cleantail.kafka.table_position import table_position
    from cleantail.lake.catalogs import require_usable
    from cleantail_cli.reports.reconcile import Reconciled, tell_held_round

    configured, approved_by = call.topic(topic), getpass.getuser() if approve else None
    source = _source(configured)
    require_usable(configured, call.platform, os.environ)
    with exclusive(call.platform.home, f"round-{configured.topic}"), call.output.progress() as progress:
        progress("asking the brokers")
        source.require_comparable(table_position(configured, call.platform).position)  # before Spark is started
        if dry_run:
            call.output.show(_compared(configured, call.platform, source, progress))
            return 0
        result = _reconciled(configured, call.platform, source, progress, approved_by)
    call.output.show(Reconciled(configured, result))
    if approved_by is None and tell_held_round(configured, call.platform, result, call.output):
        return HeldError.exit_code
    return 0 if result.ok else 1


def _source(topic: Topic) -> SourceTopic:
    from cleantail.kafka.client_settings import settings_of_environment
    from cleantail.kafka.source_topic import SourceTopic

    if topic.source.kafka is None:
        raise CleantailError(f"topic {topic.topic} has no source.kafka in its YAML: there is nothing to compare with")
    return SourceTopic.of(topic, settings_of_environment(topic.source.kafka, os.environ))


def _compared(topic: Topic, platform: Platform, source: SourceTopic, progress: Progress) -> Report:
    from cleantail_cli.reports.reconcile import Compared
    from spark_jobs.iceberg.tables import TopicTable
    from spark_jobs.round.reconcile import dry_comparison

    with spark_session(platform, f"cleantail reconcile {topic.topic}", progress) as spark:
        progress("comparing")
        table = TopicTable.of(spark, topic, platform)
        return Compared(topic, dry_comparison(table, platform, source, clock(None)))


def _reconciled(
    topic: Topic, platform: Platform, source: SourceTopic, progress: Progress, approved_by: str | None
) -> RoundResult:
    from cleantail.kafka.table_position import is_read
    from spark_jobs.iceberg.tables import TopicTable
    from spark_jobs.quality.judge import preload
    from spark_jobs.round.kafka.reading import read_topic
    from spark_jobs.round.run import Run, drop_if_waiting, reconcile_round

    preload()
    with spark_session(platform, f"cleantail reconcile {topic.topic}", progress) as spark:
        now_ms = clock(None)
        if not is_read(topic, platform, source.settings, now_ms):
            read_topic(spark, topic, platform, source.settings, now_ms, progress)
        run = Run(TopicTable.of(spark, topic, platform), platform, progress, approved_by)
        return drop_if_waiting(run, reconcile_round(run, source, clock(None)))
