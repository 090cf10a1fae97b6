"""Which files of a topic's source are not in its table yet, found without Spark."""

from __future__ import annotations

from pathlib import Path

from cleantail.config import Platform, Topic
from cleantail.source_files import matching_files


def new_files(topic: Topic, platform: Platform) -> tuple[list[Path], list[Path]]:
    """(files that match source.path, those of them whose content was not ingested), each in the order of names.

    A file that cannot be read counts as new: the job then says what is wrong with it.
    """
    from cleantail.evaluate import read_facts

    found = matching_files(platform.home, topic.source.path or "")
    facts = read_facts(topic, platform) if found else None
    known = facts.ingested if facts else frozenset()
    return found, [file for file in found if _digest(file) not in known]


def _digest(file: Path) -> str | None:
    from cleantail.errors import CleantailError
    from cleantail.source_files import content_digest

    try:
        return content_digest(file)
    except CleantailError:
        return None
