"""Finds the files of a topic's source that its table does not have yet, without Spark."""

from __future__ import annotations

import time
from pathlib import Path

from cleantail.config.claims.source_paths import matching_files
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.lake.runs.evaluate import read_facts
from cleantail.sources.digest_cache import DigestCache


def new_files(topic: Topic, platform: Platform) -> tuple[list[Path], list[Path]]:
    """Returns the files that match source.path, and those of them whose content was not ingested, by name.

    A file that cannot be read counts as new: the job then says what is wrong with it.
    """
    matching = matching_files(platform, topic.source.path) if topic.source.path else []
    facts = read_facts(topic, platform) if matching else None
    ingested = facts.ingested if facts else frozenset()
    with DigestCache(platform.home, platform.limits.of_input) as cache:
        return matching, [file for file in matching if _digest(cache, file) not in ingested]


def _digest(cache: DigestCache, file: Path) -> str | None:
    """Returns the digest of the file's content, None where it cannot be read."""
    try:
        return cache.digest(file, int(time.time() * 1000))
    except CleantailError:
        return None
