"""The topic table: column names, schema and properties, declared once (docs/architecture.md, decision 1)."""

from __future__ import annotations

from cleantail.config.settings.kafka_configs import KafkaConfigs

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
