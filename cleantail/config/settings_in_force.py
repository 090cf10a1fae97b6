"""The settings of a topic in force: each value with its origin, its meaning, and warnings.

A value comes from the topic's YAML, from defaults.yaml, or is the built-in default. The DAG's docs and the topic's page
show these rows to users who may not read the files. For an alert, the rows have only the kind and the connection:
receivers are personal addresses, and the path of a webhook may be its secret.

`check-config` prints the warnings (`warnings_of`):

1. A config has no effect, because its policy or strategy is not in force.
2. A schedule waits for an asset that no topic updates.
3. Records are read with `read_uncommitted`, or the consumer that wrote the files used it. Aborted records are then
   ingested (semantics.md 3.10).

Warnings cover only the topic's own file, because configs in defaults.yaml are for topics of all kinds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cleantail.config.alert_channels import Alert, Event, FileAlert
from cleantail.config.config_model import LONG_MAX, Model
from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.run_schedule import ASSET_SCHEME, parts_of, schedule_text
from cleantail.config.topic import Layers, Topic
from cleantail.config.topic_checks import Check
from cleantail.human import AsWritten, interval, size


class Origin(StrEnum):
    """The layers that a value may come from. The first layer with a value wins."""

    TOPIC = "topic YAML"
    DEFAULTS = "defaults.yaml"
    BUILT_IN = "built-in default"


@dataclass(frozen=True, slots=True)
class Setting:
    """One value in force.

    `name`: the name in YAML, `source.path` for a key within another. `readable`: the value for users, if it differs.
    """

    name: str
    value: str
    readable: str
    origin: Origin
    meaning: str

    @property
    def shown(self) -> str:
        """The value for a table. Never empty, because an empty cell would look like a mistake."""
        return self.value or "none"


def settings_in_force(topic: Topic) -> list[Setting]:
    """Return all settings of a topic's YAML except its name and description. The Kafka configs are last."""
    settings = []
    for name, text_of in _KEYS.items():
        meaning = Topic.model_fields[name].description or ""
        settings.append(Setting(name, text_of(getattr(topic, name)), "", _origin(name, topic.layers), meaning))
    for name in ("source", "columns"):
        inner = getattr(topic, name)
        if inner is not None:  # only an adopted table has columns
            settings += _of_mapping(name, inner, topic.layers, prefix=f"{name}.")
    return [*settings, *_of_mapping("config", topic.config, topic.layers, prefix="")]


def _of_mapping(key: str, inner: Model, layers: Layers, prefix: str) -> list[Setting]:
    """Return the settings of a mapping. Mappings merge key by key, so each key has its own origin."""
    of_mapping = Layers(layers.topic_yaml.get(key, {}), layers.defaults_topic.get(key, {}))
    fields = {field.alias or name: (getattr(inner, name), field) for name, field in type(inner).model_fields.items()}
    return [
        _setting(prefix, name, value, field.description or "", of_mapping) for name, (value, field) in fields.items()
    ]


def _setting(prefix: str, name: str, value: Any, meaning: str, layers: Layers) -> Setting:
    text = ",".join(sorted(value)) if isinstance(value, frozenset) else "" if value is None else str(value)
    if isinstance(value, AsWritten):
        text = value.text
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
"""Keys of a topic that are not mappings -> the function that renders their values."""


def _readable(name: str, value: Any) -> str:
    if not isinstance(value, int) or isinstance(value, AsWritten) or value < 1000:
        return ""
    if value == LONG_MAX:
        return "no limit"
    return interval(value) if name.endswith(".ms") else size(value) if name.endswith(".bytes") else ""


def _origin(name: str, layers: Layers) -> Origin:
    """Return the highest layer with the key. The loader takes its value from there."""
    if name in layers.topic_yaml:
        return Origin.TOPIC
    return Origin.DEFAULTS if name in layers.defaults_topic else Origin.BUILT_IN


CONFIGS_OF_DELETE = ("retention.ms", "retention.bytes")
_CONFIGS_OF_HEADER = ("compaction.strategy.header", "cleantail.header.occurrence")
_CONFIG_OF_CREATE_TIME = "message.timestamp.after.max.ms"
_UNCOMMITTED_TEXT = (
    "source.isolation: read_uncommitted: records of aborted transactions are ingested too, and may win their keys"
)


def without_effect(config: KafkaConfigs, written: Mapping[str, Any]) -> dict[str, str]:
    """Return the written configs that have no effect with these configs in force, each with the reason."""
    idle: dict[str, str] = {}
    if not config.deletes:
        reason = f"cleanup.policy is {','.join(sorted(config.cleanup_policy))}, without delete"
        idle |= {name: reason for name in CONFIGS_OF_DELETE if name in written}
    if config.compaction_strategy != "header":
        reason = f"compaction.strategy is {config.compaction_strategy}, not header"
        idle |= {name: reason for name in _CONFIGS_OF_HEADER if written.get(name)}
    if _CONFIG_OF_CREATE_TIME in written and config.message_timestamp_type != "CreateTime":
        idle[_CONFIG_OF_CREATE_TIME] = "message.timestamp.type is LogAppendTime"
    return {name: f"has no effect: {reason}" for name, reason in idle.items()}


def warnings_of(topic: Topic, written: Mapping[str, Any], topics: Collection[str]) -> list[str]:
    """Return a line for each warning.

    `written`: the topic's own file, without the defaults. `topics`: the names of all topics.
    """
    # 1. configs without effect
    idle = without_effect(topic.config, written.get("config") or {})
    texts = [f"config.{name}: {reason}" for name, reason in idle.items()]
    # 2. assets that no topic updates
    of_topics = f"{ASSET_SCHEME}://"
    _, assets = parts_of(topic.schedule)
    names = [uri.removeprefix(of_topics) for uri in assets if uri.startswith(of_topics)]
    texts += [
        f"schedule.assets: there is no topic {name}: {ASSET_SCHEME}://{name} is never updated"
        for name in names
        if name not in topics
    ]
    # 3. aborted records
    if (written.get("source") or {}).get("isolation") == "read_uncommitted":
        advice = "" if topic.source.kafka else "; set read_committed in the consumer that writes the files"
        texts.append(f"{_UNCOMMITTED_TEXT}{advice}")
    return texts
