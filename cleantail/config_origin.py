"""Where each config of a topic comes from: its own YAML, defaults.yaml, or the built-in default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from cleantail.config_file import read_yaml
from cleantail.config_row import LONG_MAX
from cleantail.topic import Topic
from cleantail.words import duration, size


class Origin(StrEnum):
    """The layer whose value is in force; a higher one wins."""

    TOPIC = "topic YAML"
    DEFAULTS = "defaults.yaml"
    BUILT_IN = "built-in default"


@dataclass(frozen=True, slots=True)
class Setting:
    """One config in force. `words` is the value for people where that is another text."""

    name: str
    value: str
    words: str
    origin: Origin
    meaning: str


def settings(topic: Topic, own: Mapping[str, Any], shared: Mapping[str, Any]) -> list[Setting]:
    """All Kafka configs of a topic. `own` and `shared`: the `config:` that its YAML and the defaults have written."""
    fields = type(topic.config).model_fields
    return [
        _setting(field.alias or name, getattr(topic.config, name), field.description or "", own, shared)
        for name, field in fields.items()
    ]


def _setting(name: str, value: Any, meaning: str, own: Mapping[str, Any], shared: Mapping[str, Any]) -> Setting:
    text = ",".join(sorted(value)) if isinstance(value, frozenset) else str(value)
    return Setting(name, text, _words(name, value), _origin(name, own, shared), meaning)


def _words(name: str, value: Any) -> str:
    if not isinstance(value, int) or value < 1000:
        return ""
    if value == LONG_MAX:
        return "no limit"
    return duration(value) if name.endswith(".ms") else size(value) if name.endswith(".bytes") else ""


def _origin(name: str, own: Mapping[str, Any], shared: Mapping[str, Any]) -> Origin:
    """Null in YAML means the layer below, as for the loader."""
    if own.get(name) is not None:
        return Origin.TOPIC
    return Origin.DEFAULTS if shared.get(name) is not None else Origin.BUILT_IN


def written_configs(topic_file: Path, config_dir: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The `config:` of a topic's file and of defaults.yaml, as they are written. Raises ConfigError."""
    defaults = config_dir / "defaults.yaml"
    shared = (read_yaml(defaults) if defaults.exists() else {}).get("topic") or {}
    return read_yaml(topic_file).get("config") or {}, shared.get("config") or {}
