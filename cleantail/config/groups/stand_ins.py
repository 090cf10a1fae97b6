"""Stands in for a topic whose YAML is broken, where somebody is to be told of that."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cleantail.config.claims.platform_limits import platform_problems
from cleantail.config.loading import read_defaults
from cleantail.config.problems import require_none, validate
from cleantail.config.topic import Topic, default_table
from cleantail.errors import ConfigError


def stand_in(name: str, config_dir: Path, env: Mapping[str, str]) -> Topic | None:
    """Returns a topic of that name with the `alerts` of defaults.yaml, since what the broken file says of channels
    cannot be relied on. It has nothing else of the topic: its table is not to be looked at. None where the defaults are
    broken as well, or the name is none of a topic."""
    file = config_dir / "topics" / f"{name}.yaml"
    try:
        defaults = read_defaults(config_dir, env)
        table = default_table(defaults.file.platform.catalog.namespace, name)
        data = {"topic": name, "table": table, "alerts": defaults.written.get("alerts", [])}
        topic = validate(Topic, data, file)
        require_none(file, platform_problems(topic, defaults.file.platform, defaults.home))
    except ConfigError:
        return None
    return topic
