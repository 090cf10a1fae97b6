"""`cleantail rollback TOPIC --ingestion …`: takes an ingestion back, or says why it cannot be."""

from __future__ import annotations

import getpass
import time
from pathlib import Path

from cleantail.cli.output import Report
from cleantail.cli.progress import Progress
from cleantail.cli.reports.ingestions import DoneBefore, TakenBack
from cleantail.cli.spark import spark_session
from cleantail.config.claims.source_paths import matching_files
from cleantail.config.platform import Platform
from cleantail.config.settings.input_limits import DEFAULT_LIMITS, InputLimits
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.lake.runs.rolling_back import preview_ingestion
from cleantail.rounds.undo_ingestion import LAST, IngestionUndo, UndoneIngestion, Wanted
from cleantail.sources.digest_cache import DigestCache
from cleantail.sources.source_files import content_digest

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


def take_back(platform: Platform, topic: Topic, text: str, dry_run: bool, progress: Progress) -> Report:
    """The answer of --ingestion. Done before is done: nothing is changed again."""
    found = preview_ingestion(topic, platform, wanted_of(text, platform.limits.of_input))
    if isinstance(found, UndoneIngestion):
        return DoneBefore(topic, found)
    planned, logs = found
    snapshot_id = None
    if not dry_run:
        from spark_jobs.iceberg.tables import TopicTable
        from spark_jobs.round.undo.undo_ingestion import undo_in_topic

        with spark_session(platform, f"cleantail rollback {topic.topic}", progress) as spark:
            progress("taking the ingestion back")
            table = TopicTable.of(spark, topic, platform)
            snapshot_id = undo_in_topic(table, platform, planned, logs, getpass.getuser(), int(time.time() * 1000))
    return TakenBack(topic, planned, tuple(logs), tuple(_come_again(topic, platform, planned)), snapshot_id)


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
