"""Says what is wrong with a group, or with a topic in one, though every single value is right. Pure.

1. A file has the name of its group, as a topic's has: so the directory says which groups there are.
2. No topic has the name of a group: each of them may be a DAG, and Airflow's rights go by DAG. The topic's file is
   wrong then, and never the group's: the topics of the group go on.
3. A topic names a group that has a file.
4. A topic in a group has no schedule of its own: it runs when its group does.
5. No group waits for the asset of a topic of its own: it would run after each publish of itself, and never rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from cleantail.config.claims.dag_ids import ID_CHARS, dag_id_of
from cleantail.config.groups.topic_group import TopicGroup
from cleantail.config.problems import LocatedProblem, nearest
from cleantail.config.run_schedule import parts_of, topic_asset_uri
from cleantail.config.topic import Topic
from cleantail.errors import ConfigError, Problem, not_allowed

GROUP = "group"


def group_problems(file: Path, group: TopicGroup, dag_prefix: str) -> Iterator[LocatedProblem]:
    """Yields what is wrong with a group by rule 1."""
    name = group.group
    if name != file.stem:
        yield _problem(name, f"the name of its file: write {file.stem}, or call the file {name}.yaml")
    elif len(dag_id_of(name, dag_prefix)) > ID_CHARS:
        longest = ID_CHARS - len(dag_prefix)
        yield _problem(name, f"at most {longest} characters with platform.dag_prefix {dag_prefix}")


def awaited_assets(group: TopicGroup | ConfigError) -> tuple[str, ...]:
    """Returns the assets after which a group runs; of a broken one nobody knows any."""
    return parts_of(group.schedule)[1] if isinstance(group, TopicGroup) else ()


def problems_in_group(
    topic: Topic, topic_yaml: Mapping[str, Any], groups: Mapping[str, Collection[str]]
) -> Iterator[LocatedProblem]:
    """Yields what is wrong with a topic by the rules 2 to 5. `topic_yaml`: what its own file says; `groups`: name ->
    the assets that it waits for, of all groups, broken ones included."""
    if topic.topic.casefold() in {name.casefold() for name in groups}:
        allowed = "a name that no group has: a group and a topic would be one DAG"
        yield ("topic",), Problem("topic", not_allowed(topic.topic), allowed, topic.topic)
    if topic.group is None:
        return
    if topic.group not in groups:
        names = sorted(groups)
        listed = f"groups: {', '.join(names)}" if names else "there are no groups yet"
        allowed = f"the name of a file in config/groups, or null for a DAG of its own; {listed}"
        problem = Problem(GROUP, not_allowed(topic.group), allowed, topic.group, nearest(topic.group, names))
        yield (GROUP,), problem
    if (asset := topic_asset_uri(topic.topic)) in groups.get(topic.group, ()):
        allowed = f"a group that does not wait for {asset}, which the topic itself updates, or null"
        yield _problem(topic.group, allowed)
    if topic_yaml.get("schedule") is not None:
        allowed = f"none beside group {topic.group}, which has its own; or `group: null` for a DAG of its own"
        yield ("schedule",), Problem("schedule", "a schedule is not allowed", allowed)


def _problem(name: str, allowed: str) -> LocatedProblem:
    return (GROUP,), Problem(GROUP, not_allowed(name), allowed, name)
