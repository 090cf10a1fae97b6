"""Says what `status` shows of a topic, and of all: there a broken topic hides none of the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cleantail.config.loading import scan_topics
from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import ConfigError, TableError
from cleantail.lake.runs.evaluate import log_states, read_facts
from cleantail.log.horizons import Hold, resolve_holds
from cleantail.log.log_state import LogState
from cleantail.log.source_position import ReadPosition


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """Describes a topic's logs, its registered readers with what each holds back, and how far it was read
    from its source, where a read fills it."""

    topic: Topic
    logs: Sequence[LogState]
    holds: Sequence[Hold] = ()
    source: ReadPosition | None = None


def status_of(topic: Topic, platform: Platform, now_ms: int) -> TopicStatus:
    """Returns the status of a topic, from metadata. Raises TableError, and OutsideError where the catalog cannot be
    reached."""
    facts = read_facts(topic, platform)
    logs = log_states(topic, facts, now_ms)
    if facts is None:
        return TopicStatus(topic, logs)
    return TopicStatus(topic, logs, resolve_holds(logs, facts.readers, topic.config, now_ms), facts.position)


Counting = Callable[[Sequence[Any], str], Iterable[Any]]
"""Passes the items on and counts them, for whoever waits; the text is what one of them is called."""


def _uncounted(items: Sequence[Any], _: str) -> Sequence[Any]:
    return items


def status_of_all(
    config_dir: Path, platform: Platform, now_ms: int, counting: Counting = _uncounted
) -> tuple[list[TopicStatus], list[str]]:
    """Returns each topic's status, and in words what is wrong with the others: with their files, or their tables."""
    statuses: list[TopicStatus] = []
    broken: list[str] = []
    for _, topic in counting(list(scan_topics(config_dir, os.environ)), "topic"):
        try:
            if isinstance(topic, ConfigError):
                raise topic
            statuses.append(status_of(topic, platform, now_ms))
        except ConfigError as e:
            broken.append(str(e))
        except TableError as e:
            broken.append(f"{topic.topic}: {e}" if isinstance(topic, Topic) else str(e))
    return statuses, broken
