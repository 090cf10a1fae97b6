"""Files that are registered more than once, for example because a sink has committed a file again.

Readers see a record once for each registration that has not lost it. Deletes name a file and apply to all earlier
registrations, so deletes of the last registration apply to all. A round leaves one registration with these deletes, and
so keeps every visible record once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
from pyiceberg.io import load_file_io

from spark_jobs.engine.log_task import LogTask
from spark_jobs.engine.task_records import records_of
from spark_jobs.engine.tasks import run_tasks
from spark_jobs.iceberg.log_files import FileDeletes, LogFile, alive, read_deletes_in_task
from spark_jobs.iceberg.tables import TopicTable

REGISTERED_TWICE = "registered_twice"
"""Reason for records that a round removes together with a repeated registration of their file."""


def registered_twice(tasks: Sequence[LogTask], held: Collection[int] = ()) -> list[LogFile]:
    """Return the files that the round must register only once, except files of only `held` (blocked) logs."""
    files = {}
    for task in tasks:
        logs = {work.partition for work in task.works}
        for file in task.files:
            if file.again and (file.log not in held if file.log is not None else logs - set(held)):
                files[file.hash] = file
    return list(files.values())


def removed_with(files: Collection[LogFile], records: Mapping[int, int]) -> dict[str, Mapping[int, int]]:
    """Return reason -> the records of repeated registrations. Empty without such files."""
    return {REGISTERED_TWICE: records} if files else {}


def records_again(table: TopicTable, tasks: Sequence[LogTask], held: Collection[int] = ()) -> dict[int, int]:
    """Return partition -> the number of duplicates that readers see, without `held` (blocked) logs."""
    doubled = [_only(task, [file for file in task.files if file.again]) for task in tasks]
    doubled = [task for task in doubled if task.files]
    counts: Counter[int] = Counter()
    for by_log in run_tasks(table, count_again, doubled, "count what is registered twice"):
        counts.update(by_log)
    return {log: count for log, count in counts.items() if log not in held}


def on_branch(tasks: Sequence[LogTask], branch: Mapping[str, FileDeletes]) -> list[LogTask]:
    """Return the tasks with the branch's registrations of their files. `branch`: path -> deletes."""
    return [
        _only(task, [replace(f, again=branch[f.path].again) for f in task.files if f.path in branch]) for task in tasks
    ]


def count_again(properties: Mapping[str, str], task: LogTask) -> dict[int, int]:
    """Return partition -> the number of duplicates that readers see in the task's files."""
    io = load_file_io(dict(properties), task.location)
    counts: Counter[int] = Counter()
    for file in task.files:
        if file.log is not None and file.piece:
            continue  # the first piece counts for the whole file
        times = np.zeros(file.records, np.int64)
        for deletes in file.again:
            times += alive(file.records, read_deletes_in_task(io, deletes, file))
        if file.log is not None:
            counts[file.log] += int(times.sum())
            continue
        for records in records_of(io, task, file, times > 0, keys=False):
            for log in records.logs():
                counts[task.works[log].partition] += int(times[records.pos[records.log == log]].sum())
    return dict(counts)


def _only(task: LogTask, files: Sequence[LogFile]) -> LogTask:
    return replace(task, files=tuple(files), shares=1, share=None)
