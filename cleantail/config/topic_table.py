"""The topic table: its columns, schema and properties, and `columns:` of a topic's YAML for an adopted table.

`Columns` maps the columns of a topic table to columns of an adopted table. The adopted table stores the mapping as a
property (cleantail/lake/records/topic_columns.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema, model_validator

from cleantail.codec import FORMAT, require_format
from cleantail.config.config_model import Model, cross_field_error, matching
from cleantail.config.kafka_configs import KafkaConfigs

PARTITION = "partition"
OFFSET = "offset"
TIMESTAMP = "timestamp"
TIMESTAMP_TYPE = "timestamp_type"
KEY = "key"
VALUE = "value"
HEADERS = "headers"
TOMBSTONE = "tombstone"
"""The column for whether the record's value is null, so that tombstones are counted without reading values."""

ORDER = "order"
"""The column that decides between records of one key in an adopted table without offsets, as a whole number."""

COLUMNS = {
    PARTITION: "int",
    OFFSET: "bigint",
    TIMESTAMP: "timestamp",
    TIMESTAMP_TYPE: "int",
    KEY: "binary",
    VALUE: "binary",
    HEADERS: "array<struct<key: string, value: binary>>",
}
"""Column -> Spark SQL type. `timestamp` is timestamptz in Iceberg, in UTC. The others are as in Kafka."""

PROPERTY_TOPIC = "cleantail.topic"
"""Table property with the topic of a topic table. Cleantail changes no table without it."""
PROPERTY_FORMAT = "cleantail.format"
"""Property of each table with data of Cleantail: the number of its format."""
PROPERTY_SIDE_OF = "cleantail.side-of"
"""Table property of a side table, with its topic."""
LEDGER_SUFFIX = "_deleted_versions"
"""Suffix of the side table of deleted versions."""
KEYLESS_SUFFIX = "_keyless"
"""Suffix of the side table of records without a key."""
UNHOLDABLE_SUFFIX = "_unholdable"
"""Suffix of the side table of records that the topic table cannot hold."""
LATEST_SUFFIX = "_latest"
"""Suffix of the view of the current state."""
SIDE_SUFFIXES = (LEDGER_SUFFIX, KEYLESS_SUFFIX, UNHOLDABLE_SUFFIX, LATEST_SUFFIX)
EVIDENCE = "cleantail_evidence"
"""Name of the evidence table, in the catalog's namespace."""
ERASURES, ERASED_KEYS = "cleantail_erasures", "cleantail_erased_keys"
"""Names of the tables of erasures, in the same namespace."""
OWN_TABLES = {
    EVIDENCE: "the evidence of all topics",
    ERASURES: "the erasures of all topics",
    ERASED_KEYS: "the erased keys of all topics",
}
"""Tables that belong to no topic -> their descriptions."""

FILE_BYTES = 512 << 20
"""Size of a data file. segment.bytes is used if it is smaller, so that a segment can end with a file."""
FILE_BYTES_MIN = 1 << 20


FILE_FORMAT = "write.format.default"
"""Table property with the format of new data files. Tasks read and write only Parquet."""
RETRIES = {"commit.retry.num-retries": "20", "commit.retry.min-wait-ms": "50"}
"""Table properties of retries. Iceberg's default of four tries is too few if reclaim rewrites several files at once."""

SMALL_METADATA = {
    "write.metadata.compression-codec": "gzip",
    "write.metadata.previous-versions-max": "10",
    "commit.manifest.min-count-to-merge": "2",
}
"""Table properties of metadata. Every commit writes a metadata file with all kept snapshots, which gzip packs to a
tenth. A manifest is 9 KB even if it names one file, and every read of the table opens all manifests. So each commit
merges small manifests."""
LARGE_METADATA = {
    "write.metadata.compression-codec": (None,),
    "write.metadata.previous-versions-max": ("100", "20"),
    "commit.manifest.min-count-to-merge": ("20",),
}
"""Other values that a topic table of format 1 may have, None for a missing property. A reclaim replaces them."""


def require_known_format(table: str, properties: Mapping[str, str | None]) -> None:
    """Raise TableError if a table has the number of a format that this version does not read."""
    if (found := properties.get(PROPERTY_FORMAT)) is not None:
        require_format(f"table {table}", PROPERTY_FORMAT, found, str(FORMAT))


def table_properties(topic: str, configs: KafkaConfigs) -> dict[str, str]:
    """Return the properties with which a topic table is created. Rounds and ingestions add their own."""
    return {
        PROPERTY_TOPIC: topic,
        PROPERTY_FORMAT: str(FORMAT),
        "format-version": "3",
        FILE_FORMAT: "parquet",
        "write.delete.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.merge.mode": "merge-on-read",
        "write.distribution-mode": "hash",
        "write.parquet.compression-codec": "zstd",
        "write.target-file-size-bytes": str(max(min(configs.segment_bytes, FILE_BYTES), FILE_BYTES_MIN)),
        "write.metadata.metrics.default": "full",
        "write.metadata.metrics.column.key": "truncate(16)",
        "write.metadata.metrics.column.value": "counts",
        "write.metadata.metrics.column.headers": "none",
        "write.metadata.delete-after-commit.enabled": "true",
        **SMALL_METADATA,
    } | RETRIES


PATH = r"^[A-Za-z0-9_$-]+(\.[A-Za-z0-9_$-]+)*$"
ColumnPath = Annotated[
    str, Field(pattern=PATH, json_schema_extra={"x-allowed": "a column, or a field of a struct as struct.field"})
]


MOST_PARTS = 16
"""Maximum number of columns in a key or a value."""


def _one_or_several(value: object) -> str | tuple[str, ...]:
    """Validate a path, or several. A union type would report several errors for one value."""
    if isinstance(value, str) and re.fullmatch(PATH, value):
        return value
    parts = value if isinstance(value, (list, tuple)) else ()
    if not (2 <= len(parts) <= MOST_PARTS and all(isinstance(p, str) and re.fullmatch(PATH, p) for p in parts)):
        raise ValueError("neither a column nor a list of columns")
    return tuple(parts)


ColumnPaths = Annotated[
    str | tuple[str, ...],
    PlainValidator(_one_or_several),
    PlainSerializer(lambda value: list(value) if isinstance(value, tuple) else value, return_type=Any),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": PATH},
                {"type": "array", "items": {"type": "string", "pattern": PATH}, "minItems": 2, "maxItems": MOST_PARTS},
            ],
            "x-allowed": f"a column, a field of a struct as struct.field, or a list of 2 to {MOST_PARTS} of them",
        }
    ),
]
Mark = Annotated[str, matching(r"[A-Za-z0-9_.-]{1,64}", "1 to 64 of the characters a-z A-Z 0-9 _ . -")]


class Deleted(Model):
    """The column that marks records as deletes of their key, and its values in deletes."""

    column: ColumnPath = Field(description="A text, boolean or integer column, as Debezium's op or __deleted.")
    values: Annotated[tuple[Mark, ...], Field(strict=False, min_length=1)] = Field(
        description="Its values, as texts, in a record that deletes. null does not delete."
    )


class Columns(Model):
    """Column of a topic table -> column of the adopted table. If a column is left out, records lack it."""

    partition: ColumnPath | None = Field(
        default=None,
        description="Kafka partition: a whole number. Required with `offset`. With `order` and no partition, one log.",
    )
    offset: ColumnPath | None = Field(default=None, description="Kafka offset: a whole number.")
    order: ColumnPath | None = Field(
        default=None,
        description="Instead of `offset`, in a table of format version 3 without offsets: a whole number or timestamp. "
        "The record of a key with the highest value wins. The later commit decides ties.",
    )
    key: ColumnPaths = Field(
        description="Record key: bytes, or a type whose text is the key. A list of columns is a key of several parts."
    )
    value: ColumnPaths | None = Field(
        default=None,
        description="A column that is null in tombstones and only there. With `deleted`, which then decides alone, it "
        "may be a list of columns, which are read as their JSON.",
    )
    timestamp: ColumnPath | None = Field(default=None, description="Record timestamp: a timestamp, or Unix ms.")
    timestamp_type: ColumnPath | None = Field(default=None, description="0 is CreateTime, 1 LogAppendTime.")
    headers: ColumnPath | None = Field(default=None, description="List of structs of key and value.")
    deleted: Deleted | None = Field(default=None, description="Column that marks deletes of a key.")

    @model_validator(mode="after")
    def _require_whole(self) -> Columns:
        """Refuse a mapping without offset and order, or with both. Refuse a value of several columns without a mark of
        deletes."""
        if (self.offset is None) == (self.order is None):
            allowed = "the column of offset, or in a table without offsets that of order, not both"
            raise cross_field_error("offset", self.offset, allowed, "missing" if self.offset is None else "")
        if self.offset is not None and self.partition is None:
            raise cross_field_error("partition", None, "the column of the partition, required with offset", "missing")
        if isinstance(self.value, tuple) and self.deleted is None:
            allowed = "one column, or add `deleted`: several columns do not show that a record deletes its key"
            raise cross_field_error("value", list(self.value), allowed)
        for name, parts in (("key", self.key), ("value", self.value)):
            if isinstance(parts, tuple) and len(set(parts)) < len(parts):
                raise cross_field_error(name, list(parts), "each column once")
        return self

    @property
    def paths(self) -> dict[str, str]:
        """Column of a topic table -> path, for mapped columns.

        Each part of a column has an entry, such as key.0. The column that marks deletes is under `tombstone`.
        """
        paths: dict[str, str] = {}
        for name in self.names:
            paths |= {part_name(name, n): path for n, path in enumerate(self.parts(name))} or {
                name: str(getattr(self, name))
            }
        return paths | ({TOMBSTONE: str(self.deleted.column)} if self.deleted else {})

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of a topic table that are mapped, and ORDER if it is mapped."""
        return tuple(str(name) for name in type(self).model_fields if name != "deleted" and getattr(self, name))

    @property
    def shown(self) -> tuple[str, ...]:
        """The columns of a topic table that records have, including partition and offset."""
        mapped = (name for name in self.names if name not in (PARTITION, OFFSET, ORDER))
        return (PARTITION, OFFSET, *mapped)

    @property
    def partition_and_offset(self) -> tuple[str, str]:
        """The paths of partition and offset, for a mapping with offsets."""
        assert self.partition is not None and self.offset is not None, "a mapping with `order` has no offsets"
        return self.partition, self.offset

    @property
    def has_offsets(self) -> bool:
        """Whether a column has the offset. Otherwise it is made from row lineage (cleantail.log.adopted_table)."""
        return self.offset is not None

    def parts(self, name: str) -> tuple[str, ...]:
        """Return the paths of the parts of a column; empty if it has one path."""
        mapped = getattr(self, name)
        return tuple(str(path) for path in mapped) if isinstance(mapped, tuple) else ()

    @property
    def is_of_kafka(self) -> bool:
        """Whether the table has Kafka's offsets, and one column each for key and value."""
        return self.has_offsets and not (self.parts("key") or self.parts("value"))

    def of(self, name: str) -> tuple[str, ...]:
        """Return the paths that form a column of a topic table."""
        return self.parts(name) or tuple(str(path) for path in (getattr(self, name),) if path)

    @property
    def texts(self) -> dict[str, str]:
        """Column of a topic table -> its path or paths with commas, as --column takes them."""
        return {name: ",".join(self.of(name)) for name in self.names}

    @property
    def as_data(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True, mode="json")


def part_name(name: str, number: int) -> str:
    return f"{name}.{number}"


def columns_of_texts(texts: Mapping[str, str], deleted: Deleted | None) -> Columns:
    """Return the mapping of `Columns.texts`. Raises pydantic's ValidationError for invalid texts."""
    paths = {name: tuple(text.split(",")) if "," in text else text for name, text in texts.items()}
    return Columns.model_validate(paths | ({"deleted": deleted} if deleted else {}))


def quoted(path: str) -> str:
    """Return `a`.`b` for a.b, so that a keyword can be a column."""
    return ".".join(f"`{part}`" for part in path.split("."))
