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
