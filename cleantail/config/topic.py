"""What `config/topics/<topic>.yaml` says: one frozen Topic with everything that the jobs and the DAG need."""

from __future__ import annotations

import hashlib
import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from cleantail.config.checks.check_arguments import column_problems
from cleantail.config.checks.topic_check import Check
from cleantail.config.columns import Columns
from cleantail.config.events import Event
from cleantail.config.run_schedule import Schedule, parts_of, topic_asset_uri
from cleantail.config.settings.kafka_configs import KafkaConfigs
from cleantail.config.settings.row import Model, PrintableText, cross_field_error, problems_error

ALERTS = "alerts"
"""Folder of CLEANTAIL_HOME that alerts to files are written into, and nothing else."""
DEFAULT_SCHEDULE = "*/15 * * * *"


def _text(pattern: str, allowed: str) -> Any:
    return Field(pattern=f"^(?:{pattern})$", json_schema_extra={"x-allowed": allowed})


def _rule(allowed: str) -> Any:
    return Field(json_schema_extra={"x-allowed": allowed})


def _topic_name(name: str) -> str:
    if name in (".", ".."):
        raise ValueError("not a topic name")
    return name


def _not_empty(receivers: tuple[str, ...]) -> tuple[str, ...]:
    if not receivers:
        raise ValueError("no receivers")
    return receivers


def _some(events: tuple[Event, ...]) -> tuple[Event, ...]:
    if not events:
        raise ValueError("no events")
    return events


def _alert_path(text: str) -> str:
    path = PurePosixPath(text)
    below = len(path.parts) > 1 and path.parts[0] == ALERTS
    if not below or ".." in path.parts or text.endswith("/") or not re.fullmatch(r"[\w./+= -]+", text):
        raise ValueError("not a file below CLEANTAIL_HOME/alerts")
    return text


def _source_path(text: str) -> str:
    if not text or ".." in PurePosixPath(text).parts or not text.isprintable() or "://" in text:
        raise ValueError("not a path of files")
    return text


TopicName = Annotated[
    str,
    AfterValidator(_topic_name),
    _text("[a-zA-Z0-9._-]{1,249}", "1 to 249 of the characters a-z A-Z 0-9 . _ -, and not . or .."),
]
TableName = Annotated[
    str, _text(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", "namespace.name, each of the characters a-z A-Z 0-9 _ -")
]
ConnectionId = Annotated[
    str, _text("[A-Za-z0-9_.-]{1,250}", "the id of an Airflow connection: characters a-z A-Z 0-9 . _ -")
]
MailAddress = Annotated[str, _text(r"[^@\s,;<>]+@[^@\s,;<>]+", "a mail address")]
Endpoint = Annotated[
    str, _text(r"[A-Za-z0-9._~/?=&%-]*", "a path on the connection's host (the host is in the connection)")
]
UserId = Annotated[str, _text(r"[^\s,;<>{}]{1,250}", "the id of an Airflow user, without spaces")]
AlertPath = Annotated[
    str,
    AfterValidator(_alert_path),
    _rule(f"a file below {ALERTS}/ in CLEANTAIL_HOME, without .., as {ALERTS}/orders.jsonl"),
]
SourcePath = Annotated[
    str,
    AfterValidator(_source_path),
    _rule("a path or pattern of files, absolute or inside CLEANTAIL_HOME, without .."),
]


LineTopic = Annotated[
    str, _text(r"\*|[a-zA-Z0-9._-]{1,249}", "a topic name, 1 to 249 of the characters a-z A-Z 0-9 . _ -, or * for any")
]
ANY_TOPIC = "*"


class Source(Model):
    """Where records come from: files of kcat -J lines."""

    type: Literal["files"] = Field(default="files", description="files: kcat -J lines, .jsonl or .jsonl.gz.")
    path: SourcePath | None = Field(
        default=None,
        description="Files that each DAG run ingests first, in a folder of platform.sources (landing); relative to "
        "CLEANTAIL_HOME.",
    )
    topic: LineTopic | None = Field(
        default=None,
        description="What lines that name their topic have to name; null is the topic's own name. For a topic that was "
        "renamed, landed without its prefix, or mirrored as dc1.orders; * lets them name any. Others are refused.",
    )
    encoding: Literal["text", "base64"] = Field(
        default="text", description="How key, payload and header values are written in the files."
    )
    isolation: Literal["read_committed", "read_uncommitted"] = Field(
        default="read_committed", description="What the consumer that wrote the files was allowed to see."
    )


class Channel(Model):
    """What all kinds of alerts have: the events that they are sent for, and whether records may be in them."""

    events: Annotated[tuple[Annotated[Event, Field(strict=False)], ...], Field(strict=False), AfterValidator(_some)] = (
        Field(
            default=tuple(Event),
            description="Events to tell of; default all.",
            json_schema_extra={"x-allowed": f"a list of {', '.join(Event)}", "minItems": 1},
        )
    )
    values: bool = Field(
        default=False,
        description="true: a message about a failed check quotes a few of the records, key, value and headers.",
    )

    @property
    def name(self) -> str:
        """Tells the channels of a topic apart, also after `events`, their order or `values` has changed."""
        where = self.model_dump_json(exclude={"events", "values"})
        return f"{getattr(self, 'type', '')} {hashlib.sha256(where.encode()).hexdigest()[:12]}"


class MailAlert(Channel):
    """An alert by mail through an Airflow SMTP connection."""

    type: Literal["mail"]
    to: Annotated[tuple[MailAddress, ...], Field(strict=False), AfterValidator(_not_empty)] = Field(
        description="Receivers.", json_schema_extra={"x-allowed": "a list of mail addresses", "minItems": 1}
    )
    conn_id: ConnectionId = Field(default="smtp_default", description="Airflow connection.")
    sender: MailAddress | None = Field(default=None, alias="from", description="Sender; null is the connection's.")


class WebhookAlert(Channel):
    """An alert as a JSON POST through an Airflow HTTP connection: its URL and secrets stay there."""

    type: Literal["webhook"]
    conn_id: ConnectionId = Field(description="Airflow connection.")
    endpoint: Endpoint = Field(default="", description="Path on the connection's host.")


class SlackAlert(Channel):
    """An alert to a Slack incoming webhook, or what takes the same body, through an Airflow HTTP connection."""

    type: Literal["slack"]
    conn_id: ConnectionId = Field(description="Airflow connection; the webhook's address, with its secret, is there.")
    endpoint: Endpoint = Field(default="", description="Path on the connection's host.")


class AppriseAlert(Channel):
    """An alert to the Apprise URLs of an Airflow connection; they hold secrets, so they are only there."""

    type: Literal["apprise"]
    conn_id: ConnectionId = Field(default="apprise_default", description="Airflow connection.")
    tag: str = Field(default="all", description="Which of the connection's URLs, by their tag.")


class FileAlert(Channel):
    """An alert as a JSON line at the end of a local file, which is its owner's alone."""

    type: Literal["file"]
    path: AlertPath = Field(description="File below alerts/, relative to CLEANTAIL_HOME.")


Alert = Annotated[MailAlert | WebhookAlert | SlackAlert | AppriseAlert | FileAlert, Field(discriminator="type")]


class TopicDefaults(Model):
    """The `topic:` of defaults.yaml: what all topics share. Config maps merge key by key, lists replace."""

    schedule: Schedule | None = Field(
        default=DEFAULT_SCHEDULE,
        description="When the DAG runs: cron, a preset, or a mapping of cron and assets; null is only by hand.",
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


class Topic(TopicDefaults):
    """One topic, complete: its own YAML over the defaults."""

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

    @model_validator(mode="after")
    def _waits_for_others(self) -> Topic:
        """A DAG that runs after its own publish would never rest."""
        if (own := topic_asset_uri(self.topic)) in parts_of(self.schedule)[1]:
            raise cross_field_error("schedule.assets", own, "assets that others update, not the topic's own")
        return self

    @model_validator(mode="after")
    def _checks_columns_that_are_mapped(self) -> Topic:
        """Of an adopted table checks see the columns that are mapped; each is called as in a topic table."""
        columns = tuple(self.columns.paths) if self.columns else ()
        problems = [
            (("checks", number), problem)
            for number, check in enumerate(self.checks if columns else ())
            for problem in column_problems(check.expectation, check.kwargs, columns)
        ]
        if problems:
            raise problems_error(problems)
        return self

    @property
    def line_topic(self) -> str | None:
        """What lines that name a topic have to name; None lets them name any."""
        return None if self.source.topic == ANY_TOPIC else self.source.topic or self.topic

    @property
    def compacts(self) -> bool:
        """Whether `compact` is in cleanup.policy."""
        return self.config.compacts

    @property
    def deletes(self) -> bool:
        """Whether `delete` is in cleanup.policy."""
        return self.config.deletes

    @property
    def effective_segment_ms(self) -> int:
        """min(segment.ms, max.compaction.lag.ms)."""
        return self.config.effective_segment_ms


def default_table(namespace: str, topic: str) -> str:
    """`cleantail.orders_v2` for the topic `orders.v2` in the namespace `cleantail`."""
    return f"{namespace}.{re.sub(r'[^A-Za-z0-9_]', '_', topic)}"
