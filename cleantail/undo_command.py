"""`cleantail rollback TOPIC --ingestion …`: takes an ingestion back, or says why it cannot be."""

from __future__ import annotations

import argparse
import getpass
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cleantail.config import Platform, Topic
from cleantail.digest_cache import DigestCache
from cleantail.errors import CleantailError
from cleantail.input_limits import DEFAULT_LIMITS, InputLimits
from cleantail.rolling_back import LogWithout, preview_ingestion
from cleantail.source_files import content_digest
from cleantail.source_paths import matching_files
from cleantail.undo_ingestion import LAST, IngestionUndo, UndoneIngestion, Wanted
from cleantail.words import instant

SNAPSHOT_DIGITS = 19


def wanted_of(text: str, limits: InputLimits = DEFAULT_LIMITS) -> Wanted:
    """What `--ingestion` means: `last`, a snapshot's id, or a file, by its content where it is there, else by its name
    (a file that is called like a number is `./NUMBER`). Raises BadLineError for a file that is damaged."""
    if text == LAST:
        return Wanted(text)
    if text.isascii() and text.isdigit() and len(text) <= SNAPSHOT_DIGITS:
        return Wanted(text, snapshot_id=int(text))
    file = Path(text)
    return Wanted(text, sha256=content_digest(file.resolve(), limits) if file.is_file() else None, name=file.name)


def run(arguments: argparse.Namespace, topic: Topic, platform: Platform, step: Callable[[str], None]) -> int:
    """Shows what goes first, and only that with --dry-run. Done before is done: nothing is changed again."""
    found = preview_ingestion(topic, platform, wanted_of(arguments.ingestion, platform.limits.of_input))
    if isinstance(found, UndoneIngestion):
        _report_done_before(topic, found, arguments.json)
        return 0
    planned, logs = found
    snapshot_id = None
    if not arguments.dry_run:
        from spark_jobs.session import start_session
        from spark_jobs.tables import TopicTable
        from spark_jobs.undo_ingestion import undo_in_topic

        step("starting Spark")
        spark = start_session(platform, f"cleantail rollback {topic.topic}")
        step("taking the ingestion back")
        table = TopicTable.of(spark, topic, platform)
        done = undo_in_topic(table, platform, planned, logs, getpass.getuser(), int(time.time() * 1000))
        snapshot_id = done["snapshot_id"]
    report(topic, planned, logs, _come_again(topic, platform, planned), snapshot_id, arguments.json)
    return 0


def _come_again(topic: Topic, platform: Platform, planned: IngestionUndo) -> list[str]:
    """The ingestion's files that source.path still means: the next run of the DAG would ingest them again."""
    digests = {file.sha256 for file in planned.sources.files}
    with DigestCache(platform.home, platform.limits.of_input) as cache:
        return [str(file) for file in _matching(topic, platform) if _digest(cache, file) in digests]


def _matching(topic: Topic, platform: Platform) -> list[Path]:
    """None where the next run could not take any either: it says why."""
    try:
        return matching_files(platform, topic.source.path) if topic.source.path else []
    except CleantailError:
        return []


def _digest(cache: DigestCache, file: Path) -> str | None:
    try:
        return cache.digest(file, int(time.time() * 1000))
    except CleantailError:
        return None  # the next run says what is wrong with it


def report(
    topic: Topic,
    planned: IngestionUndo,
    logs: Sequence[LogWithout],
    come_again: Sequence[str],
    snapshot_id: int | None,
    for_machines: bool,
) -> None:
    """What undoing does, or has done where there is its snapshot."""
    if for_machines:
        document = {"ok": True, "topic": topic.topic, **planned.as_json(), "partitions": [asdict(log) for log in logs]}
        _print_json(document | {"come_again": list(come_again), "snapshot_id": snapshot_id})
        return
    one = planned.ingestion
    print(f"{topic.topic}: takes back ingestion {one.snapshot_id} of {instant(one.at_ms)} UTC: {one.names}")
    back = "the empty table" if planned.to_snapshot_id is None else f"snapshot {planned.to_snapshot_id}"
    rewrites = f", undoes rewrites of files: {planned.rewrites}" if planned.rewrites else ""
    print(f"  back to {back}{rewrites}; commits since whose records stay: {len(planned.appends)}")
    for log in logs:
        print(
            f"  partition {log.partition}: records {log.records} -> {log.records_after}, "
            f"log end {log.log_end} -> {log.log_end_after}{', leaves quarantine' if log.lifts_quarantine else ''}"
        )
    for line in warnings(topic, logs, come_again):
        print(f"  warning: {line}")
    print("\n".join(_listed(topic, planned)) if snapshot_id is None else _done(snapshot_id))


def warnings(topic: Topic, logs: Sequence[LogWithout], come_again: Sequence[str]) -> list[str]:
    """What a person still has to do: readers that have read what goes, files that would come again."""
    found = [
        f"reader {r.name} is at offset {r.offset} of partition {log.partition} and may have read what is taken back; "
        f"the log ends at {log.log_end_after}: have it load the state anew (`cleantail latest {topic.topic}`), then "
        f"`cleantail reader set {topic.topic}`"
        for log in logs
        for r in log.readers
    ]
    return found + [
        f"{file} is still where source.path looks: the DAG's next run ingests it again; take it out of there"
        for file in come_again
    ]


def _done(snapshot_id: int) -> str:
    return f"done, as snapshot {snapshot_id}; the files can be ingested again"


def _listed(topic: Topic, planned: IngestionUndo) -> list[str]:
    """The other ingestions, newest first, and that nothing was changed."""
    lines = []
    for other in planned.others:
        count = f"{other.records} record{'' if other.records == 1 else 's'}"
        head = f"  --ingestion {other.snapshot_id}: {instant(other.at_ms)} UTC, {count}, {other.names}"
        lines.append(head + (f"; not now: {other.refusal}" if other.refusal else ""))
    return [*lines, "nothing was changed: --dry-run"]


def _report_done_before(topic: Topic, found: UndoneIngestion, for_machines: bool) -> None:
    if for_machines:
        one = {"snapshot_id": found.ingestion.snapshot_id, "files": [asdict(f) for f in found.ingestion.files]}
        taken = {"ingestion": one, "at_ms": found.at_ms, "by": found.by}
        _print_json({"ok": True, "topic": topic.topic, "done_before": True, "snapshot_id": found.snapshot_id, **taken})
        return
    print(
        f"{topic.topic}: ingestion {found.ingestion.snapshot_id} ({found.ingestion.names}) was taken back on "
        f"{instant(found.at_ms)} UTC by {found.by}, as snapshot {found.snapshot_id}; nothing was changed"
    )


def _print_json(document: Any) -> None:
    print(json.dumps(document))
