"""`config/groups/<group>.yaml`: what it may contain, the frozen TopicGroup that it becomes, and the rules of groups.
Pure.

A group has one DAG for all of its topics. So schedule and owner belong to the group. The rules:

1. A file has the name of its group, as a topic's file has.
2. No topic has the name of a group, because Airflow's rights go by DAG. Only the topic's file is wrong then.
3. A topic names a group that has a file.
4. A topic in a group has no separate schedule.
5. No group waits for the asset of one of its topics: it would start itself again after each publish.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from cleantail.config.config_model import INT_MAX, Configs, Model, PrintableText, config
from cleantail.config.run_schedule import Schedule, parts_of, topic_asset_uri
from cleantail.config.topic import DEFAULT_SCHEDULE, DOCTOR_DAG, ID_CHARS, OWN_DAG, Topic, dag_id_of
from cleantail.config.topic_source import TopicName
from cleantail.config.validation_errors import LocatedProblem, nearest
from cleantail.errors import ConfigError, Problem, not_allowed


class GroupLimits(Configs):
    """`limits:` of a group. The platform's log.cleaner.threads limits how many packs run at once."""

    pack_max_bytes: int = config(
        "pack.max.bytes",
        1 << 30,
        "Maximum bytes that the topics of a pack read together. A topic with more bytes has a pack of its own.",
        low=1,
    )
    pack_max_topics: int = config(
        "pack.max.topics", 250, "Maximum number of topics in a pack, which is one Spark application.", low=1, high=1000
    )
    run_max_packs: int = config(
        "run.max.packs",
        64,
        "Maximum number of packs in a run, the most urgent first. The next run begins with the others.",
        low=1,
        high=1000,
    )
    run_max_ms: int = config(
        "run.max.ms",
        3_600_000,
        "Time after which a run begins no new packs. It finishes the begun ones; the next run does the others.",
        low=1,
        high=INT_MAX,
    )


class GroupDefaults(Model):
    """The `groups:` section of defaults.yaml: what groups share. Mappings merge key by key."""

    schedule: Schedule | None = Field(
        default=DEFAULT_SCHEDULE,
        description="When the group's DAG runs: cron, a preset, or a mapping of cron and assets. null: only by hand.",
    )
    owner: PrintableText = Field(default="cleantail", description="Owner of the group, shown in Airflow.")
    limits: GroupLimits = Field(default=GroupLimits(), description="Limits of packs and runs.")


class TopicGroup(GroupDefaults):
    """One complete group: its YAML over the defaults."""

    group: TopicName = Field(description="Name of the group, and of its DAG.")
    description: str = Field(default="", description="What the topics of the group have in common, for people.")


GROUP = "group"


def group_problems(file: Path, group: TopicGroup, dag_prefix: str) -> Iterator[LocatedProblem]:
    """Yield the problems of a group by rule 1, and a name too long for a DAG id."""
    name = group.group
    if name != file.stem:
        yield _problem(name, f"the name of its file: write {file.stem}, or call the file {name}.yaml")
    elif len(dag_id_of(name, dag_prefix)) > ID_CHARS:
        longest = ID_CHARS - len(dag_prefix)
        yield _problem(name, f"at most {longest} characters with platform.dag_prefix {dag_prefix}")
    elif name.casefold() == DOCTOR_DAG:
        yield _problem(name, OWN_DAG)


def awaited_assets(group: TopicGroup | ConfigError) -> tuple[str, ...]:
    """Return the assets after which a group runs; none for a broken group."""
    return parts_of(group.schedule)[1] if isinstance(group, TopicGroup) else ()


def problems_in_group(
    topic: Topic, topic_yaml: Mapping[str, Any], groups: Mapping[str, Collection[str]]
) -> Iterator[LocatedProblem]:
    """Yield the problems of a topic by rules 2 to 5.

    `topic_yaml`: the content of its own file. `groups`: each group, also a broken one -> the assets that it waits for.
    """
    if topic.topic.casefold() in {name.casefold() for name in groups}:
        allowed = "a name that no group has: a group and a topic would share one DAG"
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
        allowed = f"no schedule: group {topic.group} has its own; or `group: null` for a DAG of its own"
        yield ("schedule",), Problem("schedule", "a schedule is not allowed", allowed)


def _problem(name: str, allowed: str) -> LocatedProblem:
    return (GROUP,), Problem(GROUP, not_allowed(name), allowed, name)
