"""Holds what `config/topics/<topic>.yaml` may say, and the frozen Topic that it becomes: all that jobs and the DAG
need.

Its `config:` are Kafka's configs and Cleantail's (cleantail.config.kafka_configs). Docstrings and descriptions
of fields are what docs/topics.md and the JSON Schema say to users. cleantail.config.loading reads the files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from cleantail.config.alert_channels import Alert
from cleantail.config.config_model import (
    Model,
    PrintableText,
    cross_field_error,
    matching,
    problems_error,
)
from cleantail.config.kafka_configs import KafkaConfigs
from cleantail.config.run_schedule import Schedule, parts_of, topic_asset_uri
from cleantail.config.topic_checks import Check, column_problems
from cleantail.config.topic_source import ANY_TOPIC, KafkaSource, Source
from cleantail.config.topic_table import OFFSET, ORDER, SIDE_SUFFIXES, Columns

DEFAULT_SCHEDULE = "*/15 * * * *"


def _topic_name(name: str) -> str:
    if name in (".", ".."):
        raise ValueError("not a topic name")
    return name


# Types of single values: the second text of each says what is allowed, in an error.
TopicName = Annotated[
    str,
    AfterValidator(_topic_name),
    matching("[a-zA-Z0-9._-]{1,249}", "1 to 249 of the characters a-z A-Z 0-9 . _ -, and not . or .."),
]
TableName = Annotated[
    str, matching(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", "namespace.name, each of the characters a-z A-Z 0-9 _ -")
]
UserId = Annotated[str, matching(r"[^\s,;<>{}]{1,250}", "the id of an Airflow user, without spaces")]


class TopicDefaults(Model):
    """Holds the `topic:` section of defaults.yaml: what topics share. Mappings merge key by key, lists replace."""

    schedule: Schedule | None = Field(
        default=DEFAULT_SCHEDULE,
        description="When the DAG runs: cron, a preset, or a mapping of cron and assets; null is only by hand.",
    )
    group: TopicName | None = Field(
        default=None, description="Name of the group whose DAG runs the topic; null is a DAG of its own."
    )
    owner: PrintableText = Field(default="cleantail", description="Who is asked about the topic; shown in Airflow.")
    config: KafkaConfigs = Field(default=KafkaConfigs(), description="Kafka configs.")
    publish: Literal["auto", "approve"] = Field(
        default="auto", description="approve: every round waits for a person before it is published."
    )
    approvers: Annotated[tuple[UserId, ...], Field(strict=False)] = Field(
        default=(), description="Airflow user ids who may approve; none named is everyone who may edit the DAG."
    )
    checks: Annotated[tuple[Check, ...], Field(strict=False)] = Field(
        default=(), description="Expectations besides the built-in ones."
    )
    alerts: Annotated[tuple[Alert, ...], Field(strict=False)] = Field(
        default=(), description="Who hears of what is wrong, once, and of its end."
    )


class Layers(NamedTuple):
    """Holds what people have written, without nulls: a topic's own YAML, and below it the `topic:` of defaults.yaml."""

    topic_yaml: Mapping[str, Any]
    defaults_topic: Mapping[str, Any]


class Topic(TopicDefaults):
    """Holds one topic, complete: what its YAML says over what the defaults say."""

    topic: TopicName = Field(description="Name of the topic, and of its DAG.")
    description: str = Field(default="", description="What the topic holds, for people.")
    table: TableName = Field(
        description="Iceberg table. Default: the catalog's namespace and the topic's name, with _ for every "
        "character outside a-z A-Z 0-9 _."
    )
    source: Source = Field(default=Source(), description="Where records come from.")
    columns: Columns | None = Field(
        default=None, description="Of an adopted table: which of its columns hold what (`cleantail adopt`)."
    )
    _layers: Layers = PrivateAttr(default=Layers({}, {}))
    _own_namespace: str = PrivateAttr(default="")

    @model_validator(mode="after")
    def _refuse_asset_of_itself(self) -> Topic:
        """Refuses a DAG that runs after each publish of itself: it would never rest."""
        _, awaited_assets = parts_of(self.schedule)
        if (asset := topic_asset_uri(self.topic)) in awaited_assets:
            raise cross_field_error("schedule.assets", asset, "assets that others update, not the topic's own")
        return self

    @model_validator(mode="after")
    def _refuse_checks_of_unmapped_columns(self) -> Topic:
        """Refuses, of an adopted table, checks of columns that `columns:` does not map. A check calls a column as a
        topic table does, whatever its name in the adopted one."""
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
        """Makes the column of `order` decide between the records of a key, where one is mapped. Refuses another
        strategy beside it, and that strategy without such a column."""
        strategy, ordered = self.config.compaction_strategy, self.columns is not None and not self.columns.has_offsets
        allowed = "offset, timestamp or header; in an adopted table with columns.order only order, or none"
        if (strategy == ORDER) != ordered and (not ordered or strategy != OFFSET):
            raise cross_field_error("config.compaction.strategy", strategy, allowed)
        if ordered:
            decided = self.config.model_copy(update={"compaction_strategy": ORDER})
            object.__setattr__(self, "config", decided)
        return self

    @model_validator(mode="after")
    def _refuse_source_of_adopted_table(self) -> Topic:
        """Refuses a table to read from beside an adopted one: a sink fills that, and it would get both's records."""
        if self.columns is not None and self.source.table is not None:
            allowed = "none of a topic with columns: its table is one that its sink fills"
            raise cross_field_error("source.table", self.source.table.name, allowed)
        return self

    @property
    def layers(self) -> Layers:
        """Returns what the topic was read from; both layers are empty for one that was made without a file."""
        return self._layers

    def with_layers(self, layers: Layers, own_namespace: str = "") -> Self:
        """Returns the topic with what it was read from, and with the namespace of the platform's catalog."""
        topic = self.model_copy()
        topic._layers, topic._own_namespace = layers, own_namespace
        return topic

    @property
    def own_namespace(self) -> str:
        """Returns the namespace in which Cleantail keeps what is of the topic and not in its table: the platform's. An
        adopted table is in that of its sink, whose owner may write there. For a topic that was made without a file it
        is that of its table."""
        return self._own_namespace or self.table.rpartition(".")[0]

    @property
    def waits_for_people(self) -> bool:
        """Returns whether any round of the topic ever waits for a person."""
        return self.publish == "approve" or self.config.cleantail_max_drop_ratio < 1

    @property
    def dag_name(self) -> str:
        """Returns what the DAG that runs the topic is called: its group, or the topic itself. A topic whose rounds may
        wait for a person has a DAG of its own, so that nobody else waits with it."""
        return self.topic if self.group is None or self.waits_for_people else self.group

    @property
    def line_topic(self) -> str | None:
        """Returns which topic a line of a file has to name, if it names one; None lets it name any."""
        return None if self.source.topic == ANY_TOPIC else self.source.topic or self.topic

    @property
    def kafka_topic(self) -> str:
        """Returns what the topic is called in Kafka."""
        return (self.source.kafka.topic if self.source.kafka else None) or self.topic

    @property
    def stall_timeout_ms(self) -> int:
        """Returns how long a read from Kafka may stand still."""
        return (self.source.kafka or KafkaSource()).stall_timeout_ms

    @property
    def compacts(self) -> bool:
        """Returns whether `compact` is in cleanup.policy."""
        return self.config.compacts

    @property
    def deletes(self) -> bool:
        """Returns whether `delete` is in cleanup.policy."""
        return self.config.deletes

    @property
    def effective_segment_ms(self) -> int:
        """Returns min(segment.ms, max.compaction.lag.ms): a segment is rolled in time for the records to be cleaned."""
        return self.config.effective_segment_ms


_ENDS_AS_SIDE_NAME = re.compile(f"({'|'.join(SIDE_SUFFIXES)})_*$", re.IGNORECASE)


def default_table(namespace: str, topic: str) -> str:
    """Return `cleantail.orders_v2` for the topic `orders.v2` in the namespace `cleantail`.

    A name that ends as that of a side table gets one `_` more. So no topic's name makes a name that another topic
    needs next to its table: `orders_latest` is the view of `orders`, and the topic `orders_latest` has
    `orders_latest_`.
    """
    name = re.sub(r"[^A-Za-z0-9_]", "_", topic)
    return f"{namespace}.{name}{'_' if _ENDS_AS_SIDE_NAME.search(name) else ''}"
