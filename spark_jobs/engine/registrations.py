"""Files that are registered more than once, as by a sink that commits a file again: what readers see too often.

A record is there once for each registration that has not lost it. What the last registration has lost all have, since
deletes are of a file's name and of all that came before them; so a round that leaves one registration with those
deletes keeps every record that anybody sees, once.
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
"""The reason for which a round removes what a further registration of a file shows once more."""


def registered_twice(tasks: Sequence[LogTask], held: Collection[int] = ()) -> list[LogFile]:
    """Return the files of the tasks that a round registers once, each of them once; none that has only logs that are
    `held` back."""
    files = {
        file.hash: file
        for task in tasks
        for file in task.files
        if file.again and (file.log not in held if file.log is not None else _logs(task) - set(held))
    }
    return list(files.values())


def removed_with(files: Collection[LogFile], records: Mapping[int, int]) -> dict[str, Mapping[int, int]]:
    """Return what goes with the further registrations of the files, by reason; nothing if there are none."""
    return {REGISTERED_TWICE: records} if files else {}


def records_again(table: TopicTable, tasks: Sequence[LogTask], held: Collection[int] = ()) -> dict[int, int]:
    """Return partition -> the records that readers see beyond the first time, in files that are registered more than
    once; of logs that are not `held` back."""
    doubled = [_only(task, [file for file in task.files if file.again]) for task in tasks]
    doubled = [task for task in doubled if task.files]
    counts: Counter[int] = Counter()
    for by_log in run_tasks(table, count_again, doubled, "count what is registered twice"):
        counts.update(by_log)
    return {log: count for log, count in counts.items() if log not in held}


def on_branch(tasks: Sequence[LogTask], branch: Mapping[str, FileDeletes]) -> list[LogTask]:
    """Return the tasks with the registrations that the branch has of their files. `branch`: path -> deletes."""
    return [
        _only(task, [replace(f, again=branch[f.path].again) for f in task.files if f.path in branch]) for task in tasks
    ]


def count_again(properties: Mapping[str, str], task: LogTask) -> dict[int, int]:
    """Return partition -> the records of the task's files beyond the first time that readers see them."""
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


def _logs(task: LogTask) -> set[int]:
    return {work.partition for work in task.works}
