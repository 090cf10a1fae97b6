"""The state of every topic of a configuration; one that is broken hides none of the others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from cleantail.config import ConfigError, Platform, Topic, scan_topics
from cleantail.errors import TableError
from cleantail.evaluate import log_states, read_facts
from cleantail.log_state import LogState


def states_of_all(
    config_dir: Path, platform: Platform, now_ms: int
) -> tuple[list[tuple[Topic, Sequence[LogState]]], list[str]]:
    """Each topic with its logs, and in words what is wrong with the others: with their files, or with their tables."""
    known: list[tuple[Topic, Sequence[LogState]]] = []
    broken: list[str] = []
    for _, topic in scan_topics(config_dir, os.environ):
        try:
            if isinstance(topic, ConfigError):
                raise topic
            known.append((topic, log_states(topic, read_facts(topic, platform), now_ms)))
        except ConfigError as e:
            broken.append(str(e))
        except TableError as e:
            broken.append(f"{topic.topic}: {e}" if isinstance(topic, Topic) else str(e))
    return known, broken
