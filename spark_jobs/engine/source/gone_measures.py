"""Says what a reconciliation has done to its logs, measured on base, branch and the brokers, whose keys are read anew.

The check takes nothing from the round but its bounds: it reads the topic in Kafka a second time and finds for itself
which keys are alive in the table and gone there. The brokers go on meanwhile, so two things are no error:

1. A removed key of which they have a record now only from where the round's own reading ended on: that record takes the
   place of what went.
2. A key that is left and has gone since, where the time between allows it: their delete.retention.ms. The round starts
   over.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from cleantail.config.platform import Platform
from cleantail.errors import ConflictError
from cleantail.human import duration
from cleantail.kafka.source_topic import SourceTopic
from cleantail.log.rules import LogMeasure
from cleantail.log.winners import Booleans
from cleantail.rounds.checked_round import StagedUnit
from spark_jobs.engine.columns.records import Records
from spark_jobs.engine.log_task import Bounds, LogCounts, LogTask, merged_counts
from spark_jobs.engine.measures import files_of_round, measure_of_log, with_branch_deletes, with_registrations
from spark_jobs.engine.registrations import on_branch, records_again
from spark_jobs.engine.source.broker_keys import read_source_keys
from spark_jobs.engine.source.comparison import buckets_of, comparable, compared
from spark_jobs.engine.source.gone_keys import LogBounds, judge_gone
from spark_jobs.engine.source.table_keys import Counting
from spark_jobs.engine.tally import Tally
from spark_jobs.engine.tasks import log_tasks
from spark_jobs.iceberg.tables import TopicTable


def measure_reconciliation(
    table: TopicTable, platform: Platform, source: SourceTopic, unit: StagedUnit
) -> list[LogMeasure]:
    """Returns the measures of each log of the unit. Raises CleantailError where the brokers cannot be read."""
    change, base, branch = files_of_round(table, unit, table.load())
    planned, deletes = log_tasks(table, platform, unit, base), branch.deletes_by_path()
    again = [records_again(table, platform, tasks) for tasks in (planned, on_branch(planned, deletes))]
    tasks = [with_branch_deletes(task, deletes) for task in planned]
    context, memory_bytes = table.spark.sparkContext, platform.cleaner.cleantail_task_memory_bytes
    offsets = sum((w.source_end or 0) - (w.source_start or 0) for w in unit.partitions)
    buckets = buckets_of(tasks, offsets, memory_bytes, context.defaultParallelism)
    broker, logs = comparable(table, source), [w.partition for w in unit.partitions]
    keys = read_source_keys(context, source, broker, logs, buckets, memory_bytes)
    try:
        bounds = {
            w.partition: LogBounds(
                w.end_offset, w.source_start or 0, w.source_end or 0, keys.starts.get(w.partition, 0)
            )
            for w in unit.partitions
        }
        parts = compared(table, platform, tasks, keys, buckets, partial(judge_gone, bounds), tally_of)
    finally:
        keys.release()
    by_log = {log.partition: log for log in merged_counts(log for part in parts for log in part)}
    measures = []
    for work in unit.partitions:
        counts = by_log[work.partition].counts if work.partition in by_log else {}
        measure = measure_of_log(work, counts, 0, unit, change.data_files_changed)
        measures.append(with_registrations(measure, *(records.get(work.partition, 0) for records in again)))
    if any(measure.gone_at_source_left for measure in measures):
        _require_same_time(table, source, unit)
    return measures


def _require_same_time(table: TopicTable, source: SourceTopic, unit: StagedUnit) -> None:
    """Raises ConflictError where what is left may have gone between the round and its check: its branch is dropped."""
    configs = source.brokers.cleaner_configs(table.topic.kafka_topic)
    passed_ms = int(time.time() * 1000) - (unit.began_ms or 0)
    if configs is not None and passed_ms > configs.delete_retention_ms:
        table.drop_branches([unit.branch])
        raise ConflictError(
            f"keys may have gone from {table.topic.kafka_topic} between the comparison and its check: it took "
            f"{duration(passed_ms)}, and delete.retention.ms is {duration(configs.delete_retention_ms)} there"
        )


def tally_of(task: LogTask) -> tuple[Counting, Callable[[], list[LogCounts]]]:
    """Returns what counts, batch by batch, all that does not depend on the brokers' keys, and what gives the counts."""
    tally, bounds = Tally(task, {}), Bounds.of(task)

    def count(_: LogTask, records: Records, before: Booleans, after: Booleans) -> None:
        head = records.offset >= bounds.end[records.log]
        gone = before & ~after & ~head
        tombstone = records.tombstone if records.tombstone is not None else np.zeros(len(records), np.bool_)
        apart = records.keyless | (records.offset < bounds.retained[records.log])
        tally.add(
            records,
            {
                "records_in": before,
                "records_out": after,
                "foreign_records": after & ~before,
                "head_changed": (before != after) & head,
                "early_tombstones": gone & tombstone,
                "missing_winners": gone & ~tombstone & apart,
            },
        )

    return count, tally.result
