"""What the platform lets a topic's YAML name outside its own topic: folders of sources, Airflow's connections."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cleantail.config.alert_channels import Alert, FileAlert
from cleantail.config.claims.source_paths import path_problem, written_problem
from cleantail.config.platform import Platform, PlatformSettings
from cleantail.config.topic import Topic
from cleantail.config.yaml_file import KeyPath, key_lines, key_text, line_of
from cleantail.errors import ConfigError, Problem, not_allowed


def in_its_sources(file: Path, topic: Topic | ConfigError, platform: Platform) -> Topic | ConfigError:
    """Returns the topic, or the error where a link leads its source.path out of the folders of sources. Only the disk
    shows that."""
    if isinstance(topic, ConfigError) or not topic.source.path:
        return topic
    allowed = path_problem(topic.source.path, platform)
    if allowed is None:
        return topic
    path, line = topic.source.path, line_of(("source", "path"), key_lines(file))
    return ConfigError(file, [Problem("source.path", not_allowed(path), allowed, path, line=line)])


def platform_problems(topic: Topic, platform: PlatformSettings, home: Path) -> Iterator[tuple[KeyPath, Problem]]:
    """Yields what a topic names that the platform does not allow, each with its key path in the topic's file."""
    path = topic.source.path
    if path and (allowed := written_problem(path, home, platform.sources)):
        yield ("source", "path"), Problem("source.path", not_allowed(path), allowed, path)
    for number, alert in enumerate(topic.alerts):
        if allowed := connection_problem(alert, platform):
            key_path, conn_id = ("alerts", number, "conn_id"), getattr(alert, "conn_id", None)
            yield key_path, Problem(key_text(key_path), not_allowed(conn_id), allowed, conn_id)


def connection_problem(alert: Alert, platform: PlatformSettings) -> str | None:
    """Returns what is allowed where an alert uses a connection that is not for alerts, else None.

    With the credentials of any other connection a topic's YAML could send what it likes to wherever they give access.
    """
    conn_id = None if isinstance(alert, FileAlert) else alert.conn_id
    names = platform.alert_connections
    if conn_id is None or any(conn_id == n or (n.endswith("*") and conn_id.startswith(n[:-1])) for n in names):
        return None
    listed = ", ".join(names) or "none"
    return f"a connection that platform.alert_connections in defaults.yaml lists: {listed}; list it there"
