"""The configuration: `config/defaults.yaml` (may be absent) and one `config/topics/<topic>.yaml` per topic.

    platform = load_platform(config_dir, os.environ)
    topic = find_topic("orders", config_dir, os.environ)

A topic's YAML lies over the defaults: mappings merge key by key, lists replace, null means the default (but
`schedule: null` means no schedule). Every error is a ConfigError with file, key, value and what is allowed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cleantail.check import Check
from cleantail.cleaner_configs import CleanerConfigs
from cleantail.config_file import read_yaml
from cleantail.config_problems import nearest, validate
from cleantail.errors import ConfigError, Problem, not_allowed
from cleantail.kafka_configs import KafkaConfigs
from cleantail.platform_config import Catalog, DefaultsFile, Platform, Spark
from cleantail.topic import (
    Alert,
    AppriseAlert,
    FileAlert,
    MailAlert,
    SlackAlert,
    Source,
    Topic,
    TopicDefaults,
    WebhookAlert,
    default_table,
)

__all__ = [
    "Alert",
    "CONFIG_VARIABLE",
    "AppriseAlert",
    "Catalog",
    "Check",
    "CleanerConfigs",
    "ConfigError",
    "FileAlert",
    "KafkaConfigs",
    "MailAlert",
    "Platform",
    "SlackAlert",
    "Source",
    "Spark",
    "Topic",
    "TopicDefaults",
    "WebhookAlert",
    "config_place",
    "find_topic",
    "load_platform",
    "load_topic",
    "load_topics",
    "scan_topics",
]

HOME_VARIABLE = "CLEANTAIL_HOME"
CONFIG_VARIABLE = "CLEANTAIL_CONFIG"
_NO_ENV: Mapping[str, str] = {}


def config_place(env: Mapping[str, str]) -> Path:
    """The directory of defaults.yaml and topics/ where none is given: CLEANTAIL_CONFIG, else `config`."""
    return Path(env.get(CONFIG_VARIABLE) or "config")


def load_platform(config_dir: Path, env: Mapping[str, str] = _NO_ENV) -> Platform:
    """The platform of `config_dir`; `env` may name the state's place in CLEANTAIL_HOME.

    Without it the state is in `.cleantail` beside `config_dir`. Raises ConfigError.
    """
    settings, _ = _defaults(config_dir)
    root = Path(os.path.abspath(config_dir))
    home = Path(os.path.abspath(env.get(HOME_VARIABLE) or root.parent / ".cleantail"))
    if set("?%#") & set(str(home)):
        problem = Problem(HOME_VARIABLE, not_allowed(str(home)), "a path without ? % #: it becomes part of addresses")
        raise ConfigError(config_dir, [problem])
    parts = settings.platform
    return Platform(catalog=parts.catalog, cleaner=parts.cleaner, spark=parts.spark, home=home, config_dir=root)


def load_topic(file: Path, config_dir: Path, env: Mapping[str, str] = _NO_ENV) -> Topic:
    """The topic of one YAML file, over the defaults of `config_dir`; raises ConfigError."""
    return _topic(file, *_defaults(config_dir))


def load_topics(config_dir: Path, env: Mapping[str, str] = _NO_ENV) -> list[Topic]:
    """All topics in the order of their file names; raises the first ConfigError."""
    topics = []
    for _, topic in scan_topics(config_dir):
        if isinstance(topic, ConfigError):
            raise topic
        topics.append(topic)
    return topics


def find_topic(name: str, config_dir: Path, env: Mapping[str, str] = _NO_ENV) -> Topic:
    """The topic called `name`. Broken files of other topics do not matter.

    Raises ConfigError: that of the file `<name>.yaml` if it is broken, else that there is no such topic.
    """
    names = []
    for file, topic in scan_topics(config_dir):
        if isinstance(topic, Topic) and topic.topic == name:
            return topic
        if isinstance(topic, ConfigError) and file.stem == name:
            raise topic
        names.append(topic.topic if isinstance(topic, Topic) else file.stem)
    allowed = f"topics: {', '.join(names)}" if names else "there are no topics yet"
    problem = Problem("", f"no topic {name}", allowed, name, nearest(name, names))
    raise ConfigError(config_dir / "topics", [problem])


def scan_topics(config_dir: Path, env: Mapping[str, str] = _NO_ENV) -> Iterator[tuple[Path, Topic | ConfigError]]:
    """Each topic file with its topic, or with what is wrong in it; one broken file never hides the others.

    Raises ConfigError only when `config_dir` is not a directory. Of two topics with one name or one table the
    second, by file name, is the wrong one.
    """
    _require_directory(config_dir)
    owners: dict[tuple[str, str], Path] = {}
    defaults = _defaults_or_error(config_dir)
    for file in _topic_files(config_dir):
        topic = defaults if isinstance(defaults, ConfigError) else _topic_or_error(file, *defaults)
        yield file, _claimed(file, topic, owners) if isinstance(topic, Topic) else topic


def _topic_files(config_dir: Path) -> list[Path]:
    files = (config_dir / "topics").glob("*")
    return sorted(file for file in files if file.suffix in (".yaml", ".yml") and not file.name.startswith("."))


def _claimed(file: Path, topic: Topic, owners: dict[tuple[str, str], Path]) -> Topic | ConfigError:
    """The topic, unless an earlier file has its name or its table."""
    for key, value in (("topic", topic.topic), ("table", topic.table)):
        owner = owners.setdefault((key, value), file)
        if owner != file:
            fact = f'"{value}" is not allowed'
            return ConfigError(file, [Problem(key, fact, f"already used by {owner.name}", value)])
    return topic


def _require_directory(config_dir: Path) -> None:
    if not config_dir.is_dir():
        raise ConfigError(
            config_dir, [Problem("", "no such directory", f"give it with --config DIR or {CONFIG_VARIABLE}")]
        )


def _defaults(config_dir: Path) -> tuple[DefaultsFile, dict[str, Any]]:
    """defaults.yaml as a model, and its topic section as it was written, to be merged under each topic."""
    _require_directory(config_dir)
    file = config_dir / "defaults.yaml"
    data = _without_nulls(read_yaml(file)) if file.exists() else {}
    return validate(DefaultsFile, data, file), data.get("topic", {})


def _defaults_or_error(config_dir: Path) -> tuple[DefaultsFile, dict[str, Any]] | ConfigError:
    try:
        return _defaults(config_dir)
    except ConfigError as error:
        return error


def _topic_or_error(file: Path, defaults: DefaultsFile, written: dict[str, Any]) -> Topic | ConfigError:
    try:
        return _topic(file, defaults, written)
    except ConfigError as error:
        return error


def _topic(file: Path, defaults: DefaultsFile, written: dict[str, Any]) -> Topic:
    data = _merged(written, _without_nulls(read_yaml(file)))
    name = str(data.get("topic") or "none")  # a wrong name is one problem, not also a wrong table
    data.setdefault("table", default_table(defaults.platform.catalog.namespace, name))
    return validate(Topic, data, file)


def _without_nulls(data: dict[str, Any]) -> dict[str, Any]:
    """Null means the default, so it is left out; only a schedule can be switched off."""
    kept = {key: value for key, value in data.items() if value is not None or key == "schedule"}
    return {key: _without_nulls(value) if isinstance(value, dict) else value for key, value in kept.items()}


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`above` over `below`: mappings merge key by key, everything else replaces."""
    both = {**below, **above}
    for key in below.keys() & above.keys():
        if isinstance(below[key], dict) and isinstance(above[key], dict):
            both[key] = _merged(below[key], above[key])
    return both
