"""The driver's side: it makes tasks of the logs of a unit, and runs them on Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from pyspark.sql import SparkSession

from cleantail.config.platform import Platform
from cleantail.lake.catalogs import file_io_properties
from cleantail.log.policy.offset_map import keys_in_budget
from cleantail.log.policy.shares import parallelism
from cleantail.log.work_units import PartitionWork, WorkUnit
from spark_jobs.engine.deleted_versions import remembered_files
from spark_jobs.engine.log_task import LogTask
from spark_jobs.iceberg.log_files import LogFile
from spark_jobs.iceberg.snapshot_files import SnapshotFiles
from spark_jobs.iceberg.tables import TopicTable

R = TypeVar("R")


def log_tasks(
    table: TopicTable, platform: Platform, unit: WorkUnit, files: SnapshotFiles, by_rounds: bool = False
) -> list[LogTask]:
    """Returns the tasks of a unit, one for each log; logs whose files have records of one another are one task.

    `by_rounds`: whether a round ends where its map is full; then every log is a task.
    """
    logs = {work.partition for work in unit.partitions}
    log_files = files.log_files(logs)
    configs, layout = table.topic.config, files.layout()
    remembered = remembered_files(table, logs)
    groups = [(w,) for w in unit.partitions] if by_rounds else log_groups(unit.partitions, log_files)
    cores = parallelism(platform.spark.master, platform.spark.conf)
    return [
        LogTask(
            works=works,
            files=tuple(f for f in log_files if f.log is None or f.log in {w.partition for w in works}),
            layout=layout,
            configs=configs,
            now_ms=unit.now_ms,
            threads=max(cores // len(groups), 1),
            memory_bytes=platform.cleaner.cleantail_task_memory_bytes,
            location=platform.warehouse,
            remembered=remembered,
            max_keys=keys_in_budget(platform.cleaner, configs) if by_rounds else None,
        )
        for works in groups
    ]


def log_groups(works: Sequence[PartitionWork], files: Sequence[LogFile]) -> list[tuple[PartitionWork, ...]]:
    """Returns the logs that one task takes each: one, unless a file may have records of several."""
    ordered = sorted(works, key=lambda w: w.partition)
    return [tuple(ordered)] if any(file.log is None for file in files) else [(work,) for work in ordered]


def run_tasks(
    table: TopicTable,
    platform: Platform,
    work: Callable[[Mapping[str, str], LogTask], R],
    tasks: Sequence[LogTask],
    what: str,
) -> list[R]:
    """Runs the tasks on Spark's executors, and returns what each of them returns, in their order. `what` names the
    Spark job for people."""
    if not tasks:
        return []
    # in the function, not in the data: what is handed to tasks as data may lie in a file on the way
    with_store = partial(work, file_io_properties(table.topic, platform, os.environ))
    return _run(table.spark, with_store, tasks, f"{what} of {table.topic.topic}")


def _run(spark: SparkSession, work: Callable[[LogTask], R], tasks: Sequence[LogTask], description: str) -> list[R]:
    context = spark.sparkContext
    context.setJobDescription(description)
    try:
        return context.parallelize(list(tasks), len(tasks)).map(work).collect()
    finally:
        context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
