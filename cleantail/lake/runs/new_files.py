"""Finds the files of a topic's source that its table does not have yet, without Spark."""

from __future__ import annotations

import os
import time
from pathlib import Path

from cleantail.config.claims.source_paths import matching_files
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.lake.catalogs import kept_catalog, load_table
from cleantail.log.partition_state import ingested_files
from cleantail.sources.digest_cache import DigestCache


def new_files(topic: Topic, platform: Platform) -> tuple[list[Path], list[Path]]:
    """Returns the files that match source.path, and those of them whose content was not ingested, by name.

    A file that cannot be read counts as new: the job then says what is wrong with it.
    """
    matching = matching_files(platform, topic.source.path) if topic.source.path else []
    ingested = _ingested(topic, platform) if matching else frozenset()
    with DigestCache(platform.home, platform.limits.of_input) as cache:
        return matching, [file for file in matching if _digest(cache, file) not in ingested]


def _ingested(topic: Topic, platform: Platform) -> frozenset[str]:
    """Returns the digests of the files that the table has. They are among its properties: no manifest is read."""
    table = load_table(kept_catalog(platform, os.environ), topic, platform)
    return ingested_files(table.properties) if table is not None else frozenset()


def _digest(cache: DigestCache, file: Path) -> str | None:
    """Returns the digest of the file's content, None where it cannot be read."""
    try:
        return cache.digest(file, int(time.time() * 1000))
    except CleantailError:
        return None
