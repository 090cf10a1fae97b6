"""The topics and groups of one configuration, read again when a file has changed, and which DAG runs which topic."""

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
    """Describes the configuration as it was read.

    `topics` has each topic, or what is wrong with its file, by name; a broken one goes by its file's name. `group_of`
    has the group that a topic's YAML names, `runs_in` the group whose DAG runs it, of those topics that have one.
    """

    topics: TopicFiles = field(default_factory=dict)
    groups: Groups = field(default_factory=dict)
    dag_prefix: str = ""
    group_of: Mapping[str, str] = field(default_factory=dict)
    runs_in: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def own_ids(self) -> Mapping[str, str]:
        """Returns topic -> its own id, by which its page and Airflow's rights know it, whether there is a DAG of it or
        not."""
        return {name: dag_id_of(name, self.dag_prefix) for name in self.topics}

    @cached_property
    def dag_ids(self) -> Mapping[str, str]:
        """Returns topic -> the id of the DAG that runs it: its own, or its group's."""
        return {name: dag_id_of(self.runs_in.get(name, name), self.dag_prefix) for name in self.topics}

    def topic_of(self, dag_id: str) -> str:
        """Returns the topic whose own id this is. Raises KeyError for any other id."""
        name = topic_of(dag_id, self.dag_prefix)
        if name is None or name not in self.topics:
            raise KeyError(dag_id)
        return name

    def group_called(self, dag_id: str) -> str | None:
        """Returns the group whose DAG would have this id, None where there is none."""
        name = topic_of(dag_id, self.dag_prefix)
        return name if name in self.groups else None

    def ids_with_rights(self, dag_id: str, of_data: bool = False) -> tuple[str, ...]:
        """Returns the ids of which a right on any is one on the page at this id: of a topic in a group also the
        group's. `of_data`: on what shows more than the topic's name and what is wrong with its file. A broken file may
        name any group, and a topic that waits for people is not its group's: so there only its own id counts."""
        name = topic_of(dag_id, self.dag_prefix) or ""
        _, topic = self.topics.get(name, (None, None))
        if of_data and isinstance(topic, ConfigError):
            return (dag_id,)
        return tuple(dict.fromkeys((dag_id, self.dag_ids.get(name, dag_id))))

    def topic(self, name: str) -> Topic:
        """Returns the topic. Raises ConfigError for a broken one, KeyError where there is none."""
        _, topic = self.topics[name]
        if isinstance(topic, ConfigError):
            raise topic
        return topic

    def run_by(self, topic: Topic) -> tuple[str, Schedule | None]:
        """Returns who is asked about a topic's runs and when they are: what the YAML of its group says, where it has
        one."""
        group = self.groups.get(topic.group or "")
        return (group.owner, group.schedule) if isinstance(group, TopicGroup) else (topic.owner, topic.schedule)


class Configuration:
    """Keeps what was read for as long as no file is added, changed or removed. It is safe to use from many threads."""

    def __init__(self, config_dir: Path, env: Mapping[str, str]) -> None:
        self._config_dir = config_dir
        self._env = env
        self._lock = threading.RLock()
        self._stamps: tuple[Any, ...] = ()
        self._defaults: Any = None
        self._configured = Configured()

    def now(self) -> tuple[Configured, Any]:
        """Returns the configuration as it is now, and what tells defaults.yaml from any other version of it. Raises
        ConfigError where there is no such directory."""
        with self._lock:
            stamps = self._current_stamps()
            if stamps != self._stamps:
                self._configured = self._read()
                self._stamps, self._defaults = stamps, stamps[:1]
            return self._configured, self._defaults

    def _current_stamps(self) -> tuple[Any, ...]:
        """Returns what tells the files from any other version of them; that of defaults.yaml comes first."""
        folders = [self._config_dir / name for name in ("topics", "groups")]
        stamps = sorted(stamp for folder in folders for stamp in _stamps_in(folder))
        return (_stamp(self._config_dir / "defaults.yaml"), *stamps)

    def _read(self) -> Configured:
        prefix = dag_prefix(self._config_dir)
        scanned = scan_topics(self._config_dir, self._env)
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
        """Returns each group, or what is wrong with its file; none where the defaults are broken, which every topic
        tells."""
        try:
            scanned = list(scan_groups(self._config_dir, self._env))
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
    except FileNotFoundError:  # a link that leads nowhere, or a file that has just gone
        return (path, 0, -1)
    return (path, stat.st_mtime_ns, stat.st_size)
