"""The table of a topic's settings: each value in force, where it comes from, and what it means.

A value comes from the topic's own YAML, from defaults.yaml, or is the built-in default. The docs of the topic's DAG and
its page in the UI draw these rows and put together none of their own.

People read it who may not read the files. So of an alert only its kind and its connection are named: receivers are
people's addresses, and the path of a webhook may be its secret.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from cleantail.config.alert_channels import Alert, FileAlert
from cleantail.config.checks.topic_check import Check
from cleantail.config.events import Event
from cleantail.config.platform import Platform
from cleantail.config.run_schedule import schedule_text
from cleantail.config.settings.config_model import LONG_MAX, Model
from cleantail.config.topic import Topic
from cleantail.config.yaml_file import read_yaml
from cleantail.human import duration, size


class Origin(StrEnum):
    """Lists the layers that a value may come from; a higher one wins."""

    TOPIC = "topic YAML"
    DEFAULTS = "defaults.yaml"
    BUILT_IN = "built-in default"


@dataclass(frozen=True, slots=True)
class Setting:
    """Describes one value in force. `name` is that of the YAML, `source.path` for a key within another. `readable` is
    the value for people, where that is another text."""

    name: str
    value: str
    readable: str
    origin: Origin
    meaning: str

    @property
    def shown(self) -> str:
        """Returns the value as a table shows it, where an empty cell would look like something forgotten."""
        return self.value or "none"


def settings_in_force(topic: Topic, platform: Platform) -> list[Setting]:
    """Reads the topic's file and defaults.yaml again and returns the rows of the topic's table of settings.

    Raises ConfigError where a file cannot be read any more.
    """
    return settings(topic, *written(_file_of(topic.topic, platform.config_dir), platform))


def _file_of(topic: str, config_dir: Path) -> Path:
    """Returns the topic's file, which is called as the topic (cleantail.config.claims.name_claims)."""
    long, short = (config_dir / "topics" / f"{topic}{suffix}" for suffix in (".yaml", ".yml"))
    return short if short.exists() else long


def settings(topic: Topic, topic_yaml: Mapping[str, Any], defaults_topic: Mapping[str, Any]) -> list[Setting]:
    """Returns everything that a topic's YAML can say but its name and description, the Kafka configs last.

    `topic_yaml` is what the topic's file has written, `defaults_topic` the `topic:` of defaults.yaml.
    """
    return [
        *_topic_settings(topic, topic_yaml, defaults_topic),
        *_of_mapping("config", topic.config, topic_yaml, defaults_topic, prefix=""),
    ]


def _topic_settings(
    topic: Topic, topic_yaml: Mapping[str, Any], defaults_topic: Mapping[str, Any]
) -> Iterator[Setting]:
    for name, text_of in _KEYS.items():
        meaning = Topic.model_fields[name].description or ""
        yield Setting(name, text_of(getattr(topic, name)), "", _origin(name, topic_yaml, defaults_topic), meaning)
    for name in ("source", "columns"):
        inner = getattr(topic, name)
        if inner is not None:  # columns: only of an adopted table
            yield from _of_mapping(name, inner, topic_yaml, defaults_topic, prefix=f"{name}.")


def _of_mapping(
    key: str, inner: Model, topic_yaml: Mapping[str, Any], defaults_topic: Mapping[str, Any], prefix: str
) -> list[Setting]:
    """Returns the settings of a mapping. Mappings merge key by key, so each key has an origin of its own."""
    of_topic, of_defaults = topic_yaml.get(key) or {}, defaults_topic.get(key) or {}
    fields = {field.alias or name: (getattr(inner, name), field) for name, field in type(inner).model_fields.items()}
    return [
        _setting(prefix, name, value, field.description or "", of_topic, of_defaults)
        for name, (value, field) in fields.items()
    ]


def _setting(
    prefix: str, name: str, value: Any, meaning: str, topic_yaml: Mapping[str, Any], defaults_topic: Mapping[str, Any]
) -> Setting:
    text = ",".join(sorted(value)) if isinstance(value, frozenset) else "" if value is None else str(value)
    return Setting(prefix + name, text, _readable(name, value), _origin(name, topic_yaml, defaults_topic), meaning)


def _check(check: Check) -> str:
    arguments = ", ".join(f"{name}={json.dumps(value)}" for name, value in check.kwargs.items())
    return f"{check.expectation}({arguments}), {check.severity}"


def _alert(alert: Alert) -> str:
    receiver = f"to {alert.path}" if isinstance(alert, FileAlert) else f"by connection {alert.conn_id}"
    events = "" if set(alert.events) == set(Event) else f" of {', '.join(alert.events)}"
    return f"{alert.type} {receiver}{events}"


_KEYS: Mapping[str, Callable[[Any], str]] = {
    "table": str,
    "schedule": schedule_text,
    "owner": str,
    "publish": str,
    "approvers": ", ".join,
    "checks": lambda checks: "; ".join(map(_check, checks)),
    "alerts": lambda alerts: "; ".join(map(_alert, alerts)),
}
"""Keys of a topic that are no mappings -> what makes text of their values."""


def _readable(name: str, value: Any) -> str:
    if not isinstance(value, int) or value < 1000:
        return ""
    if value == LONG_MAX:
        return "no limit"
    return duration(value) if name.endswith(".ms") else size(value) if name.endswith(".bytes") else ""


def _origin(name: str, topic_yaml: Mapping[str, Any], defaults_topic: Mapping[str, Any]) -> Origin:
    """Returns the layer of a value. Null in YAML means the layer below, as for the loader; only a schedule can be
    switched off."""
    if _says(topic_yaml, name):
        return Origin.TOPIC
    return Origin.DEFAULTS if _says(defaults_topic, name) else Origin.BUILT_IN


def _says(written: Mapping[str, Any], name: str) -> bool:
    return name in written and (written[name] is not None or name == "schedule")


def written(topic_file: Path, platform: Platform) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns a topic's file, and the `topic:` of defaults.yaml, as they are written. Raises ConfigError."""
    defaults = platform.config_dir / "defaults.yaml"
    defaults_topic = (read_yaml(defaults) if defaults.exists() else {}).get("topic") or {}
    return read_yaml(topic_file, platform.limits.yaml_max_bytes), defaults_topic
