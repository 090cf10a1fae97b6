"""`config/topics/<topic>.yaml`: its allowed content, and the frozen Topic that jobs and the DAG use.

`config:` has Kafka's configs and Cleantail's (cleantail.config.kafka_configs). docs/topics.md and the JSON Schema show
descriptions of fields. cleantail.config.loading reads the files.

The id of a topic's DAG is `platform.dag_prefix` and the topic's name. Airflow's rights, pages and logs belong to a DAG.
Tables, evidence, assets, metrics and incidents belong to a topic. Without a prefix, a topic with the name of another
team's DAG would take that DAG's id and rights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

from pydantic import Field, PrivateAttr, model_validator

from cleantail.config.alert_channels import Alert
from cleantail.config.config_model import Model, PrintableText, cross_field_error, matching, problems_error
from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.platform import Platform
from cleantail.config.run_schedule import Schedule, parts_of, topic_asset_uri
from cleantail.config.topic_checks import Check, column_problems
from cleantail.config.topic_source import ANY_TOPIC, FILES, HAND, SINK, KafkaSource, Source, TopicName
from cleantail.config.topic_table import OFFSET, ORDER, SIDE_SUFFIXES, Columns

V = TypeVar("V")

DEFAULT_SCHEDULE = "*/15 * * * *"
ID_CHARS = 250
"""Airflow's longest DAG id."""


TableName = Annotated[
    str, matching(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", "namespace.name, each of the characters a-z A-Z 0-9 _ -")
]
UserId = Annotated[str, matching(r"[^\s,;<>{}]{1,250}", "the id of an Airflow user, without spaces")]


class TopicDefaults(Model):
    """The `topic:` section of defaults.yaml, for all topics. Mappings merge key by key, lists replace."""

    schedule: Schedule | None = Field(
        default=DEFAULT_SCHEDULE,
        description="When the DAG runs: cron, a preset, or a mapping of cron and assets. null: only by hand.",
    )
    group: TopicName | None = Field(default=None, description="Group whose DAG runs the topic. null: a DAG of its own.")
    owner: PrintableText = Field(default="cleantail", description="Owner of the topic, shown in Airflow.")
    config: KafkaConfigs = Field(default=KafkaConfigs(), description="Kafka configs.")
    publish: Literal["auto", "approve"] = Field(
        default="auto", description="approve: every round waits for a person's approval before it is published."
    )
    approvers: Annotated[tuple[UserId, ...], Field(strict=False)] = Field(
        default=(), description="Airflow users who may approve, by id. Empty: everyone who may edit the DAG."
    )
    checks: Annotated[tuple[Check, ...], Field(strict=False)] = Field(
        default=(), description="Expectations in addition to the built-in ones."
    )
    alerts: Annotated[tuple[Alert, ...], Field(strict=False)] = Field(
        default=(), description="Channels that are notified once of each incident and of its end."
    )


class Layers(NamedTuple):
    """The YAML of users, without nulls: of the topic, and of `topic:` in defaults.yaml."""

    topic_yaml: Mapping[str, Any]
    defaults_topic: Mapping[str, Any]


class Topic(TopicDefaults):
    """One complete topic: its YAML over the defaults."""

    topic: TopicName = Field(description="Name of the topic, and of its DAG.")
    description: str = Field(default="", description="What the topic contains, for people.")
    table: TableName = Field(
        description="Iceberg table. Default: the catalog's namespace and the topic's name, with _ for every character "
        "other than a-z A-Z 0-9 _."
    )
    source: Source = Field(default=Source(), description="Where records come from.")
    columns: Columns | None = Field(
        default=None, description="For an adopted table: its columns that form a record (`cleantail adopt`)."
    )
    _layers: Layers = PrivateAttr(default=Layers({}, {}))
    _platform: Platform | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _refuse_asset_of_itself(self) -> Topic:
        """Refuse a DAG that waits for its own topic's asset, because it would start itself again after each publish."""
        _, awaited_assets = parts_of(self.schedule)
        if (asset := topic_asset_uri(self.topic)) in awaited_assets:
            raise cross_field_error("schedule.assets", asset, "assets that other topics update, not the topic's own")
        return self

    @model_validator(mode="after")
    def _refuse_checks_of_unmapped_columns(self) -> Topic:
        """Refuse checks of columns that `columns:` of an adopted table does not map.

        Checks use the names of a topic table.
        """
        columns = self.columns.shown if self.columns else ()
        problems = [
            (("checks", number), problem)
            for number, check in enumerate(self.checks if columns else ())
            for problem in column_problems(check.expectation, check.kwargs, columns)
        ]
        if problems:
            raise problems_error(problems)
        return self

    @model_validator(mode="after")
    def _decide_by_order(self) -> Topic:
        """Make the mapped column of `order` decide between the records of a key.

        Refuses another strategy together with this column, and the strategy `order` without it.
        """
        strategy, ordered = self.config.compaction_strategy, self.columns is not None and not self.columns.has_offsets
        allowed = "offset, timestamp or header; with columns.order only order, or leave it out"
        if (strategy == ORDER) != ordered and (not ordered or strategy != OFFSET):
            raise cross_field_error("config.compaction.strategy", strategy, allowed)
        if ordered:
            decided = self.config.model_copy(update={"compaction_strategy": ORDER})
            object.__setattr__(self, "config", decided)
        return self

    @model_validator(mode="after")
    def _refuse_source_of_adopted_table(self) -> Topic:
        """Refuse `source.table` together with `columns`, because the table would get records from its sink and the
        source."""
        if self.columns is not None and self.source.table is not None:
            allowed = "leave it out: a topic with columns has a table that its sink fills"
            raise cross_field_error("source.table", self.source.table.name, allowed)
        return self

    @property
    def layers(self) -> Layers:
        """The layers that the topic was read from. Both are empty for a topic that was made without a file."""
        return self._layers

    @property
    def platform(self) -> Platform:
        """The platform of the topic. Raises RuntimeError for a topic that was made without a platform."""
        if self._platform is None:
            raise RuntimeError(f"topic {self.topic} has no platform: give it one with Topic.on")
        return self._platform

    def on(self, platform: Platform, layers: Layers | None = None) -> Self:
        """Return the topic on this platform, with these layers, or with its present layers."""
        topic = self.model_copy()
        topic._platform, topic._layers = platform, layers or self._layers
        return topic

    @property
    def own_namespace(self) -> str:
        """Namespace of Cleantail's own tables and properties.

        The namespace is the platform's, because an adopted table is in its sink's namespace. For a topic without a
        platform, it is the namespace of the topic's table.
        """
        return self._platform.catalog.namespace if self._platform else self.table.rpartition(".")[0]

    @property
    def waits_for_people(self) -> bool:
        """Whether a round of the topic may wait for a user."""
        return self.publish == "approve" or self.config.cleantail_max_drop_ratio < 1

    @property
    def dag_name(self) -> str:
        """The group, or the topic itself.

        If its rounds may wait for a user, a topic has its own DAG, so that no other topic waits.
        """
        return self.topic if self.group is None or self.waits_for_people else self.group

    @property
    def fed_by(self) -> str:
        """What brings records into the table: the kind of the source that runs read, SINK, or HAND.

        Files of the defaults are not for a table that a sink fills.
        """
        if self.source.type != FILES:
            return self.source.type
        if self.columns is not None:
            return SINK
        return FILES if self.source.path else HAND

    @property
    def line_topic(self) -> str | None:
        """The topic name that each line of a file must have, if the line names a topic. None allows any name."""
        return None if self.source.topic == ANY_TOPIC else self.source.topic or self.topic

    @property
    def kafka_topic(self) -> str:
        return (self.source.kafka.topic if self.source.kafka else None) or self.topic

    @property
    def stall_timeout_ms(self) -> int:
        return (self.source.kafka or KafkaSource()).stall_timeout_ms


_ENDS_AS_SIDE_NAME = re.compile(f"({'|'.join(SIDE_SUFFIXES)})_*$", re.IGNORECASE)


def default_table(namespace: str, topic: str) -> str:
    """Return `cleantail.orders_v2` for the topic `orders.v2` in the namespace `cleantail`."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", topic)
    return f"{namespace}.{name}{'_' if _ENDS_AS_SIDE_NAME.search(name) else ''}"


DOCTOR_DAG = "cleantail_doctor"
"""Id of the DAG that examines the installation, behind `platform.dag_prefix`. No topic or group has this name."""
ERASURE_DAG = "cleantail_erasures"
"""Id of the DAG of erasures. The default table of a topic of this name would be the table of erasures, so the topic is
refused."""
OWN_DAG = "another name: Cleantail has its own DAG of this name"


def dag_id_of(topic: str, prefix: str) -> str:
    return prefix + topic


def topic_of(dag_id: str, prefix: str) -> str | None:
    """Return the topic for a DAG id, or None if the id lacks the prefix."""
    return dag_id.removeprefix(prefix) if dag_id.startswith(prefix) and dag_id != prefix else None


def by_topic(by_dag_id: Mapping[str, V], dag_ids: Mapping[str, str]) -> dict[str, V]:
    """Return values by topic instead of by DAG id. Topics without a value are left out."""
    return {topic: by_dag_id[dag_id] for topic, dag_id in dag_ids.items() if dag_id in by_dag_id}
