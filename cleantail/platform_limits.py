"""What the platform lets a topic's YAML name outside its own topic: folders of sources, Airflow's connections."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cleantail.config_file import Place, key_lines, line_of
from cleantail.errors import ConfigError, Problem, not_allowed
from cleantail.platform_config import Platform, PlatformSettings
from cleantail.source_paths import path_problem, written_problem
from cleantail.topic import Topic


def in_its_sources(file: Path, topic: Topic | ConfigError, platform: Platform) -> Topic | ConfigError:
    """The topic, unless a link leads its source.path out of the folders of sources: which is seen on the disk alone."""
    if isinstance(topic, ConfigError) or not topic.source.path:
        return topic
    allowed = path_problem(topic.source.path, platform)
    if allowed is None:
        return topic
    path, line = topic.source.path, line_of(("source", "path"), key_lines(file))
    return ConfigError(file, [Problem("source.path", not_allowed(path), allowed, path, line=line)])


def platform_problems(topic: Topic, platform: PlatformSettings, home: Path) -> Iterator[tuple[Place, Problem]]:
    """Each with its place in the topic's file."""
    path = topic.source.path
    if path and (allowed := written_problem(path, home, platform.sources)):
        yield ("source", "path"), Problem("source.path", not_allowed(path), allowed, path)
