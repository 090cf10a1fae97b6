"""Finds the files of a topic's source that its table does not have yet, without Spark."""

from __future__ import annotations

import os
import time
from pathlib import Path

from cleantail.config.platform import Platform
from cleantail.config.source_paths import folder_of, matching_files
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError, OutsideError
from cleantail.lake.catalogs import kept_catalog, load_table
from cleantail.lake.kept_facts import KeptFacts
from cleantail.lake.table_metadata import properties_that_count
from cleantail.log.partition_state import ingested_files
from cleantail.sources.digest_cache import DigestCache


def new_files(topic: Topic, platform: Platform, kept: KeptFacts | None = None) -> tuple[list[Path], list[Path]]:
    """Returns the files that match source.path, and those of them whose content was not ingested, by name. `kept`: as
    in evaluate_topic.

    A file that cannot be read counts as new: the job then says what is wrong with it. Raises OutsideError where the
    folder is gone from which the table has files: a disk that is not mounted is not the same as nothing new.
    """
    matching = matching_files(platform, topic.source.path) if topic.source.path else []
    gone = _gone_folder(topic, platform) if topic.source.path and not matching else None
    ingested = _ingested(topic, platform, kept) if matching or gone else frozenset()
    if gone and ingested:
        raise OutsideError(
            f"the folder {gone} of source.path is not there, and the table of {topic.topic} has files of it: whether "
            "there are new ones is not known, and nothing was appended. Bring it back, or change source.path"
        )
    with DigestCache(platform.home, platform.limits.of_input) as cache:
        return matching, [file for file in matching if _digest(cache, file) not in ingested]


def _gone_folder(topic: Topic, platform: Platform) -> Path | None:
    """Returns the folder in which source.path begins to look, where there is none."""
    folder = folder_of(topic.source.path or "", platform.home)
    return None if folder.is_dir() else folder


def _ingested(topic: Topic, platform: Platform, kept: KeptFacts | None) -> frozenset[str]:
    """Returns the digests of the files that the table has. They are among its properties: no manifest is read."""
    if kept is not None:
        facts = kept.of(topic)
        return facts.ingested if facts is not None else frozenset()
    table = load_table(kept_catalog(platform, os.environ), topic, platform)
    return ingested_files(properties_that_count(table)) if table is not None else frozenset()


def _digest(cache: DigestCache, file: Path) -> str | None:
    """Returns the digest of the file's content, None where it cannot be read."""
    try:
        return cache.digest(file, int(time.time() * 1000))
    except CleantailError:
        return None
