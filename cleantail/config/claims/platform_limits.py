"""Says what the platform lets a topic's YAML name outside its own topic: folders of sources, Airflow's connections,
brokers, tables that are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from cleantail.config.alert_channels import Alert, FileAlert
from cleantail.config.claims.source_claims import is_listed
from cleantail.config.claims.source_paths import path_problem, written_problem
from cleantail.config.platform import Platform, PlatformSettings
from cleantail.config.topic import Topic
from cleantail.config.topic_source import ADDRESS, may_be_read
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
    yield from _kafka_problems(topic, platform)
    yield from _table_problems(topic, platform)
    for number, alert in enumerate(topic.alerts):
        if allowed := connection_problem(alert, platform):
            key_path, conn_id = ("alerts", number, "conn_id"), getattr(alert, "conn_id", None)
            yield key_path, Problem(key_text(key_path), not_allowed(conn_id), allowed, conn_id)


def connection_problem(alert: Alert, platform: PlatformSettings) -> str | None:
    """Returns what is allowed where an alert uses a connection that is not for alerts, else None.

    With the credentials of any other connection a topic's YAML could send what it likes to wherever they give access.
    """
    conn_id = None if isinstance(alert, FileAlert) else alert.conn_id
    return None if conn_id is None else _unlisted(conn_id, "alert_connections", platform.alert_connections)


def _unlisted(conn_id: str, key: str, names: Sequence[str]) -> str | None:
    """Returns what is allowed where a connection is not in a list of the platform, else None."""
    if is_listed(conn_id, names):
        return None
    listed = ", ".join(names) or "none"
    return f"a connection that platform.{key} in defaults.yaml lists: {listed}; list it there"


def _kafka_problems(topic: Topic, platform: PlatformSettings) -> Iterator[tuple[KeyPath, Problem]]:
    """Yields what source.kafka names that the platform does not allow. By any other connection a topic's YAML could
    read, and show, what that login may read; by any other address make Cleantail talk to a host."""
    kafka = topic.source.kafka
    if kafka is None:
        return
    conn_id = kafka.connection
    if conn_id and (allowed := _unlisted(conn_id, "kafka_connections", platform.kafka_connections)):
        key_path = ("source", "kafka", "connection")
        yield key_path, Problem(key_text(key_path), not_allowed(conn_id), allowed, conn_id)
    if conn_id:
        yield from _access_problems(topic, conn_id, platform)
    servers, names = kafka.bootstrap_servers or "", platform.kafka_servers
    if servers and "*" not in names and not set(servers.split(",")) <= set(names):
        listed = ", ".join(names) or "none"
        allowed = f"brokers that platform.kafka_servers in defaults.yaml lists: {listed}; list them there"
        key_path = ("source", "kafka", ADDRESS)
        yield key_path, Problem(key_text(key_path), not_allowed(servers), allowed, servers)


def _access_problems(topic: Topic, conn_id: str, platform: PlatformSettings) -> Iterator[tuple[KeyPath, Problem]]:
    """Yields what the connection is not for (platform.kafka_access)."""
    group = topic.source.kafka.group_id if topic.source.kafka else None
    for name, access in platform.kafka_access.items():
        if not is_listed(conn_id, (name,)):
            continue
        for key, text, listed in (("topic", topic.kafka_topic, access.topics), ("group.id", group, access.groups)):
            if text and not is_listed(text, listed):
                key_path: KeyPath = ("source", "kafka", key)
                kind = "topics" if key == "topic" else "groups"
                allowed = (
                    f"one of the {kind} that platform.kafka_access.{name} in defaults.yaml lists: "
                    f"{', '.join(listed) or 'none'}; list it there"
                )
                yield key_path, Problem(key_text(key_path), not_allowed(text), allowed, text)


def _table_problems(topic: Topic, platform: PlatformSettings) -> Iterator[tuple[KeyPath, Problem]]:
    """Yields what source.table names that the platform does not allow: by any other table a topic's YAML could show
    what the platform's login may read, and nobody who may see the topic."""
    table = topic.source.table
    if table is None:
        return
    if table.catalog is not None and table.catalog not in platform.source_catalogs:
        listed = ", ".join(sorted(platform.source_catalogs)) or "none"
        allowed = f"a catalog that platform.source_catalogs in defaults.yaml has: {listed}"
        key_path: KeyPath = ("source", "table", "catalog")
        yield key_path, Problem(key_text(key_path), not_allowed(table.catalog), allowed, table.catalog)
        return
    if not may_be_read(table.named_in(platform.catalog.name), platform.source_tables):
        listed = ", ".join(platform.source_tables) or "none"
        name = table.named_in(platform.catalog.name)
        allowed = f"a table that platform.source_tables in defaults.yaml lists: {listed}; list {name} there"
        key_path = ("source", "table", "name")
        yield key_path, Problem(key_text(key_path), not_allowed(table.name), allowed, table.name)
