"""The table of cleaner configs: what bounds compaction over all topics. Names and defaults are Kafka's."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import model_validator

from cleantail.config.config_model import (
    CLEANER_CONFIG,
    CLEANTAIL,
    INT_MAX,
    LONG_MAX,
    Configs,
    config,
    cross_field_error,
)
from cleantail.config.input_limits import (
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

OverBudget = Literal["spill", "rounds"]

UNKEPT_LIMIT = "log.cleaner.io.max.bytes.per.second"
"""A config of Kafka's cleaner that Cleantail does not have. A value other than null is refused, since nothing would
keep the limit."""
_WHY_UNKEPT = "null: Spark and Iceberg know no limit of bytes a second; log.cleaner.threads bounds what runs at once"


class CleanerConfigs(Configs):
    """Describes the `platform.cleaner:` of defaults.yaml: what bounds compaction over all topics."""

    log_cleaner_threads: int = config(
        "log.cleaner.threads",
        1,
        "How many Spark applications run at once over all topics (the slots of the Airflow pool).",
        CLEANER_CONFIG,
        low=1,
        high=INT_MAX,
    )
    log_cleaner_dedupe_buffer_size: int = config(
        "log.cleaner.dedupe.buffer.size",
        134_217_728,
        "Memory budget in bytes of the offset maps over all threads. Kafka asks for 1 MiB per thread at least.",
        CLEANER_CONFIG,
        low=1,
        high=LONG_MAX,
    )
    log_cleaner_io_buffer_load_factor: float = config(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        "Share of the budget that an offset map may fill.",
        CLEANER_CONFIG,
        low=0.01,
        high=1.0,
    )
    cleantail_over_budget: OverBudget = config(
        "cleantail.over.budget",
        "spill",
        "What a log does whose dirty keys exceed the budget: one round that spills to disk, or several rounds as in "
        "Kafka, each of which ends where the map is full. The result is the same. With rounds a log is one task, "
        "however large it is.",
        CLEANTAIL,
    )
    cleantail_task_memory_bytes: int = config(
        "cleantail.task.memory.bytes",
        1 << 30,
        "Memory that a core has outside of the JVM for the keys of its task; beyond it the disk. A task of several "
        "threads, on a local master, has that of as many cores. Spark is told of it for every core of an executor "
        "(spark.executor.memoryOverhead).",
        CLEANTAIL,
        low=64 << 20,
        high=LONG_MAX,
    )
    log_cleaner_backoff_ms: int = config(
        "log.cleaner.backoff.ms",
        15_000,
        "Pause before work that met a conflict is tried again.",
        CLEANER_CONFIG,
        low=0,
        high=LONG_MAX,
    )

    @model_validator(mode="before")
    @classmethod
    def _without_a_limit_that_nothing_would_keep(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get(UNKEPT_LIMIT) is not None:
            raise cross_field_error(UNKEPT_LIMIT, data[UNKEPT_LIMIT], _WHY_UNKEPT)
        return data


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
