"""Reads the groups of the configuration: `config/groups/<group>.yaml` over the `groups:` of the defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from cleantail.config.groups.group_files import scan_group_files
from cleantail.config.groups.topic_group import TopicGroup
from cleantail.config.loading import read_defaults
from cleantail.config.problems import nearest
from cleantail.config.run_schedule import Schedule
from cleantail.config.topic import Topic
from cleantail.errors import ConfigError, Problem


def scan_groups(config_dir: Path, env: Mapping[str, str]) -> Iterator[tuple[Path, TopicGroup | ConfigError]]:
    """Yields each file of config/groups with its group, or with what is wrong in it. Raises ConfigError where the
    defaults are broken."""
    defaults = read_defaults(config_dir, env)
    return scan_group_files(config_dir / "groups", defaults.groups, defaults.file.platform)


def run_schedule_of(topic: Topic, config_dir: Path, env: Mapping[str, str]) -> Schedule | None:
    """Returns when a topic's runs are: as its group says, where it has one. Raises ConfigError for a broken group."""
    return topic.schedule if topic.group is None else find_group(topic.group, config_dir, env).schedule


def find_group(name: str, config_dir: Path, env: Mapping[str, str]) -> TopicGroup:
    """Returns the group called `name`. Raises ConfigError: that of its file if it is broken, else one that says that
    there is no such group."""
    groups = {file.stem: group for file, group in scan_groups(config_dir, env)}
    group = groups.get(name)
    if isinstance(group, TopicGroup):
        return group
    if group is not None:
        raise group
    allowed = f"groups: {', '.join(groups)}" if groups else "there are no groups yet"
    problem = Problem("", f"no group {name}", allowed, name, nearest(name, list(groups)))
    raise ConfigError(config_dir / "groups", [problem])
