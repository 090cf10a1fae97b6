"""The topics and groups of a configuration, and the DAG of each topic. Changed files are read again."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cleantail.config.loading import dag_prefix, group_of_file, scan_groups, scan_topics
from cleantail.config.run_schedule import Schedule
from cleantail.config.topic import Topic, dag_id_of, topic_of
from cleantail.config.topic_group import TopicGroup
from cleantail.errors import ConfigError

TopicFiles = Mapping[str, tuple[Path, Topic | ConfigError]]
Groups = Mapping[str, TopicGroup | ConfigError]
NO_GROUPS: Groups = {}


@dataclass(frozen=True)
class Configured:
    """The configuration as it was read.

    `topics` maps each name to its file, and to the topic or to the error of the file. A broken topic has the name of
    its file. `group_of` maps a topic to the group that its YAML names, `runs_in` to the group whose DAG runs it.
    """

    topics: TopicFiles = field(default_factory=dict)
    groups: Groups = field(default_factory=dict)
    dag_prefix: str = ""
    group_of: Mapping[str, str] = field(default_factory=dict)
    runs_in: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def own_ids(self) -> Mapping[str, str]:
        """Return topic -> its own id, which its page and Airflow's permissions use. A DAG of this id need not exist."""
        return {name: dag_id_of(name, self.dag_prefix) for name in self.topics}

    @cached_property
    def dag_ids(self) -> Mapping[str, str]:
        """Return topic -> the id of the DAG that runs it: its own DAG, or its group's."""
        return {name: dag_id_of(self.runs_in.get(name, name), self.dag_prefix) for name in self.topics}

    def topic_of(self, dag_id: str) -> str:
        """Return the topic with this own id. Raises KeyError if no topic has it."""
        name = topic_of(dag_id, self.dag_prefix)
        if name is None or name not in self.topics:
            raise KeyError(dag_id)
        return name

    def group_called(self, dag_id: str) -> str | None:
        """Return the group whose DAG has this id, or None."""
        name = topic_of(dag_id, self.dag_prefix)
        return name if name in self.groups else None

    def ids_with_rights(self, dag_id: str, of_data: bool = False) -> tuple[str, ...]:
        """Return the ids that permit access to the page at this id: the id itself, and the DAG that runs the topic.

        `of_data`: for pages that show more than the topic's name and the error of its file. A broken file may name any
        group, so for its data only the id itself counts.
        """
        name = topic_of(dag_id, self.dag_prefix) or ""
        _, topic = self.topics.get(name, (None, None))
        if of_data and isinstance(topic, ConfigError):
            return (dag_id,)
        return tuple(dict.fromkeys((dag_id, self.dag_ids.get(name, dag_id))))

    def topic(self, name: str) -> Topic:
        """Return the topic. Raises ConfigError if its file is broken, KeyError if the topic has no file."""
        _, topic = self.topics[name]
        if isinstance(topic, ConfigError):
            raise topic
        return topic

    def run_by(self, topic: Topic) -> tuple[str, Schedule | None]:
        """Return the owner and the schedule of a topic's runs. A group's YAML overrides the topic's."""
        group = self.groups.get(topic.group or "")
        return (group.owner, group.schedule) if isinstance(group, TopicGroup) else (topic.owner, topic.schedule)


class ConfigurationCache:
    """Caches the configuration until a file is added, changed or removed. Thread-safe."""

    def __init__(self, config_dir: Path) -> None:
        self._config_dir = config_dir
        self._lock = threading.RLock()
        self._stamps: tuple[Any, ...] = ()
        self._defaults: Any = None
        self._configured = Configured()

    def now(self) -> tuple[Configured, Any]:
        """Return the configuration, and a stamp of the version of defaults.yaml.

        Raises ConfigError if the directory does not exist.
        """
        with self._lock:
            # the stamp of defaults.yaml is first
            folders = [self._config_dir / name for name in ("topics", "groups")]
            of_files = sorted(stamp for folder in folders for stamp in _stamps_in(folder))
            stamps = (_stamp(self._config_dir / "defaults.yaml"), *of_files)
            if stamps != self._stamps:
                self._configured = self._read()
                self._stamps, self._defaults = stamps, stamps[:1]
            return self._configured, self._defaults

    def _read(self) -> Configured:
        prefix = dag_prefix(self._config_dir)
        scanned = scan_topics(self._config_dir)
        topics = {t.topic if isinstance(t, Topic) else f.stem: (f, t) for f, t in scanned}
        group_of, runs_in = {}, {}
        for name, (file, topic) in topics.items():
            group = topic.group if isinstance(topic, Topic) else group_of_file(file, self._config_dir)
            if group is None:
                continue
            group_of[name] = group
            if isinstance(topic, ConfigError) or topic.dag_name == group:
                runs_in[name] = group
        return Configured(topics, self._groups(), prefix, group_of, runs_in)

    def _groups(self) -> Groups:
        """Return each group, or the error of its file. Empty if the defaults are broken, because topics report that
        error."""
        try:
            scanned = list(scan_groups(self._config_dir))
        except ConfigError:
            return NO_GROUPS
        return {group.group if isinstance(group, TopicGroup) else file.stem: group for file, group in scanned}


def _stamps_in(folder: Path) -> Iterator[tuple[Any, ...]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                yield _stamp(entry)
    except FileNotFoundError:
        return


def _stamp(file: Path | os.DirEntry[str]) -> tuple[Any, ...]:
    path = os.fspath(file)
    try:
        stat = file.stat()
    except FileNotFoundError:  # a broken link, or a file that was just deleted
        return (path, 0, -1)
    return (path, stat.st_mtime_ns, stat.st_size)
