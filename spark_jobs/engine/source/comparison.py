"""The driver's side: the brokers' keys and the table's are shuffled to buckets, each of which decides about its own.

Nothing of it grows with a log but the number of tasks: a bucket's database has a task's memory and then a disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from cleantail.config.platform import Platform
from cleantail.kafka.read_plan import BrokerTopic
from cleantail.kafka.source_topic import SourceTopic
from cleantail.lake.catalogs import file_io_properties
from cleantail.log.source_position import position_of
from cleantail.log.task_shares import bucket_count
from spark_jobs.engine.log_task import LogTask
from spark_jobs.engine.shared.key_buckets import Message
from spark_jobs.engine.shared.shares import shares_of
from spark_jobs.engine.source.broker_keys import SourceKeys
from spark_jobs.engine.source.table_keys import messages_of_share
from spark_jobs.engine.tasks import described, require_done, require_python
from spark_jobs.iceberg.file_kinds import each_noting
from spark_jobs.iceberg.iceberg_reads import texts
from spark_jobs.iceberg.tables import TopicTable

Decide = Callable[[int, Iterator[tuple[int, Message]]], Iterator[Any]]
"""Takes a task's memory in bytes and the messages to one bucket."""


def comparable(table: TopicTable, source: SourceTopic) -> BrokerTopic:
    """Returns what the brokers have of the topic that the table was read from. Raises as require_comparable does."""
    return source.require_comparable(position_of(texts(table.load().properties()), table.name))


def buckets_of(tasks: Sequence[LogTask], source_offsets: int, memory_bytes: int, cores: int) -> int:
    """Returns to how many tasks the keys of both sides are shuffled."""
    records = sum(work.records for task in tasks for work in task.works)
    return bucket_count(records + source_offsets, max(cores, 1), memory_bytes, 0)


def compared(
    table: TopicTable,
    platform: Platform,
    tasks: Sequence[LogTask],
    source: SourceKeys,
    buckets: int,
    decide: Decide,
    counting: Any = None,
) -> list[Any]:
    """Returns what every bucket has decided, and what `counting` says of every share of the table's files."""
    context = table.spark.sparkContext
    store: Mapping[str, str] = file_io_properties(table.topic, platform, os.environ)
    require_python(context, platform)
    tasks = _one_log_each(tasks)
    shipped = context.broadcast(tasks)
    fewest = -(-int(context.defaultParallelism) // max(len(tasks), 1))
    shares = [
        (number, share)
        for number, task in enumerate(tasks)
        for share in shares_of(replace(task, shares=max(task.shares, fewest)))
    ]
    memory_bytes = platform.cleaner.cleantail_task_memory_bytes
    try:
        with described(context, f"compare the keys of {table.topic.topic} with its source"):
            of_table = context.parallelize(shares, max(len(shares), 1)).flatMap(
                partial(each_noting, table.met, messages_of_share, store, shipped, buckets, counting)
            )
            both = context.union([of_table, *source.passes]).partitionBy(buckets, int)
            return require_done(both.mapPartitions(partial(decide, memory_bytes)).collect())
    finally:
        shipped.destroy()


def _one_log_each(tasks: Sequence[LogTask]) -> list[LogTask]:
    """Returns a task for each log of those that were packed together: where a task has several logs its keys begin with
    the log, and the brokers' do not."""
    return [
        replace(task, works=(work,), files=tuple(file for file in task.files if file.log == work.partition))
        for task in tasks
        for work in task.works
    ]
