"""Generate the reference of topic and group YAML from its models: JSON Schemas for editors, tables for docs/configs.md.

python -m docs_site.config_reference > config/topic.schema.json
python -m docs_site.config_reference group > config/group.schema.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from cleantail.config.config_model import LONG_MAX, pattern_of, units_of
from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.platform_configs import CleanerConfigs, LimitConfigs
from cleantail.config.topic import Topic
from cleantail.config.topic_group import GroupLimits, TopicGroup
from cleantail.config.validation_errors import allowed_text

Schema = dict[str, Any]

TOPIC, GROUP = "topic", "group"
_KINDS: dict[str, tuple[type[BaseModel], str]] = {
    TOPIC: (Topic, "One topic: config/topics/<topic>.yaml, over config/defaults.yaml."),
    GROUP: (TopicGroup, "One group of topics: config/groups/<group>.yaml, over config/defaults.yaml."),
}
"""Kind of file -> its model, and a line for editors."""


def json_schema(kind: str = TOPIC) -> Schema:
    """Return the JSON Schema of `config/topics/*.yaml`, or of `config/groups/*.yaml`."""
    model, description = _KINDS[kind]
    schema = _published(model.model_json_schema())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": f"Cleantail {kind}",
        "description": description,
        "required": [kind],  # a topic's model also requires the table, which the loader fills in
    }


def schema_text(kind: str = TOPIC) -> str:
    return json.dumps(json_schema(kind), indent=2, ensure_ascii=False) + "\n"


def reference_markdown() -> str:
    """Return Markdown tables of the configs of topics, cleaner and groups, and of the platform's limits."""
    topic, cleaner, limits = _table(KafkaConfigs), _table(CleanerConfigs), _table(LimitConfigs)
    groups = _table(GroupLimits)
    return (
        "## Configs of a topic\n\nUnder `config:`. Times are in ms and sizes in bytes, or text with a unit: `7d`, "
        f"`90min`, `1.5h`, `1GiB`.\n\n{topic}\n\n"
        f"## Configs of the cleaner\n\nUnder `platform.cleaner:` in defaults.yaml.\n\n{cleaner}\n\n"
        f"## Limits of a group\n\nUnder `limits:` of a file in config/groups, and `groups.limits:` in defaults.yaml."
        f"\n\n{groups}\n\n"
        "## Limits of input\n\nUnder `platform.limits:` in defaults.yaml. An error that a limit "
        f"causes names the limit.\n\n{limits}\n"
    )


def _table(model: type[BaseModel]) -> str:
    head = ["| config | default | allowed | meaning | source |", "|---|---|---|---|---|"]
    return "\n".join(head + list(_rows(model.model_json_schema()["properties"])))


def _rows(properties: dict[str, Schema]) -> Iterator[str]:
    for name, node in properties.items():
        cells = (_code(node["default"]), allowed_text(node), node["description"], node["x-source"])
        yield f"| `{name}` | " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _code(default: Any) -> str:
    if default == LONG_MAX:
        return "unlimited"
    if isinstance(default, list):
        default = ",".join(default)
    return f"`{default}`" if default != "" else "none"


def _published(node: Any, name: str = "") -> Any:
    """Return a schema without keys that only Cleantail reads: strict validators stop at unknown keys."""
    if isinstance(node, list):
        return [_published(inner) for inner in node]
    if not isinstance(node, dict):
        return node
    published = {key: _published(value, key) for key, value in node.items() if not key.startswith("x-")}
    if isinstance(published.get("title"), str):
        del published["title"]  # pydantic's titles only repeat the keys
    if "x-source" in node and node.get("type") == "integer" and units_of(name):
        published |= {"type": ["integer", "string"], "pattern": pattern_of(name)}
    if "x-source" in node:
        published["description"] = f"{node['description']} Allowed: {allowed_text(node)}. Source: {node['x-source']}."
    return published


if __name__ == "__main__":
    print(schema_text(*sys.argv[1:2]), end="")
