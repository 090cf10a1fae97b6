"""`cleantail rollback TOPIC --ingestion …`: takes an ingestion back, or says why that cannot be."""

from __future__ import annotations

import getpass
import time
from pathlib import Path

from cleantail.config.claims.source_paths import matching_files
from cleantail.config.platform import Platform
from cleantail.config.settings.input_limits import DEFAULT_LIMITS, InputLimits
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.lake.runs.rollback_preview import preview_ingestion
from cleantail.rounds.past_ingestions import LAST, IngestionChoice, IngestionUndo, UndoneIngestion
from cleantail.sources.digest_cache import DigestCache
from cleantail.sources.source_files import content_digest
from cleantail_cli.output import Report
from cleantail_cli.progress import Progress
from cleantail_cli.reports.ingestions import DoneBefore, TakenBack
from cleantail_cli.spark import spark_session

SNAPSHOT_DIGITS = 19


def parse_ingestion(text: str, limits: InputLimits = DEFAULT_LIMITS) -> IngestionChoice:
    """Parses what `--ingestion` names: `last`, a snapshot's id, or a file.

    A file that is there is known by its content, any other by its name; one that is called like a number is
    `./NUMBER`. Raises BadLineError for a file that is damaged.
    """
    if text == LAST:
        return IngestionChoice(text)
    if text.isascii() and text.isdigit() and len(text) <= SNAPSHOT_DIGITS:
        return IngestionChoice(text, snapshot_id=int(text))
    file = Path(text)
    return IngestionChoice(
        text, sha256=content_digest(file.resolve(), limits) if file.is_file() else None, name=file.name
    )


def take_back(platform: Platform, topic: Topic, text: str, dry_run: bool, progress: Progress) -> Report:
    """Takes the ingestion back and reports it. One that was taken back before is only reported."""
    preview = preview_ingestion(topic, platform, parse_ingestion(text, platform.limits.of_input))
    if isinstance(preview, UndoneIngestion):
        return DoneBefore(topic, preview)
    planned, logs = preview
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
    """Returns the ingestion's files that source.path still matches: the next run of the DAG ingests them again."""
    digests = {file.sha256 for file in planned.sources.files}
    with DigestCache(platform.home, platform.limits.of_input) as cache:
        return [str(file) for file in _matching(topic, platform) if _digest(cache, file) in digests]


def _matching(topic: Topic, platform: Platform) -> list[Path]:
    """Returns the files that source.path matches; none where it is not allowed, of which the next run says why."""
    try:
        return matching_files(platform, topic.source.path) if topic.source.path else []
    except CleantailError:
        return []


def _digest(cache: DigestCache, file: Path) -> str | None:
    try:
        return cache.digest(file, int(time.time() * 1000))
    except CleantailError:
        return None  # the next run says what is wrong with it
