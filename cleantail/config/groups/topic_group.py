"""Holds what `config/groups/<group>.yaml` may say, and the frozen TopicGroup that it becomes: all that the group's DAG
needs.

A group has one DAG for all of its topics, in place of one for each. So what belongs to a DAG is the group's: schedule
and owner. What becomes of the records stays with the topics. cleantail.config.loading reads the files.
"""

from __future__ import annotations

from pydantic import Field

from cleantail.config.groups.group_limits import GroupLimits
from cleantail.config.run_schedule import Schedule
from cleantail.config.settings.config_model import Model, PrintableText
from cleantail.config.topic import DEFAULT_SCHEDULE, TopicName


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
