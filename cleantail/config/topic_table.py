"""The topic table: its columns, schema and properties, and `columns:` of a topic's YAML for an adopted table.

`Columns` maps the columns of a topic table to those of an adopted one. The adopted table keeps the mapping as a
property (cleantail/lake/columns_property.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema, model_validator

from cleantail.config.config_model import Model, cross_field_error
from cleantail.config.kafka_configs import KafkaConfigs

PATH = r"^[A-Za-z0-9_$-]+(\.[A-Za-z0-9_$-]+)*$"
ColumnPath = Annotated[
    str,
    Field(
        pattern=PATH,
        json_schema_extra={"x-allowed": "a column, or a field of a struct as struct.field"},
    ),
]


MOST_PARTS = 16
"""Columns that a key or a value is made of, at most."""


def _one_or_several(value: object) -> str | tuple[str, ...]:
    """Returns a path, or several. Raises ValueError for anything else: one error, where a union would have several."""
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
"""A column, or several that make one."""
Mark = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        json_schema_extra={"x-allowed": "1 to 64 of the characters a-z A-Z 0-9 _ . -"},
    ),
]


class Deleted(Model):
    """The column that says of a record that it deletes its key, and what it says then."""

    column: ColumnPath = Field(description="Text, a truth value or a whole number: Debezium's op, or __deleted.")
    values: Annotated[tuple[Mark, ...], Field(strict=False, min_length=1)] = Field(
        description="Its texts in a record that deletes; null is none of them."
    )


class Columns(Model):
    """Column -> where the table has it; a column that is left out is in no record."""

    partition: ColumnPath | None = Field(
        default=None,
        description="Kafka partition: a whole number. Required with `offset`; a table with `order` is one log without.",
    )
    offset: ColumnPath | None = Field(default=None, description="Kafka offset: a whole number.")
    order: ColumnPath | None = Field(
        default=None,
        description="In place of `offset`, in a table of format version 3 that has none: the record with the highest "
        "value of a key wins, a whole number or a timestamp. Ties go to the one that was committed later.",
    )
    key: ColumnPaths = Field(
        description="Record key: bytes, or anything with a text, which counts as that. A list of columns is a key of "
        "several parts."
    )
    value: ColumnPaths | None = Field(
        default=None,
        description="A column that is null in a tombstone, and in nothing else. With `deleted` that alone decides, and "
        "a list of columns is their JSON.",
    )
    timestamp: ColumnPath | None = Field(default=None, description="Record timestamp: a timestamp, or Unix ms.")
    timestamp_type: ColumnPath | None = Field(default=None, description="0 is CreateTime, 1 LogAppendTime.")
    headers: ColumnPath | None = Field(default=None, description="List of structs of key and value.")
    deleted: Deleted | None = Field(default=None, description="Which records delete their key, by a column.")

    @model_validator(mode="after")
    def _require_whole(self) -> Columns:
        """Refuses a mapping without an order, or with two; and a value of several columns without a mark: of these
        nothing says that they are a tombstone."""
        if (self.offset is None) == (self.order is None):
            allowed = "the column of offset, or that of order in a table without offsets, not both"
            raise cross_field_error("offset", self.offset, allowed, "missing" if self.offset is None else "")
        if self.offset is not None and self.partition is None:
            raise cross_field_error("partition", None, "the column of the partition, beside that of offset", "missing")
        if isinstance(self.value, tuple) and self.deleted is None:
            allowed = "one column, or `deleted` beside it: of several columns none says that the record deletes its key"
            raise cross_field_error("value", list(self.value), allowed)
        for name, parts in (("key", self.key), ("value", self.value)):
            if isinstance(parts, tuple) and len(set(parts)) < len(parts):
                raise cross_field_error(name, list(parts), "each column once")
        return self

    @property
    def paths(self) -> dict[str, str]:
        """Returns column of a topic table -> path, for the columns that are mapped. Of a column with several parts each
        has an entry, as key.0; the column that marks deletes is under `tombstone`."""
        paths: dict[str, str] = {}
        for name in self.names:
            paths |= {part_name(name, n): path for n, path in enumerate(self.parts(name))} or {
                name: str(getattr(self, name))
            }
        return paths | ({TOMBSTONE: str(self.deleted.column)} if self.deleted else {})

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the columns of a topic table that are mapped, and ORDER where that is."""
        return tuple(str(name) for name in type(self).model_fields if name != "deleted" and getattr(self, name))

    @property
    def shown(self) -> tuple[str, ...]:
        """Returns the columns of a topic table that records have: partition and offset in any case."""
        mapped = (name for name in self.names if name not in (PARTITION, OFFSET, ORDER))
        return (PARTITION, OFFSET, *mapped)

    @property
    def partition_and_offset(self) -> tuple[str, str]:
        """Returns the paths of both, of a mapping that has offsets."""
        assert self.partition is not None and self.offset is not None, "a mapping with `order` has no offsets"
        return self.partition, self.offset

    @property
    def has_offsets(self) -> bool:
        """Returns whether a column holds the offset. Where none does it is made of row lineage
        (cleantail.log.adopted_table)."""
        return self.offset is not None

    def parts(self, name: str) -> tuple[str, ...]:
        """Returns the paths of the parts of a column; none where it has one path."""
        mapped = getattr(self, name)
        return tuple(str(path) for path in mapped) if isinstance(mapped, tuple) else ()

    @property
    def is_of_kafka(self) -> bool:
        """Returns whether there are Kafka's offsets, and key and value are a column each, as Kafka has them."""
        return self.has_offsets and not (self.parts("key") or self.parts("value"))

    def of(self, name: str) -> tuple[str, ...]:
        """Returns the paths that a column of a topic table is made of."""
        return self.parts(name) or tuple(str(path) for path in (getattr(self, name),) if path)

    @property
    def texts(self) -> dict[str, str]:
        """Returns column of a topic table -> its path, or its paths with commas, as --column takes them."""
        return {name: ",".join(self.of(name)) for name in self.names}

    @property
    def as_data(self) -> dict[str, Any]:
        """Returns the mapping as YAML has it."""
        return self.model_dump(exclude_none=True, mode="json")


def part_name(name: str, number: int) -> str:
    """Returns what a part of a column is called."""
    return f"{name}.{number}"


def columns_of_texts(texts: Mapping[str, str], deleted: Deleted | None) -> Columns:
    """Returns the mapping that such texts say. Raises pydantic's ValidationError where they are none."""
    paths = {name: tuple(text.split(",")) if "," in text else text for name, text in texts.items()}
    return Columns.model_validate(paths | ({"deleted": deleted} if deleted else {}))


def quoted(path: str) -> str:
    """Returns `a`.`b` for a.b, so that a keyword can be a column."""
    return ".".join(f"`{part}`" for part in path.split("."))


PARTITION = "partition"
OFFSET = "offset"
TIMESTAMP = "timestamp"
TIMESTAMP_TYPE = "timestamp_type"
KEY = "key"
VALUE = "value"
HEADERS = "headers"
TOMBSTONE = "tombstone"
"""Whether the record's value is null: written beside it, so that tombstones are counted without reading a value."""

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
"""Column -> Spark SQL type. `timestamp` is timestamptz in Iceberg, in UTC; the rest as Kafka has it."""

PROPERTY_TOPIC = "cleantail.topic"
"""Table property that marks a table as a topic table and says whose it is: without it Cleantail does not touch a
table."""
PROPERTY_SIDE_OF = "cleantail.side-of"
"""Table property that says whose side table this is, so that none is taken for another topic's table."""
LEDGER_SUFFIX = "_deleted_versions"
"""What the name of the side table of deleted versions adds to that of the topic table."""
KEYLESS_SUFFIX = "_keyless"
"""What the name of the side table of records without a key adds to that of the topic table."""
UNHOLDABLE_SUFFIX = "_unholdable"
"""What the name of the side table of records that the topic table cannot hold adds to that of the topic table."""
LATEST_SUFFIX = "_latest"
"""What the name of the view of the current state adds to that of the topic table."""
SIDE_SUFFIXES = (LEDGER_SUFFIX, KEYLESS_SUFFIX, UNHOLDABLE_SUFFIX, LATEST_SUFFIX)
EVIDENCE = "cleantail_evidence"
"""Name of the evidence table, in the catalog's namespace."""

FILE_BYTES = 512 << 20
"""Data files end at this size, or at segment.bytes if that is less, so that a segment can end there too."""
FILE_BYTES_MIN = 1 << 20


FILE_FORMAT = "write.format.default"
"""Table property that names the format of new data files. Tasks read and write Parquet only."""
RETRIES = {"commit.retry.num-retries": "20", "commit.retry.min-wait-ms": "50"}
"""Table properties of retries. Iceberg gives a commit up after four tries: too few where reclaim rewrites several files
at once."""


def table_properties(topic: str, configs: KafkaConfigs) -> dict[str, str]:
    """Returns the properties of a new topic table."""
    return {
        PROPERTY_TOPIC: topic,
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
        "write.metadata.previous-versions-max": "100",
        "commit.manifest.min-count-to-merge": "20",  # who looks at a table opens all its manifests: two a round
    } | RETRIES
