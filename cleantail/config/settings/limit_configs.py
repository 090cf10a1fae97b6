"""The table of limits: how much a file of a source, a topic's YAML and a topic's checks may cost all the others."""

from __future__ import annotations

from cleantail.config.config_model import CLEANTAIL, INT_MAX, LONG_MAX, Configs, config
from cleantail.config.settings.input_limits import (
    BATCH_BYTES,
    CHECKS_MS,
    DEFAULT_LIMITS,
    DELETES_BYTES,
    FILE_BYTES,
    FILE_RATIO,
    HEADERS,
    INGEST_MS,
    LINE_BYTES,
    MANIFEST_BYTES,
    METADATA_BYTES,
    YAML_BYTES,
    InputLimits,
)


class LimitConfigs(Configs):
    """Describes the `platform.limits:` of defaults.yaml. They are the platform's, not a topic's: what they bound is
    shared."""

    line_max_bytes: int = config(
        LINE_BYTES,
        DEFAULT_LIMITS.line_bytes,
        "Of a line in a source's file. A task holds a line several times over while it reads it.",
        CLEANTAIL,
        low=1,
        high=1 << 30,
    )
    file_max_bytes: int = config(
        FILE_BYTES,
        DEFAULT_LIMITS.file_bytes,
        "Of a source's file, unpacked.",
        CLEANTAIL,
        low=1,
        high=LONG_MAX,
    )
    file_max_ratio: int = config(
        FILE_RATIO,
        DEFAULT_LIMITS.file_ratio,
        "How many bytes each byte of a .gz file may unpack to, beyond the first 64 MiB. gzip reaches 1032; changelogs "
        "5 to 50.",
        CLEANTAIL,
        low=1,
        high=INT_MAX,
    )
    record_max_headers: int = config(
        HEADERS,
        DEFAULT_LIMITS.headers,
        "Headers of a record, in a source's file, in Kafka or in a segment of a broker's log.",
        CLEANTAIL,
        low=0,
        high=INT_MAX,
    )
    batch_max_bytes: int = config(
        BATCH_BYTES,
        DEFAULT_LIMITS.batch_bytes,
        "Of a record batch in a segment of a broker's log, packed or unpacked (`ingest --segments`). A task holds one.",
        CLEANTAIL,
        low=1,
        high=INT_MAX,
    )
    metadata_max_bytes: int = config(
        METADATA_BYTES,
        64 << 20,
        "Of a table's metadata file, and of what Cleantail packs into a snapshot's summary, unpacked. 10,000 snapshots "
        "take about 10 MiB.",
        CLEANTAIL,
        low=1,
        high=INT_MAX,
    )
    manifest_max_bytes: int = config(
        MANIFEST_BYTES,
        256 << 20,
        "Of a manifest of a table, or a list of them, unpacked. By Iceberg's default a manifest has 8 MiB, packed.",
        CLEANTAIL,
        low=1,
        high=INT_MAX,
    )
    deletes_max_bytes: int = config(
        DELETES_BYTES,
        512 << 20,
        "Of a delete file: what it unpacks to, and 8 bytes for each position. Of a Puffin file or a deletion vector: "
        "its bytes.",
        CLEANTAIL,
        low=1,
        high=LONG_MAX,
    )
    ingest_max_ms: int = config(
        INGEST_MS,
        3_600_000,
        "How long a topic of a group may be read from its brokers in one run, by all tasks together, and again for its "
        "comparison: the others of its pack wait. What was appended stays, and the next run goes on there.",
        CLEANTAIL,
        low=1,
        high=LONG_MAX,
    )
    yaml_max_bytes: int = config(
        YAML_BYTES,
        65_536,
        "Of a topic's YAML file, which each look of the scheduler reads; defaults.yaml itself may have 65536 bytes.",
        CLEANTAIL,
        low=1,
        high=1 << 20,
    )
    checks_max_ms: int = config(
        CHECKS_MS,
        3_600_000,
        "How long a topic's own checks of a work unit may take together, after which they count as failed: a regular "
        "expression can take for ever.",
        CLEANTAIL,
        low=1,
        high=LONG_MAX,
    )

    @property
    def of_input(self) -> InputLimits:
        """Returns the limits that tasks on workers need."""
        return InputLimits(
            self.line_max_bytes,
            self.file_max_bytes,
            self.file_max_ratio,
            self.record_max_headers,
            self.batch_max_bytes,
        )
