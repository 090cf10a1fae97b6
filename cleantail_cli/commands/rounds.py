"""`ingest`, `compact`, `check` and `reclaim` do by hand what a DAG's run does.

A body first looks whether there is something to do, from metadata alone, and imports Spark and starts it only then.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, HeldError
from cleantail.human import counted, size
from cleantail.rounds.checked_round import RunResult
from cleantail_cli import parameters
from cleantail_cli.command import Invocation, Several, command, directories
from cleantail_cli.commands.kafka_ingest import ingest_from_kafka, ingest_segments
from cleantail_cli.commands.planning import evaluated
from cleantail_cli.commands.table_ingest import ingest_from_table
from cleantail_cli.parameters import DIRECTORY, FILE, clock
from cleantail_cli.progress import Progress
from cleantail_cli.spark import spark_session

if TYPE_CHECKING:
    from cleantail.lake.runs.run_plan import RunPlan
    from spark_jobs.iceberg.tables import TopicTable

R = TypeVar("R")


@command(
    "ingest",
    parameters.topic,
    click.option(
        "--file",
        "files",
        cls=Several,
        type=FILE,
        metavar="F...",
        help="One or more .jsonl or .jsonl.gz; may be repeated. Without it source.kafka, or source.table, is read.",
    ),
    click.option(
        "--segments",
        type=DIRECTORY,
        metavar="DIR",
        shell_complete=directories,
        help="A broker's log directory, a copy of it or of tiered storage, or one TOPIC-N folder: its .log files are "
        "read, without a broker.",
    ),
    click.option("--encoding", type=click.Choice(["text", "base64"]), help="Of keys, payloads and header values."),
    click.option(
        "--any-topic",
        is_flag=True,
        help="Take lines whatever topic they name; without it one that names another topic than this (or than "
        "source.topic in the YAML) is refused, and nothing is appended.",
    ),
    examples=[
        "cleantail ingest orders",
        "cleantail ingest customer-cdc --file customers.jsonl",
        "cleantail ingest customer-cdc --file monday.jsonl.gz tuesday.jsonl.gz",
        "cleantail ingest orders --segments /var/lib/kafka/data",
    ],
)
def ingest(
    call: Invocation,
    topic: str,
    files: tuple[Path, ...],
    segments: Path | None,
    encoding: str | None,
    any_topic: bool,
) -> int:
    """Append what Kafka has, its segments, a sink's table, or files of kcat -J lines, exactly once.

    Without files: every partition from the table's position to its last stable offset in Kafka (source.kafka), or in
    the segments of --segments; of a topic with source.table what the snapshots of that table have brought. Files come
    in one commit, and so do segments: where one cannot be taken, nothing is appended.
    """
    if not files:
        if encoding or any_topic:
            raise CleantailError("--encoding and --any-topic are about files: name these with --file")
        if segments is not None:
            return ingest_segments(call, call.topic(topic), Path(os.path.abspath(segments)))
        configured = call.topic(topic)
        return (ingest_from_table if configured.source.table else ingest_from_kafka)(call, configured)
    if segments is not None:
        raise CleantailError("--file and --segments are of two kinds of sources: ingest one after the other")
    from cleantail.lake.catalogs import require_usable
    from cleantail.sources.source_files import require_readable
    from cleantail_cli.reports.upkeep import Ingested
    from spark_jobs.round.intake.ingest import ingest_files

    configured = call.topic(topic)
    require_readable(files)
    # a person with a shell may name any file that they can read; platform.sources binds the YAML alone
    resolved = [file.resolve() for file in files]
    require_usable(configured, call.platform, os.environ)
    with call.output.progress() as progress:
        progress.about(f"{counted(len(files), 'file')}, {size(sum(file.stat().st_size for file in files))}")
        encoding = encoding or configured.source.encoding
        with spark_session(call.platform, f"cleantail ingest {configured.topic}", progress) as spark:
            result = ingest_files(spark, configured, call.platform, resolved, encoding, progress, any_topic)
    call.output.show(Ingested(configured, result))
    return 0


@command(
    "compact",
    parameters.topic,
    parameters.now,
    parameters.partition,
    parameters.force,
    click.option("--approve", is_flag=True, help="Publish also what would wait for approval."),
    examples=["cleantail compact customer-cdc", "cleantail compact customer-cdc --partition 3 --force"],
)
def compact(call: Invocation, topic: str, now: int | None, partition: int | None, force: bool, approve: bool) -> int:
    """Evaluate, compact, check, publish, expire.

    A whole run of one topic. Exit code 5 where a round waits for approval: it is dropped, and --approve makes and
    publishes it.
    """
    from cleantail.home.locks import exclusive
    from cleantail_cli.reports.rounds import Compacted, tell_held

    configured = call.topic(topic)
    with exclusive(call.platform.home, f"round-{configured.topic}"), call.output.progress() as progress:
        progress("evaluating")
        planned = evaluated(configured, call.platform, now, force, partition)
        approved_by = getpass.getuser() if approve else None
        due = planned.due or planned.repairs  # only then is Spark started
        result = _run(configured, call.platform, planned, progress, approved_by) if due else RunResult()
    call.output.show(Compacted(planned, result))
    # a round that waited is dropped: nobody answers a command line afterwards
    if approved_by is None and tell_held(configured, call.platform, result, call.output):
        return HeldError.exit_code
    return 0 if result.ok else 1


def _run(topic: Topic, platform: Platform, planned: RunPlan, progress: Progress, approved_by: str | None) -> RunResult:
    """Starts Spark and does the rounds of the plan, by the same loop as a DAG's tasks (spark_jobs.round.run)."""
    from spark_jobs.iceberg.tables import TopicTable
    from spark_jobs.quality.judge import preload
    from spark_jobs.round.run import Run, run_plan

    logs = {w.partition for unit in planned.units for w in unit.partitions} | {*planned.sweep}
    progress.about(f"{counted(len(logs), 'partition')}, {counted(planned.records, 'record')}")
    preload()
    with spark_session(platform, f"cleantail compact {topic.topic}", progress, planned.records) as spark:
        run = Run(TopicTable.of(spark, topic, platform), platform, progress, approved_by)
        return run_plan(run, planned)


@command("check", parameters.topic, examples=["cleantail check customer-cdc"])
def check(call: Invocation, topic: str) -> int:
    """Prove that no key and no offset is there twice.

    Every key below the clean points is there once, and no offset has two different records: a full proof of what
    readers see, by Spark's Iceberg reader. It changes nothing. Exit code 1 where a key is there twice, or where two
    different records are at one offset.
    """
    from cleantail.lake.runs.evaluate import log_states, read_facts
    from cleantail.rounds.check_results import Proof
    from cleantail_cli.reports.upkeep import Proven

    configured = call.topic(topic)
    facts = read_facts(configured, call.platform)
    if facts is None:
        raise CleantailError(f"nothing to prove: topic {configured.topic} has no table yet: ingest something first")
    logs = log_states(configured, facts, 0)
    records = sum(log.records for log in logs)
    if not records:
        call.output.show(Proven(configured, Proof()))
        return 0
    from spark_jobs.round.check import prove_topic

    about = f"{counted(len(logs), 'partition')}, {counted(records, 'record')}"
    proof = _by_spark(call, configured, "check", "proving", about, lambda table: prove_topic(table, call.platform))
    call.output.show(Proven(configured, proof))
    return 0 if proof.ok else 1


@command("reclaim", parameters.topic, parameters.now, examples=["cleantail reclaim customer-cdc"])
def reclaim(call: Invocation, topic: str, now: int | None) -> int:
    """Rewrite files, expire snapshots, remove orphans, where due.

    Housekeeping of one topic. Spark is started only where something is due.
    """
    from cleantail.lake.runs.evaluate import read_facts
    from cleantail.lake.runs.reclaim_plan import resolve_reclaim
    from cleantail.lake.side_tables import side_due
    from cleantail.rounds.station_results import ReclaimResult
    from cleantail_cli.reports.upkeep import Reclaimed

    configured, now_ms = call.topic(topic), clock(now)
    planned = resolve_reclaim(read_facts(configured, call.platform), configured.config, now_ms)
    if not planned.due and not side_due(configured, call.platform, now_ms):
        call.output.show(Reclaimed(configured, ReclaimResult((planned.reason,))))
        return 0
    from spark_jobs.round.upkeep.reclaim import reclaim_topic

    result = _by_spark(
        call, configured, "reclaim", "reclaiming", "", lambda table: reclaim_topic(table, call.platform, now_ms)
    )
    call.output.show(Reclaimed(configured, result))
    return 0


def _by_spark(call: Invocation, topic: Topic, name: str, doing: str, about: str, work: Callable[[TopicTable], R]) -> R:
    """Returns what `work` returns of the topic's table, whose catalog is usable: that is looked at before a JVM
    starts."""
    from cleantail.lake.catalogs import require_usable
    from spark_jobs.iceberg.tables import TopicTable

    require_usable(topic, call.platform, os.environ)
    with call.output.progress() as progress:
        progress.about(about)
        with spark_session(call.platform, f"cleantail {name} {topic.topic}", progress) as spark:
            progress(doing)
            return work(TopicTable.of(spark, topic, call.platform))
