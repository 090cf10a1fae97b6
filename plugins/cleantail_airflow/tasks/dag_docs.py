"""The docs of a topic's DAG: the settings that it was made of, as Markdown."""

from __future__ import annotations

import re

from cleantail.config.run_schedule import topic_asset_uri
from cleantail.config.settings_in_force import Origin, Setting, settings_in_force
from cleantail.config.topic import Topic
from cleantail.human import one_line

HEAD = ("| setting | value | from |", "|---|---|---|")


def settings_section(topic: Topic) -> str:
    """Return the table of settings. What the topic's own YAML sets is bold (cleantail.config.settings_in_force)."""
    title = f"## Settings of {topic.topic}"
    asset = f"Its asset is {code_span(topic_asset_uri(topic.topic))}."
    return "\n".join([title, asset, "", *HEAD, *map(_row, settings_in_force(topic))])


def _row(setting: Setting) -> str:
    name = f"**{setting.name}**" if setting.origin is Origin.TOPIC else setting.name
    equivalent = f" = {setting.readable}" if setting.readable else ""
    return f"| {name} | {code_span(setting.shown)}{equivalent} | {setting.origin.value} |"


def code_span(text: str) -> str:
    """Writes text that Markdown shows as it is, also in a table: no backtick ends the code, and no bar the cell."""
    line = one_line(text)
    fence = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    pad = " " if line[:1] == "`" or line[-1:] == "`" else ""
    return f"{fence}{pad}{line}{pad}{fence}".replace("|", "\\|")
