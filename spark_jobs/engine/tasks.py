"""The driver's side: it makes a task of every log of a unit, and runs them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from pyspark.sql import SparkSession

from cleantail.config.platform import Platform
from cleantail.lake.catalogs import file_io_properties
from cleantail.log.policy.join_plans import parallelism
from cleantail.log.work_units import WorkUnit
from spark_jobs.engine.deleted_versions import remembered
from spark_jobs.engine.log_task import LogTask, Refusal
from spark_jobs.iceberg.log_files import LogFile, with_branch
from spark_jobs.iceberg.snapshot_files import SnapshotFiles
from spark_jobs.iceberg.tables import TopicTable

R = TypeVar("R")


def task_results(
    table: TopicTable,
    platform: Platform,
    unit: WorkUnit,
    work: Callable[[Mapping[str, str], LogTask], R | Refusal],
    base: SnapshotFiles,
    branch: SnapshotFiles | None = None,
) -> list[R] | Refusal:
    """Returns what `work` (log_round.find_removals or log_round.judge) returns of each log, in the order of their
    numbers; or why Spark's own plan has to do it.

    With `branch` a task knows what is deleted there, too.
    """
    if not base.all_parquet():
        return Refusal("not every file is Parquet")
    if remembered(table, unit.now_ms) is not None:
        return Refusal("versions of deleted keys are remembered")
    # in the function, not in the data: what is handed to tasks as data may lie in a file on the way
    with_store = partial(work, file_io_properties(table.topic, platform, os.environ))
    results = _run(table.spark, platform, with_store, _tasks(table, platform, unit, base, branch))
    refused = sorted({result.reason for result in results if isinstance(result, Refusal)})
    return Refusal(", ".join(refused)) if refused else [r for r in results if not isinstance(r, Refusal)]


def _tasks(
    table: TopicTable, platform: Platform, unit: WorkUnit, base: SnapshotFiles, branch: SnapshotFiles | None
) -> list[LogTask]:
    files: Mapping[int, Sequence[LogFile]] = base.of_logs(_logs(unit))
    if branch is not None:
        files = with_branch(files, branch.of_logs(_logs(unit)))
    cores, columns = parallelism(platform.spark.master, platform.spark.conf), base.key_columns()
    return [
        LogTask(
            work=work,
            files=tuple(files.get(work.partition, ())),
            columns=columns,
            retained=table.topic.config.deletes,
            threads=max(cores // len(unit.partitions), 1),
            location=platform.warehouse,
        )
        for work in sorted(unit.partitions, key=lambda w: w.partition)
    ]


def _logs(unit: WorkUnit) -> set[int]:
    return {work.partition for work in unit.partitions}


def _run(spark: SparkSession, platform: Platform, work: Callable[[LogTask], R], tasks: list[LogTask]) -> list[R]:
    """Runs the tasks on Spark's executors. Where the driver is the executor it runs them in its own threads: that
    spares starting Python anew, and all that takes long runs without Python's lock."""
    cores = parallelism(platform.spark.master, platform.spark.conf)
    if platform.spark.master.startswith("local"):
        with ThreadPoolExecutor(cores) as threads:
            return list(threads.map(work, tasks))
    return spark.sparkContext.parallelize(tasks, len(tasks)).map(work).collect()
