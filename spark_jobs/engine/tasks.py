"""The driver's side: a task for every log of a unit, and what they answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pyspark.sql import SparkSession

from cleantail.config.platform import Platform
from cleantail.lake.catalogs import file_io_properties
from cleantail.log.policy.join_plans import parallelism
from cleantail.log.work_units import WorkUnit
from spark_jobs.engine.deleted_versions import remembered
from spark_jobs.engine.log_round import LogTask, Outcome
from spark_jobs.iceberg.log_files import LogFile, with_branch
from spark_jobs.iceberg.snapshot_files import FilesOf
from spark_jobs.iceberg.tables import TopicTable

Ask = Callable[[Mapping[str, str], LogTask], Outcome]
"""log_round.find_removals or log_round.judge."""


def answers(
    table: TopicTable,
    platform: Platform,
    unit: WorkUnit,
    ask: Ask,
    base: FilesOf,
    branch: FilesOf | None = None,
) -> list[Outcome] | str:
    """What `ask` tells of each log, in the order of their numbers; or why Spark's own plan has to find it.

    With `branch` a task knows what is deleted there, too.
    """
    if not base.all_parquet():
        return "not every file is Parquet"
    if remembered(table, unit.now_ms) is not None:
        return "versions of deleted keys are remembered"
    # in the function, not in the data: what is handed to tasks as data may lie in a file on the way
    asked = partial(ask, file_io_properties(table.topic, platform, os.environ))
    found = _run(table.spark, platform, asked, _tasks(table, platform, unit, base, branch))
    refused = sorted({answer["refused"] for answer in found if "refused" in answer})
    return ", ".join(refused) if refused else found


def _tasks(
    table: TopicTable, platform: Platform, unit: WorkUnit, base: FilesOf, branch: FilesOf | None
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


def _run(
    spark: SparkSession, platform: Platform, ask: Callable[[LogTask], Outcome], tasks: list[LogTask]
) -> list[Outcome]:
    """By Spark's executors. Where the driver is the executor, by its own threads: that spares starting Python anew, and
    all that takes long runs without Python's lock."""
    cores = parallelism(platform.spark.master, platform.spark.conf)
    if platform.spark.master.startswith("local"):
        with ThreadPoolExecutor(cores) as threads:
            return list(threads.map(ask, tasks))
    return spark.sparkContext.parallelize(tasks, len(tasks)).map(ask).collect()
