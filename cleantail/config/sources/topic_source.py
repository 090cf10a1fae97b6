"""Holds what `source:` of a topic's YAML may say: files of kcat -J lines, a topic in Kafka, or a table that a sink
fills; one of them alone."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from cleantail.config.settings.config_model import Model, allowing, cross_field_error, matching
from cleantail.config.sources.kafka_source import KafkaSource
from cleantail.config.sources.table_source import TableSource


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
    """Where records come from: files of kcat -J lines, Kafka itself, or a table that a sink fills."""

    type: Literal["files", "kafka", "table"] = Field(
        default="files",
        description="files: kcat -J lines, .jsonl or .jsonl.gz. kafka, table: where the key of that name is given.",
    )
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
        default="read_committed",
        description="Which records are read from Kafka; of files, what the consumer that wrote them was allowed to "
        "see. read_uncommitted: with records of aborted transactions, of which check-config warns.",
    )
    kafka: KafkaSource | None = Field(
        default=None, description="The topic in Kafka that each DAG run reads first, in place of `path`."
    )

    table: TableSource | None = Field(
        default=None,
        description="The table of a sink that each DAG run reads on from first, in place of `path`, without ever "
        "changing it.",
    )

    @model_validator(mode="before")
    @classmethod
    def _infer_type(cls, data: Any) -> Any:
        """Takes `kafka:` alone for a source of type kafka, and `table:` alone for one of type table."""
        if not isinstance(data, dict) or "type" in data:
            return data
        kind = next((name for name in ("kafka", "table") if data.get(name) is not None), None)
        return {**data, "type": kind} if kind else data

    @model_validator(mode="after")
    def _refuse_two_sources(self) -> Source:
        """Refuses two ways into one log: each would know how far it had come, and not what the other had brought."""
        if self.kafka is not None and self.path is not None:
            raise cross_field_error("path", self.path, "path or kafka, not both")
        if self.table is not None and self.path is not None:
            raise cross_field_error("path", self.path, "path or table, not both")
        if self.table is not None and self.kafka is not None:
            raise cross_field_error("table", self.table.name, "kafka or table, not both")
        kind = "kafka" if self.kafka is not None else "table" if self.table is not None else "files"
        if self.type != kind:
            raise cross_field_error("type", self.type, "files, or kafka or table together with the key of that name")
        return self
