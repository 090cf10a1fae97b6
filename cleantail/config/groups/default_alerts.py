"""The channels that hear of a topic whose YAML is broken: what such a file says of channels cannot be relied on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cleantail.config.alert_channels import Alert
from cleantail.config.claims.platform_limits import connection_problem
from cleantail.config.loading import read_defaults
from cleantail.config.problems import validate
from cleantail.config.topic import Topic
from cleantail.errors import ConfigError


def default_alerts(config_dir: Path, env: Mapping[str, str]) -> list[Alert]:
    """Returns the `alerts` under `topic:` of defaults.yaml, but for those by connections that the platform does not
    allow; none where they are wrong as well."""
    try:
        defaults = read_defaults(config_dir, env)
        written = {"topic": "defaults", "table": "none.defaults", "alerts": defaults.written.get("alerts", [])}
        topic = validate(Topic, written, config_dir / "defaults.yaml")
    except ConfigError:
        return []
    return [alert for alert in topic.alerts if connection_problem(alert, defaults.file.platform) is None]
