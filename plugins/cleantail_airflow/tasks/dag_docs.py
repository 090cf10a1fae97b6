"""The docs of a topic's DAG: the settings that it was made of, as Markdown."""

from __future__ import annotations

from cleantail.config.run_schedule import schedule_text, topic_asset_uri
from cleantail.config.settings.config_model import LONG_MAX
from cleantail.config.topic import Topic
from cleantail.human import one_line


def settings_table(topic: Topic) -> str:
    """The resolved settings as Markdown; what YAML sets, here or in the defaults, is bold."""
    rows = [
        ("topic", topic.topic),
        ("table", topic.table),
        ("schedule", schedule_text(topic.schedule)),
        ("asset", topic_asset_uri(topic.topic)),
        ("publish", topic.publish),
        ("source.path", topic.source.path or "none"),
        ("checks", ", ".join(check.expectation for check in topic.checks) or "the built-in ones"),
        ("alerts", ", ".join(alert.type for alert in topic.alerts) or "none"),
        *(_config_row(topic, name) for name in type(topic.config).model_fields),
    ]
    lines = [f"| {name} | {_code(value)} |" for name, value in rows]
    return "\n".join([f"## Settings of {topic.topic}", "| setting | value |", "|---|---|", *lines])


def _config_row(topic: Topic, name: str) -> tuple[str, str]:
    value = getattr(topic.config, name)
    alias = type(topic.config).model_fields[name].alias or name
    text = ",".join(sorted(value)) if isinstance(value, frozenset) else str(value)
    label = f"**{alias}**" if name in topic.config.model_fields_set else alias
    return label, f"{text} = {_days(value)}" if alias.endswith(".ms") and 1000 <= value < LONG_MAX else text


def _days(milliseconds: int) -> str:
    """9.5 d, 1 h, 15 min: the largest unit that is not below one."""
    units = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))
    unit, size = next((unit, size) for unit, size in units if milliseconds >= size)
    return f"{milliseconds / size:g} {unit}"


def _code(text: str) -> str:
    shown = one_line(text).replace("|", "/").replace("`", "")
    return f"`{shown}`" if shown else ""
