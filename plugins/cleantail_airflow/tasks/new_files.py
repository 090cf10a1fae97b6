"""Which files of a topic's source are not in its table yet, found without Spark."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from cleantail.config.claims.source_paths import matching_files
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic

if TYPE_CHECKING:
    from cleantail.sources.digest_cache import DigestCache


def new_files(topic: Topic, platform: Platform) -> tuple[list[Path], list[Path]]:
    """(files that match source.path, those of them whose content was not ingested), each in the order of names.

    A file that cannot be read counts as new: the job then says what is wrong with it.
    """
    from cleantail.lake.runs.evaluate import read_facts
    from cleantail.sources.digest_cache import DigestCache

    found = matching_files(platform, topic.source.path) if topic.source.path else []
    facts = read_facts(topic, platform) if found else None
    known = facts.ingested if facts else frozenset()
    with DigestCache(platform.home, platform.limits.of_input) as cache:
        return found, [file for file in found if _digest(cache, file) not in known]


def _digest(cache: DigestCache, file: Path) -> str | None:
    from cleantail.errors import CleantailError

    try:
        return cache.digest(file, int(time.time() * 1000))
    except CleantailError:
        return None
