"""What each command of `cleantail` does: arguments in, exit code out. Only those that need Spark import it."""

from __future__ import annotations

import argparse
import getpass
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from cleantail import what_if_command
from cleantail.config import Platform, Topic, find_topic
from cleantail.errors import CleantailError, ConfigError, HeldError, Problem


def named_topic(arguments: argparse.Namespace) -> Topic:
    """The topic that the command is about. Raises ConfigError."""
    return find_topic(arguments.topic, arguments.config, os.environ)


def clock_of(arguments: argparse.Namespace) -> int:
    """--now, else the clock (Unix ms)."""
    return arguments.now if arguments.now is not None else int(time.time() * 1000)


def check_config(arguments: argparse.Namespace, platform: Platform) -> int:
    """Every problem of every file; exit code 2 if there is one. What has no effect is a warning."""
    from cleantail import report
    from cleantail.config import scan_topics
    from cleantail.config_file import read_yaml
    from cleantail.config_warnings import warnings_of
    from cleantail.own_home import open_to_others
    from cleantail.platform_limits import in_its_sources

    if not (arguments.config / "topics").is_dir():
        missing = Problem("", "no such directory", "it holds one YAML file a topic; give the one above with --config")
        raise ConfigError(arguments.config / "topics", [missing])
    found = [(file, in_its_sources(file, topic, platform)) for file, topic in scan_topics(arguments.config, os.environ)]
    topics = [(file, topic) for file, topic in found if isinstance(topic, Topic)]
    names = {topic.topic for _, topic in topics}
    read = partial(read_yaml, most_bytes=platform.limits.yaml_max_bytes)
    warnings = [f"{file}: {text}" for file, topic in topics for text in warnings_of(topic, read(file), names)]
    warnings += [warning for warning in [open_to_others(platform.home)] if warning]
    report.configuration(found, warnings, arguments.json)
    return 0 if all(isinstance(topic, Topic) for _, topic in found) else 2


def status(arguments: argparse.Namespace, platform: Platform) -> int:
    """The logs of one topic, or of all: there one that is broken hides none of the others, and the exit code is 2."""
    from cleantail import status_report
    from cleantail.topic_status import status_of, status_of_all

    now_ms = clock_of(arguments)
    if arguments.topic:
        status_report.status([status_of(named_topic(arguments), platform, now_ms)], now_ms, arguments.json)
        return 0
    known, broken = status_of_all(arguments.config, platform, now_ms)
    status_report.status(known, now_ms, arguments.json, broken)
    return ConfigError.exit_code if broken else 0


def plan(arguments: argparse.Namespace, platform: Platform) -> int:
    """What compact would do now, or what it would have done under another policy."""
    from cleantail import run_report
    from cleantail.join_plans import resolve_join

    if what_if_command.wanted(arguments):
        topic = named_topic(arguments) if arguments.topic else None
        return what_if_command.run(arguments, topic, platform, clock_of(arguments))
    planned, topic = _planned(arguments, platform), named_topic(arguments)
    adopted = topic.columns is not None
    joins = [resolve_join(unit, platform, topic.config, adopted).reason for unit in planned.units]
    run_report.plan(planned, joins, arguments.json)
    return 0


def _planned(arguments: argparse.Namespace, platform: Platform) -> Any:
    from cleantail.evaluate import evaluate_topic

    # a person who calls has looked at what was red: the pause before the next try is the scheduler's
    return evaluate_topic(
        named_topic(arguments),
        platform,
        now_ms=clock_of(arguments),
        force=arguments.force,
        partition=arguments.partition,
        retry_quarantined=True,
    )


def ingest(arguments: argparse.Namespace, platform: Platform) -> int:
    """Appends the files in one commit."""
    from cleantail import report
    from cleantail.catalogs import require_usable
    from cleantail.console import progress
    from cleantail.source_files import require_readable
    from spark_jobs.ingest import ingest_files
    from spark_jobs.session import start_session

    topic = named_topic(arguments)
    require_readable(arguments.file)
    # a person with a shell may name any file that they can read; platform.sources binds the YAML alone
    files = [file.resolve() for file in arguments.file]
    encoding = arguments.encoding or topic.source.encoding
    require_usable(topic, platform, os.environ)
    with progress(arguments.json) as step:
        step("starting Spark")
        spark = start_session(platform, f"cleantail ingest {topic.topic}")
        result = ingest_files(spark, topic, platform, files, encoding, step, arguments.any_topic)
    report.ingested(topic, result, arguments.json)
    return 0


def compact(arguments: argparse.Namespace, platform: Platform) -> int:
    """A whole run of one topic. Starts Spark only when something is due. Exit code 5 where a round waits for approval:
    it is dropped, and --approve makes and publishes it."""
    from cleantail import run_report
    from cleantail.console import progress
    from cleantail.locks import exclusive

    topic = named_topic(arguments)
    with exclusive(platform.home, f"round-{topic.topic}"), progress(arguments.json) as step:
        step("evaluating")
        planned = _planned(arguments, platform)
        approved_by = getpass.getuser() if arguments.approve else None
        due = planned.due or planned.repairs
        result = _run(topic, platform, planned, step, approved_by) if due else {"ok": True}
    run_report.compacted(planned, result, arguments.json)
    if approved_by is None and run_report.held(topic, platform, result, arguments.json):
        return HeldError.exit_code
    return 0 if result["ok"] else 1


def _run(
    topic: Topic, platform: Platform, planned: Any, step: Callable[[str], None], approved_by: str | None
) -> dict[str, Any]:
    from spark_jobs.expectations import preload
    from spark_jobs.rounds import run_plan
    from spark_jobs.session import start_session
    from spark_jobs.tables import TopicTable

    preload()
    step("starting Spark")
    spark = start_session(platform, f"cleantail compact {topic.topic}", planned.records)
    table = TopicTable.of(spark, topic, platform)
    result: dict[str, Any] = run_plan(table, platform, planned, step, approved_by)
    return result


def check(arguments: argparse.Namespace, platform: Platform) -> int:
    """A full proof of what readers see; changes nothing. Exit code 1 where a key is there twice, or where two different
    records are at one offset.

    Spark is started only where there are records. Raises CleantailError where there is no table.
    """
    from cleantail import report
    from cleantail.evaluate import log_states, read_facts

    topic = named_topic(arguments)
    facts = read_facts(topic, platform)
    if facts is None:
        raise CleantailError(f"nothing to prove: topic {topic.topic} has no table yet: ingest something first")
    if not any(log.records for log in log_states(topic, facts, 0)):
        report.proven(topic, {"ok": True, "partitions": [], "contradictions": []}, arguments.json)
        return 0
    from spark_jobs.check_quality import prove_topic

    result = _by_spark(arguments, platform, "check", "proving", lambda table: prove_topic(table, platform))
    report.proven(topic, result, arguments.json)
    return 0 if result["ok"] else 1


def reclaim(arguments: argparse.Namespace, platform: Platform) -> int:
    """Housekeeping of one topic. Starts Spark only where something is due."""
    from cleantail import report
    from cleantail.evaluate import read_facts
    from cleantail.reclaiming import resolve_reclaim
    from cleantail.side_tables import side_due

    topic, now_ms = named_topic(arguments), clock_of(arguments)
    planned = resolve_reclaim(read_facts(topic, platform), topic.config, now_ms)
    if not planned.due and not side_due(topic, platform, now_ms):
        nothing = dict.fromkeys((*report.RECLAIMED, "reclaimed_bytes"), 0)
        report.reclaimed(topic, {"ok": True, "reasons": [planned.reason]} | nothing, arguments.json)
        return 0
    from spark_jobs.reclaim import reclaim_topic

    result = _by_spark(
        arguments, platform, "reclaim", "reclaiming", lambda table: reclaim_topic(table, platform, now_ms)
    )
    report.reclaimed(topic, result, arguments.json)
    return 0


def _by_spark(
    arguments: argparse.Namespace,
    platform: Platform,
    command: str,
    doing: str,
    work: Callable[[Any], dict[str, Any]],
) -> dict[str, Any]:
    """What `work` makes of the topic's table, which is found usable before a JVM is started."""
    from cleantail.catalogs import require_usable
    from cleantail.console import progress
    from spark_jobs.session import start_session
    from spark_jobs.tables import TopicTable

    topic = named_topic(arguments)
    require_usable(topic, platform, os.environ)
    with progress(arguments.json) as step:
        step("starting Spark")
        spark = start_session(platform, f"cleantail {command} {topic.topic}")
        step(doing)
        return work(TopicTable.of(spark, topic, platform))


def release(arguments: argparse.Namespace, platform: Platform) -> int:
    """Takes one log out of quarantine."""
    from cleantail import releasing, report

    topic = named_topic(arguments)
    lifted = releasing.release(topic, platform, arguments.partition, getpass.getuser(), int(time.time() * 1000))
    report.released(topic, arguments.partition, lifted, arguments.json)
    return 0


def rollback(arguments: argparse.Namespace, platform: Platform) -> int:
    """Undoes rounds, or an ingestion; shows what first, and only that with --dry-run."""
    from cleantail import report, undo_command
    from cleantail.console import progress
    from cleantail.locks import exclusive
    from cleantail.rolling_back import preview

    topic = named_topic(arguments)
    with exclusive(platform.home, f"round-{topic.topic}"), progress(arguments.json) as step:
        if arguments.ingestion is not None:
            return undo_command.run(arguments, topic, platform, step)
        planned, logs = preview(topic, platform, arguments.to)
        if arguments.dry_run:
            report.rollback(topic, planned, logs, None, arguments.json)
            return 0
        from spark_jobs.rollback import rollback_topic
        from spark_jobs.session import start_session
        from spark_jobs.tables import TopicTable

        step("starting Spark")
        spark = start_session(platform, f"cleantail rollback {topic.topic}")
        step("rolling back")
        table = TopicTable.of(spark, topic, platform)
        done = rollback_topic(table, platform, planned, logs, getpass.getuser(), int(time.time() * 1000))
    report.rollback(topic, planned, logs, done["snapshot_id"], arguments.json)
    return 0
