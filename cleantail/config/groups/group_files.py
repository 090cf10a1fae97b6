"""The files of config/groups, each as its group or as what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cleantail.config.groups.group_rules import group_problems
from cleantail.config.groups.topic_group import TopicGroup
from cleantail.config.platform import PlatformSettings
from cleantail.config.problems import require_none, validate
from cleantail.config.settings.input_limits import YAML_BYTES, limit_text
from cleantail.config.yaml_file import merged, read_yaml, without_nulls, yaml_files
from cleantail.errors import ConfigError


def scan_group_files(
    folder: Path, defaults: Mapping[str, Any], platform: PlatformSettings
) -> Iterator[tuple[Path, TopicGroup | ConfigError]]:
    """Yields each file with its group over the `groups:` of the defaults; one broken file never hides the others."""
    for file in yaml_files(folder):
        try:
            written = without_nulls(read_yaml(file, platform.limits.yaml_max_bytes, limit_text(YAML_BYTES)))
            group = validate(TopicGroup, merged(dict(defaults), written), file)
            require_none(file, group_problems(file, group, platform.dag_prefix))
            yield file, group
        except ConfigError as error:
            yield file, error
