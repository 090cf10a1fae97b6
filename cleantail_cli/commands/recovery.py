"""`release`, `rollback` and `mend`: what a person does after a run, or another writer, has gone wrong."""

from __future__ import annotations

import getpass
import time

import click

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.config.topic_table import quoted
from cleantail_cli import parameters
from cleantail_cli.command import Invocation, command
from cleantail_cli.commands import undo_ingestion
from cleantail_cli.output import Report
from cleantail_cli.parameters import LAST, NATURAL, TARGET
from cleantail_cli.progress import Progress
from cleantail_cli.spark import spark_session


@command(
    "release",
    parameters.topic,
    click.argument("partition", type=NATURAL, metavar="PARTITION", help="Its number."),
    examples=["cleantail release customer-cdc 0"],
)
def release(call: Invocation, topic: str, partition: int) -> int:
    """Take a partition out of quarantine: the next run tries it."""
    from cleantail.lake.runs import quarantine_release
    from cleantail_cli.reports.upkeep import Released

    configured = call.topic(topic)
    now_ms = int(time.time() * 1000)
    quarantine = quarantine_release.release(configured, call.platform, partition, getpass.getuser(), now_ms)
    call.output.show(Released(configured, partition, quarantine))
    return 0


@command(
    "rollback",
    parameters.topic,
    click.option("--to", type=TARGET, metavar="SNAPSHOT", help="last (the default): before the last published round."),
    click.option(
        "--ingestion",
        metavar="last|SNAPSHOT|FILE",
        help="Take an ingestion back instead: the newest, that of a snapshot, or that of a file (by its content, else "
        "by its name); its records and file marks go. --dry-run lists all that are known.",
    ),
    parameters.dry_run,
    examples=[
        "cleantail rollback customer-cdc --dry-run",
        "cleantail rollback customer-cdc --to last",
        "cleantail rollback customer-cdc --ingestion customers.jsonl.gz --dry-run",
    ],
)
def rollback(call: Invocation, topic: str, to: str | None, ingestion: str | None, dry_run: bool) -> int:
    """Undo published rounds, or an ingestion.

    What was appended since stays. Shows what goes first, and only that with --dry-run.
    """
    from cleantail.home.locks import exclusive

    if to is not None and ingestion is not None:
        raise click.UsageError("--ingestion: not allowed with argument --to", click.get_current_context())
    configured = call.topic(topic)
    with exclusive(call.platform.home, f"round-{configured.topic}"), call.output.progress() as progress:
        if ingestion is not None:
            report = undo_ingestion.take_back(call.platform, configured, ingestion, dry_run, progress)
        else:
            snapshot = None if to in (None, LAST) else int(str(to))
            report = _undo_rounds(call.platform, configured, snapshot, dry_run, progress)
    call.output.show(report)
    return 0


def _undo_rounds(platform: Platform, topic: Topic, to: int | None, dry_run: bool, progress: Progress) -> Report:
    """Undoes the rounds since the snapshot `to`, or only says what that would do."""
    from cleantail.lake.runs.rollback_preview import preview
    from cleantail_cli.reports.upkeep import RolledBack

    planned, logs = preview(topic, platform, to)
    if dry_run:
        return RolledBack(topic, planned, logs, None)
    from spark_jobs.iceberg.tables import TopicTable
    from spark_jobs.round.undo.rollback import rollback_topic

    with spark_session(platform, f"cleantail rollback {topic.topic}", progress) as spark:
        progress("rolling back")
        table = TopicTable.of(spark, topic, platform)
        done = rollback_topic(table, platform, planned, logs, getpass.getuser(), int(time.time() * 1000))
    return RolledBack(topic, planned, logs, done.snapshot_id)


@command(
    "mend",
    click.argument("table", metavar="TABLE", help="namespace.name in the catalog."),
    parameters.dry_run,
    examples=["cleantail mend sink.orders --dry-run", "cleantail mend sink.orders"],
)
def mend(call: Invocation, table: str, dry_run: bool) -> int:
    """Make a table readable whose deletion vectors are damaged.

    Where a data file has two, or one that is older than the file's registration, one takes their place that has all
    that they delete; those of files that are gone go. No record comes back. Nothing else is changed.
    """
    from cleantail.lake.catalogs import load_named
    from cleantail.lake.runs.damaged_vectors import damaged_vectors
    from cleantail_cli.reports.upkeep import Mended

    damaged = damaged_vectors(load_named(call.platform, table))
    if damaged.any and not dry_run:
        from spark_jobs.round.upkeep.mend import mend_table

        with call.output.progress() as progress, spark_session(call.platform, f"cleantail mend {table}", progress) as s:
            progress("mending")
            mend_table(s, quoted(f"{call.platform.catalog.name}.{table}"), damaged)
    call.output.show(Mended(table, damaged, dry_run))
    return 0
