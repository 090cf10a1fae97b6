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
from typing import Any

from cleantail.config.alert_channels import Alert, FileAlert
from cleantail.config.checks.topic_check import Check
from cleantail.config.events import Event
from cleantail.config.run_schedule import schedule_text
from cleantail.config.settings.config_model import LONG_MAX, Model
from cleantail.config.topic import Layers, Topic
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


def settings_in_force(topic: Topic) -> list[Setting]:
    """Returns everything that a topic's YAML can say but its name and description, the Kafka configs last."""
    return [*_topic_settings(topic), *_of_mapping("config", topic.config, topic.layers, prefix="")]


def _topic_settings(topic: Topic) -> Iterator[Setting]:
    for name, text_of in _KEYS.items():
        meaning = Topic.model_fields[name].description or ""
        yield Setting(name, text_of(getattr(topic, name)), "", _origin(name, topic.layers), meaning)
    for name in ("source", "columns"):
        inner = getattr(topic, name)
        if inner is not None:  # columns: only of an adopted table
            yield from _of_mapping(name, inner, topic.layers, prefix=f"{name}.")


def _of_mapping(key: str, inner: Model, layers: Layers, prefix: str) -> list[Setting]:
    """Returns the settings of a mapping. Mappings merge key by key, so each key has an origin of its own."""
    of_mapping = Layers(layers.topic_yaml.get(key, {}), layers.defaults_topic.get(key, {}))
    fields = {field.alias or name: (getattr(inner, name), field) for name, field in type(inner).model_fields.items()}
    return [
        _setting(prefix, name, value, field.description or "", of_mapping) for name, (value, field) in fields.items()
    ]


def _setting(prefix: str, name: str, value: Any, meaning: str, layers: Layers) -> Setting:
    text = ",".join(sorted(value)) if isinstance(value, frozenset) else "" if value is None else str(value)
    if isinstance(value, Model):  # source.kafka
        text = ", ".join(
            f"{key}: {each}" for key, each in value.model_dump(by_alias=True, exclude_defaults=True).items()
        )
    return Setting(prefix + name, text, _readable(name, value), _origin(name, layers), meaning)


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
    "group": lambda group: group or "",
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


def _origin(name: str, layers: Layers) -> Origin:
    """Returns the highest layer that has the key: it is the one whose value the loader takes."""
    if name in layers.topic_yaml:
        return Origin.TOPIC
    return Origin.DEFAULTS if name in layers.defaults_topic else Origin.BUILT_IN
