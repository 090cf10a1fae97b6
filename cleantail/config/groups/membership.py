"""Says which DAG runs a topic whose YAML is broken: as far as its file, or the defaults, name a group.

A file that may not be read could name any group. Where the defaults name none, each group counts it as its own: so at
least one run says what is wrong, and no topic is left out by all of them.
"""

from __future__ import annotations

import re
from pathlib import Path

from cleantail.config.yaml_file import read_yaml
from cleantail.errors import ConfigError

_LINE = re.compile(r"^group:[ \t]*[\"']?([A-Za-z0-9._-]+)[\"']?[ \t]*(?:#.*)?$", re.MULTILINE)
"""The line that names a group, of a file that is no YAML."""
_CHARS = 65_536


def group_of_file(file: Path, config_dir: Path) -> str | None:
    """Returns the group that a topic's file names, else that of `topic:` in defaults.yaml; None where neither names
    one."""
    try:
        data = read_yaml(file)
    except ConfigError:
        if (line := _line_of(file)) is not None:
            return line
        data = {}
    group = data["group"] if "group" in data else _default_group(config_dir)
    return group if isinstance(group, str) else None


def may_run_in(group: str, file: Path, config_dir: Path) -> bool:
    """Returns whether the group may have to run the topic of this file."""
    named = group_of_file(file, config_dir)
    return named == group or (named is None and _is_unreadable(file))


def _is_unreadable(file: Path) -> bool:
    try:
        file.open(encoding="utf-8").close()
    except FileNotFoundError:  # gone since the folder was listed, unless a link leads nowhere
        return file.is_symlink()
    except OSError:
        return True
    return False


def _line_of(file: Path) -> str | None:
    try:
        with file.open(errors="replace", encoding="utf-8") as stream:
            match = _LINE.search(stream.read(_CHARS))
    except OSError:
        return None
    return match and match[1]


def _default_group(config_dir: Path) -> object:
    try:
        topic = read_yaml(config_dir / "defaults.yaml").get("topic")
    except ConfigError:
        return None
    return topic.get("group") if isinstance(topic, dict) else None
