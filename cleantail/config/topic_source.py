"""`source:` of a topic's YAML: files of kcat -J lines, a topic in Kafka, or a table that a sink fills. Only one.

Client settings have librdkafka's names. YAML may have only settings that tune the client. Other settings could send a
password elsewhere, load a library or run a command. Logins and certificates belong to the connection or to the
environment (`cleantail.kafka.client_settings`). A source table is only read. The topic's records are in its own table.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from cleantail.config.config_model import ConnectionId, Model, allowing, cross_field_error, matching, setting_text
from cleantail.config.topic_table import Columns

FILES, KAFKA, TABLE = "files", "kafka", "table"
"""Kinds of a source that runs read: the types of Source."""
SINK, HAND = "sink", "hand"
"""What brings records if runs read no source: the sink of an adopted table, or only users."""
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
"""Settings that tune a client. They change neither the brokers nor the login."""


def _tuning(properties: dict[str, str]) -> dict[str, str]:
    if not TUNING.issuperset(properties):
        raise ValueError("not a tuning property")
    return properties


def _topic_name(name: str) -> str:
    if name in (".", ".."):
        raise ValueError("not a topic name")
    return name


ADDRESS_PATTERN = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}"
TopicName = Annotated[
    str,
    AfterValidator(_topic_name),
    matching("[a-zA-Z0-9._-]{1,249}", "1 to 249 of the characters a-z A-Z 0-9 . _ -, and not . or .."),
]
Servers = Annotated[
    str, matching(f"{ADDRESS_PATTERN}(?:,{ADDRESS_PATTERN})*", "host:port, several with commas between them")
]
Group = Annotated[str, matching(r"[\x21-\x7e]{1,250}", "the name of a consumer group, without spaces")]
Properties = Annotated[
    dict[
        str, Annotated[str, BeforeValidator(lambda value: value if isinstance(value, float) else setting_text(value))]
    ],
    AfterValidator(_tuning),
    allowing(
        f"a mapping of these settings of librdkafka: {', '.join(sorted(TUNING))}; addresses and logins belong to the "
        "connection or the environment"
    ),
]


class KafkaSource(Model):
    """A topic that is read from Kafka. It holds no secrets."""

    connection: ConnectionId | None = Field(
        default=None,
        description="Airflow connection of type kafka, whose extra has librdkafka's settings. The command line reads "
        "it from the environment, as Airflow does (AIRFLOW_CONN_…, as JSON).",
    )
    bootstrap_servers: Servers | None = Field(
        default=None,
        alias="bootstrap.servers",
        description="Brokers, if there is no connection. null: CLEANTAIL_KAFKA_BOOTSTRAP_SERVERS.",
    )
    topic: TopicName | None = Field(default=None, description="Name of the topic in Kafka. null: the topic's own name.")
    group_id: Group | None = Field(
        default=None,
        alias="group.id",
        description="Consumer group whose offsets are set after each commit, for tools that show lag. They do not "
        "affect reads.",
    )
    on_gap: Literal["fail", "continue"] = Field(
        default="fail",
        description="What a read does if Kafka deleted records before they were read: fail, or continue after the "
        "gap, with an evidence row and an alert.",
    )
    stall_timeout_ms: int = Field(
        default=60_000,
        alias="stall.timeout.ms",
        ge=1000,
        le=3_600_000,
        description="Time without progress (milliseconds) after which a read fails.",
    )
    properties: Properties = Field(default={}, description="More settings of the client, by librdkafka's names.")

    @model_validator(mode="after")
    def _refuse_two_addresses(self) -> KafkaSource:
        """Refuse brokers together with a connection, because the connection names brokers."""
        if self.connection is not None and self.bootstrap_servers is not None:
            raise cross_field_error(ADDRESS, self.bootstrap_servers, "connection or bootstrap.servers, not both")
        return self


MAIN = "main"
"""Iceberg's name of the branch that readers see."""
_PART = "[A-Za-z0-9_-]{1,250}"
_CATALOG = "[A-Za-z0-9_]{1,100}"
SourceTableName = Annotated[
    str, matching(rf"{_PART}(?:\.{_PART}){{1,3}}", "namespace.name, each of the characters a-z A-Z 0-9 _ -")
]
CatalogName = Annotated[
    str, matching(_CATALOG, "the name of a catalog in platform.source_catalogs: characters a-z A-Z 0-9 _")
]
BranchName = Annotated[str, matching(r"[A-Za-z0-9._-]{1,250}", "the name of a branch: characters a-z A-Z 0-9 . _ -")]
TablePattern = Annotated[
    str,
    matching(
        rf"{_CATALOG}(?:\.{_PART}){{1,3}}\.(?:{_PART}\*?|\*)",
        "catalog.namespace.name of a table, or of several with * at the end",
    ),
]


class TableSource(Model):
    """A topic that is read from a table that a sink fills, snapshot by snapshot."""

    name: SourceTableName = Field(description="The table, as namespace.name in its catalog. It is only read.")
    catalog: CatalogName | None = Field(
        default=None, description="Its catalog in platform.source_catalogs. null: the platform's own catalog."
    )
    columns: Columns = Field(description="Its columns that form a record, as for an adopted table.")
    on_change: Literal["fail", "continue"] = Field(
        default="fail",
        description="What a read does if snapshots removed or changed records, or expired before they were read: fail, "
        "or continue after them, with an evidence row and an alert.",
    )
    branch: BranchName = Field(default=MAIN, description="The branch of the table that is read.")

    @model_validator(mode="after")
    def _require_offsets(self) -> TableSource:
        """Refuse a source without offsets, because a topic's own table needs them."""
        if not self.columns.has_offsets:
            needed = "a mapping with partition and offset: a table with `order` can only be adopted"
            raise cross_field_error("columns.order", self.columns.order, needed)
        return self

    @property
    def in_own_catalog(self) -> bool:
        return self.catalog is None

    def named_in(self, own_catalog: str) -> str:
        """Return the table's name with its catalog in front. `own_catalog` is the name of the platform's catalog."""
        return f"{self.catalog or own_catalog}.{self.name}"


def _source_path(text: str) -> str:
    if not text or ".." in PurePosixPath(text).parts or not text.isprintable() or "://" in text:
        raise ValueError("not a path of files")
    return text


SourcePath = Annotated[
    str,
    AfterValidator(_source_path),
    allowing("a path or pattern of files, absolute or inside CLEANTAIL_HOME, without .."),
]
LineTopic = Annotated[
    str,
    matching(r"\*|[a-zA-Z0-9._-]{1,249}", "a topic name, 1 to 249 of the characters a-z A-Z 0-9 . _ -, or * for any"),
]
ANY_TOPIC = "*"


class Source(Model):
    """Where records come from: files of kcat -J lines, Kafka, or a table that a sink fills."""

    type: Literal["files", "kafka", "table"] = Field(
        default="files",
        description="files: kcat -J lines, .jsonl or .jsonl.gz. kafka and table: with the key of that name.",
    )
    path: SourcePath | None = Field(
        default=None,
        description="Files that each DAG run ingests first, in a folder of platform.sources (landing), relative to "
        "CLEANTAIL_HOME.",
    )
    topic: LineTopic | None = Field(
        default=None,
        description="Topic name that lines must have, if they have one. null: the topic's own name. *: any name. "
        "Needed for a topic that was renamed, landed without its prefix, or mirrored as dc1.orders.",
    )
    encoding: Literal["text", "base64"] = Field(
        default="text", description="Encoding of key, payload and header values in the files."
    )
    isolation: Literal["read_committed", "read_uncommitted"] = Field(
        default="read_committed",
        description="Which records are read from Kafka; for files, which records their consumer read. read_uncommitted "
        "includes records of aborted transactions; check-config warns of it.",
    )
    kafka: KafkaSource | None = Field(
        default=None, description="Topic in Kafka that each DAG run reads first, instead of `path`."
    )

    table: TableSource | None = Field(
        default=None,
        description="Table of a sink whose new snapshots each DAG run reads first, instead of `path`. It is never "
        "changed.",
    )

    @model_validator(mode="before")
    @classmethod
    def _infer_type(cls, data: Any) -> Any:
        """Set the type by the key `kafka` or `table`."""
        if not isinstance(data, dict) or "type" in data:
            return data
        kind = next((name for name in ("kafka", "table") if data.get(name) is not None), None)
        return {**data, "type": kind} if kind else data

    @model_validator(mode="after")
    def _refuse_two_sources(self) -> Source:
        """Refuse two sources of one log, because each would have its own position, without the other's records."""
        kind = "kafka" if self.kafka is not None else "table" if self.table is not None else "files"
        if kind != "files" and self.path is not None:
            raise cross_field_error("path", self.path, f"path or {kind}, not both")
        if self.table is not None and self.kafka is not None:
            raise cross_field_error("table", self.table.name, "kafka or table, not both")
        if self.type != kind:
            raise cross_field_error("type", self.type, "files, or kafka or table together with the key of that name")
        return self
