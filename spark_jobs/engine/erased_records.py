"""Find the records of erased keys in one task, and later count the records that an erasure has removed.

Records are compared with marks, not with keys (cleantail.erasure.erased_keys). So no task, and no argument of one, has
the keys to erase. Every file of the logs is read: an erasure has no bounds of offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pyiceberg.io import load_file_io

from cleantail.erasure.erased_keys import ErasedKeys
from cleantail.log.rules import LogMeasure
from cleantail.log.winners import Booleans
from cleantail.rounds.checked_round import StagedUnit
from spark_jobs.engine.log_task import LogCounts, LogRemovals, LogTask
from spark_jobs.engine.measures import NO_COUNTS, RoundFiles, merged_logs
from spark_jobs.engine.removals import Removed
from spark_jobs.engine.tally import Tally
from spark_jobs.engine.task_records import Records, records_of
from spark_jobs.engine.tasks import run_apart
from spark_jobs.iceberg.log_files import live_after, live_before
from spark_jobs.iceberg.tables import TopicTable

ERASED = "erased"
"""Why an erasure removes records."""


def find_erased(properties: Mapping[str, str], task: LogTask, keys: ErasedKeys) -> LogRemovals:
    """Return the live records of the keys. `properties`: of PyIceberg's FileIO, with the store's secrets."""
    io, removed = load_file_io(dict(properties), task.location), Removed()
    for number, file in task.numbered_files():
        keep = live_before(io, file)
        for records in records_of(io, task, file, keep, plain_keys=True):
            removed.add_records(ERASED, task, number, records, _of_keys(records, keys))
    return removed.result(task, task)


def judge_erased(properties: Mapping[str, str], task: LogTask, keys: ErasedKeys) -> list[LogCounts]:
    """Return the counts of LogMeasure: an erasure removes the records of its keys, and no other."""
    io, tally = load_file_io(dict(properties), task.location), Tally(task, {})
    for _, file in task.numbered_files():
        before = live_before(io, file)
        after = live_after(io, file)
        for records in records_of(io, task, file, before | after, plain_keys=True):
            base, live, erased = before[records.pos], after[records.pos], _of_keys(records, keys)
            tally.add(
                records,
                {
                    "records_in": base,
                    "records_out": live,
                    "foreign_records": live & ~base,
                    "missing_winners": base & ~live & ~erased,
                    "erased_left": live & erased,
                },
            )
    return tally.result()


def _of_keys(records: Records, keys: ErasedKeys) -> Booleans:
    assert records.key is not None, "keys were requested"
    return keys.found(records.key)


def measure_erasure(table: TopicTable, keys: ErasedKeys, unit: StagedUnit) -> list[LogMeasure]:
    files, what = RoundFiles.of(table, unit, table.load()), "count what an erasure has done"
    counted = run_apart(table, partial(judge_erased, keys=keys), merged_logs, files.tasks, what)
    by_log = {log.partition: log for logs in counted for log in logs}
    return [files.measure(work, by_log.get(work.partition, NO_COUNTS).counts) for work in unit.partitions]
