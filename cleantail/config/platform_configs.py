"""Tables of configs of the platform: the cleaner's, with Kafka's names and defaults, and the limits of input."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import model_validator

from cleantail.config.config_model import CLEANER_CONFIG, INT_MAX, Configs, config, cross_field_error
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

UNKEPT_LIMIT = "log.cleaner.io.max.bytes.per.second"
"""A config of Kafka's cleaner that Cleantail refuses unless it is null, because it cannot enforce the limit."""
_WHY_UNKEPT = "null: Spark and Iceberg cannot limit bytes per second; log.cleaner.threads limits parallel applications"


class CleanerConfigs(Configs):
    """`platform.cleaner:` of defaults.yaml: limits of compaction over all topics."""

    log_cleaner_threads: int = config(
        "log.cleaner.threads",
        1,
        "Number of Spark applications that run at once over all topics (the slots of the Airflow pool).",
        CLEANER_CONFIG,
        low=1,
        high=INT_MAX,
    )
    log_cleaner_dedupe_buffer_size: int = config(
        "log.cleaner.dedupe.buffer.size",
        134_217_728,
        "Memory budget in bytes of the offset maps over all threads. Kafka requires at least 1 MiB per thread.",
        CLEANER_CONFIG,
        low=1,
    )
    log_cleaner_io_buffer_load_factor: float = config(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        "Share of the budget that an offset map may fill.",
        CLEANER_CONFIG,
        low=0.01,
        high=1.0,
    )
    cleantail_over_budget: Literal["spill", "rounds"] = config(
        "cleantail.over.budget",
        "spill",
        "What happens if the dirty keys of a log exceed the budget. spill: one round spills to disk. rounds: several "
        "rounds as in Kafka, each until the map is full. The result is the same. With rounds a log is always one task.",
    )
    cleantail_task_memory_bytes: int = config(
        "cleantail.task.memory.bytes",
        1 << 30,
        "Memory per core, outside the JVM, for the keys of its task. Further keys are written to disk. On a local "
        "master a task of several threads has the memory of as many cores. It is part of "
        "spark.executor.memoryOverhead for each core.",
        low=64 << 20,
    )
    cleantail_executors_lost_ms: int = config(
        "cleantail.executors.lost.ms",
        600_000,
        "How long the jobs of an application on a cluster may be without any executor. Then the application fails, and "
        "its next try starts another one. Increase it if your cluster lets applications wait longer for free cores.",
        low=1,
    )
    log_cleaner_backoff_ms: int = config(
        "log.cleaner.backoff.ms", 15_000, "Pause before work is tried again after a conflict.", CLEANER_CONFIG, low=0
    )

    @model_validator(mode="before")
    @classmethod
    def _without_a_limit_that_nothing_would_keep(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get(UNKEPT_LIMIT) is not None:
            raise cross_field_error(UNKEPT_LIMIT, data[UNKEPT_LIMIT], _WHY_UNKEPT)
        return data


class LimitConfigs(Configs):
    """`platform.limits:` of defaults.yaml. A topic cannot change these limits, because they protect all topics."""

    line_max_bytes: int = config(
        LINE_BYTES,
        DEFAULT_LIMITS.line_bytes,
        "Size of a line in a source's file. A task holds several copies of a line while it reads it.",
        low=1,
        high=1 << 30,
    )
    file_max_bytes: int = config(FILE_BYTES, DEFAULT_LIMITS.file_bytes, "Size of a source's file, unpacked.", low=1)
    file_max_ratio: int = config(
        FILE_RATIO,
        DEFAULT_LIMITS.file_ratio,
        "Unpacked bytes for each byte of a .gz file, beyond the first 64 MiB. gzip reaches 1032, changelogs 5 to 50.",
        low=1,
        high=INT_MAX,
    )
    record_max_headers: int = config(
        HEADERS,
        DEFAULT_LIMITS.headers,
        "Number of headers of a record, in a source's file, in Kafka or in a segment of a broker's log.",
        low=0,
        high=INT_MAX,
    )
    batch_max_bytes: int = config(
        BATCH_BYTES,
        DEFAULT_LIMITS.batch_bytes,
        "Size of a record batch in a segment of a broker's log, packed or unpacked (`ingest --segments`). A task holds "
        "one.",
        low=1,
        high=INT_MAX,
    )
    metadata_max_bytes: int = config(
        METADATA_BYTES,
        64 << 20,
        "Size of a table's metadata file, and of a packed property of a snapshot's summary, unpacked. 10,000 snapshots "
        "take about 10 MiB.",
        low=1,
        high=INT_MAX,
    )
    manifest_max_bytes: int = config(
        MANIFEST_BYTES,
        256 << 20,
        "Size of a manifest or a manifest list, unpacked. By Iceberg's default a manifest has 8 MiB, packed.",
        low=1,
        high=INT_MAX,
    )
    deletes_max_bytes: int = config(
        DELETES_BYTES,
        512 << 20,
        "Size of a delete file: unpacked, with 8 bytes for each position. Size of a Puffin file or a deletion vector.",
        low=1,
    )
    ingest_max_ms: int = config(
        INGEST_MS,
        3_600_000,
        "Maximum time to read a topic of a group from its brokers in one run, because other topics of the pack wait. A "
        "comparison with Kafka has as much time again. Appended records stay, and the next run continues there.",
        low=1,
    )
    yaml_max_bytes: int = config(
        YAML_BYTES,
        65_536,
        "Size of a topic's YAML file, which the scheduler reads often. defaults.yaml itself may have 65536 bytes.",
        low=1,
        high=1 << 20,
    )
    checks_max_ms: int = config(
        CHECKS_MS,
        3_600_000,
        "Total time of a topic's own checks of a work unit. After it they count as failed: a regular expression may "
        "never end.",
        low=1,
    )

    @property
    def of_input(self) -> InputLimits:
        """The limits that tasks on workers need."""
        return InputLimits(
            self.line_max_bytes, self.file_max_bytes, self.file_max_ratio, self.record_max_headers, self.batch_max_bytes
        )
