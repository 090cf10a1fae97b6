"""Holds what `source.kafka` in a topic's YAML says: which cluster, which topic, what a gap does. Without secrets.

Settings of the client have librdkafka's names. In YAML stand only those that tune it: who may say where data is read
from must not be able to send a password elsewhere, load a library or run a command, all of which librdkafka's settings
can. Logins and certificates are in the connection, or in the environment (`client_settings`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from cleantail.config.settings.config_model import Model, allowing, cross_field_error, matching

ADDRESS = "bootstrap.servers"
TUNING = frozenset(
    {
        "broker.address.family",
        "check.crcs",
        "client.id",
        "client.rack",
        "fetch.error.backoff.ms",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "fetch.min.bytes",
        "fetch.wait.max.ms",
        "max.partition.fetch.bytes",
        "metadata.max.age.ms",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "receive.message.max.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "socket.connection.setup.timeout.ms",
        "socket.keepalive.enable",
        "socket.receive.buffer.bytes",
        "socket.timeout.ms",
    }
)
"""Settings that change how a client reads, and neither from where nor as whom."""
STALL_MS = 60_000


def _text(value: object) -> object:
    """Returns numbers and booleans as librdkafka takes them: 8 -> "8", true -> "true"."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else value


def _tuning(properties: dict[str, str]) -> dict[str, str]:
    if not TUNING.issuperset(properties):
        raise ValueError("not a tuning property")
    return properties


def _kafka_name(name: str) -> str:
    if name in (".", ".."):
        raise ValueError("not a topic name")
    return name


ADDRESS_PATTERN = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}"
KafkaName = Annotated[
    str,
    AfterValidator(_kafka_name),
    matching("[a-zA-Z0-9._-]{1,249}", "1 to 249 of the characters a-z A-Z 0-9 . _ -, and not . or .."),
]
KafkaConnection = Annotated[
    str, matching("[A-Za-z0-9_.-]{1,250}", "the id of an Airflow connection: characters a-z A-Z 0-9 . _ -")
]
Servers = Annotated[
    str,
    matching(f"{ADDRESS_PATTERN}(?:,{ADDRESS_PATTERN})*", "host:port, several with commas between them"),
]
Group = Annotated[str, matching(r"[\x21-\x7e]{1,250}", "the name of a consumer group, without spaces")]
Properties = Annotated[
    dict[str, Annotated[str, BeforeValidator(_text)]],
    AfterValidator(_tuning),
    allowing(
        f"a mapping of librdkafka's settings, of these: {', '.join(sorted(TUNING))}; where and as whom it reads is in "
        "the connection or the environment"
    ),
]


class KafkaSource(Model):
    """A topic that is read from Kafka itself, without anything secret."""

    connection: KafkaConnection | None = Field(
        default=None,
        description="Airflow connection of type kafka, whose extra has librdkafka's settings. The command line finds "
        "it in the environment, as Airflow does (AIRFLOW_CONN_…, as JSON).",
    )
    bootstrap_servers: Servers | None = Field(
        default=None,
        alias="bootstrap.servers",
        description="Brokers, where there is no connection; null is CLEANTAIL_KAFKA_BOOTSTRAP_SERVERS.",
    )
    topic: KafkaName | None = Field(default=None, description="Name of the topic in Kafka; null is the topic's own.")
    group_id: Group | None = Field(
        default=None,
        alias="group.id",
        description="Consumer group to which the progress is written after each commit, for tools that show lag. It "
        "decides nothing.",
    )
    on_gap: Literal["fail", "continue"] = Field(
        default="fail",
        description="What a read does where records have gone from the brokers before they were read: fail, or "
        "continue behind them, with the gap in the evidence and an alert.",
    )
    stall_timeout_ms: int = Field(
        default=STALL_MS,
        alias="stall.timeout.ms",
        ge=1000,
        le=3_600_000,
        description="How long a read may stand still (milliseconds) until it ends with an error.",
    )
    properties: Properties = Field(default={}, description="More settings of the client, by librdkafka's names.")

    @model_validator(mode="after")
    def _refuse_two_addresses(self) -> KafkaSource:
        """Refuses brokers beside a connection, which names its own."""
        if self.connection is not None and self.bootstrap_servers is not None:
            raise cross_field_error(ADDRESS, self.bootstrap_servers, "connection or bootstrap.servers, not both")
        return self
