"""`config/groups/<group>.yaml`: what it may say, the frozen TopicGroup that it becomes, and the rules of groups. Pure.

A group has one DAG for all of its topics. So schedule and owner belong to the group. The rules:

1. A file has the name of its group, as a topic's file has.
2. No topic has the name of a group, because Airflow's rights go by DAG. Only the topic's file is wrong then.
3. A topic names a group that has a file.
4. A topic in a group has no schedule of its own.
5. No group waits for the asset of one of its topics: it would start itself again after each publish.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from cleantail.config.claims.dag_ids import ID_CHARS, dag_id_of
from cleantail.config.config_model import CLEANTAIL, INT_MAX, LONG_MAX, Configs, Model, PrintableText, config
from cleantail.config.problems import LocatedProblem, nearest
from cleantail.config.run_schedule import Schedule, parts_of, topic_asset_uri
from cleantail.config.topic import DEFAULT_SCHEDULE, Topic, TopicName
from cleantail.errors import ConfigError, Problem, not_allowed


class GroupLimits(Configs):
    """Describes the `limits:` of a group. How many packs are worked on at once is the platform's:
    `log.cleaner.threads`."""

    pack_max_bytes: int = config(
        "pack.max.bytes",
        1 << 30,
        "How much the topics of a pack have to read together. A topic that has more is a pack of its own.",
        CLEANTAIL,
        low=1,
        high=LONG_MAX,
    )
    pack_max_topics: int = config(
        "pack.max.topics",
        250,
        "How many topics share a pack, which is one Spark application.",
        CLEANTAIL,
        low=1,
        high=1000,
    )
    run_max_packs: int = config(
        "run.max.packs",
        64,
        "How many packs a run does, the most urgent first. What is left over is first in the next run.",
        CLEANTAIL,
        low=1,
        high=1000,
    )
    run_max_ms: int = config(
        "run.max.ms",
        3_600_000,
        "How long a run begins new packs. One that was begun is ended; what is left over is first in the next run.",
        CLEANTAIL,
        low=1,
        high=INT_MAX,
    )


class GroupDefaults(Model):
    """Holds the `groups:` section of defaults.yaml: what groups share. Mappings merge key by key."""

    schedule: Schedule | None = Field(
        default=DEFAULT_SCHEDULE,
        description="When the group's DAG runs: cron, a preset, or a mapping of cron and assets; null is only by hand.",
    )
    owner: PrintableText = Field(default="cleantail", description="Who is asked about the group; shown in Airflow.")
    limits: GroupLimits = Field(default=GroupLimits(), description="How much a pack holds, and a run does.")


class TopicGroup(GroupDefaults):
    """Holds one group, complete: what its YAML says over what the defaults say."""

    group: TopicName = Field(description="Name of the group, and of its DAG.")
    description: str = Field(default="", description="What the group's topics have in common, for people.")


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
