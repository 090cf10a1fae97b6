"""Says how the files of a log are dealt out to its shares.

Where records of two shares are never compared, a share is a task like any other, which knows its own files only
(run_apart). Else spark_jobs.engine.shared.work brings together what has to be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from cleantail.config.platform import Platform
from spark_jobs.engine.log_task import LogTask
from spark_jobs.engine.tasks import run_tasks
from spark_jobs.iceberg.log_files import LogFile
from spark_jobs.iceberg.tables import TopicTable

R = TypeVar("R")
Share = tuple[int, ...]
"""The numbers of the files of one share."""


def shares_of(task: LogTask) -> list[Share]:
    """Returns the shares of a task: its files, largest first, each to the share that has the fewest records so far."""
    numbers: list[list[int]] = [[] for _ in range(task.shares)]
    records = [0] * task.shares
    for number, file in sorted(enumerate(task.files), key=lambda pair: -_records(pair[1])):
        least = records.index(min(records))
        numbers[least].append(number)
        records[least] += _records(file)
    return [tuple(sorted(of_share)) for of_share in numbers if of_share]


def task_of_share(task: LogTask, share: Share) -> LogTask:
    """Returns the task that goes through these files alone."""
    return replace(task, share=share)


def run_apart(
    table: TopicTable,
    platform: Platform,
    work: Callable[[Mapping[str, str], LogTask], R],
    merge: Callable[[Iterable[R]], R],
    tasks: Sequence[LogTask],
    what: str,
) -> list[R]:
    """Runs each share of the tasks on its own, and returns one merged result for each task."""
    shares = [(number, share) for number, task in enumerate(tasks) for share in tasks_of_shares(task)]
    done = run_tasks(table, platform, work, [share for _, share in shares], what)
    by_task: list[list[R]] = [[] for _ in tasks]
    for (number, _), result in zip(shares, done, strict=True):
        by_task[number].append(result)
    return [merge(results) for results in by_task]


def tasks_of_shares(task: LogTask) -> list[LogTask]:
    """Returns one task for each share. It reads its own files; beside them it has those that reach above the clean
    point, where an expiry looks for records that a tombstone still guards their key against."""
    if task.shares == 1:
        return [task]
    end = min(work.end_offset for work in task.works)
    above = [file for file in task.files if file.upper_offset is None or file.upper_offset >= end]
    shares = [{_name(task.files[number]): task.files[number] for number in share} for share in shares_of(task)]
    others = [[file for file in above if _name(file) not in files_of_share] for files_of_share in shares]
    return [
        replace(task, files=(*files_of_share.values(), *rest), share=tuple(range(len(files_of_share))))
        for files_of_share, rest in zip(shares, others, strict=True)
    ]


def _name(file: LogFile) -> tuple[int, int]:
    """Returns what tells a piece of a file from all others of the table."""
    return file.hash, file.piece


def _records(file: LogFile) -> int:
    """Returns about how many records are in a piece."""
    return file.records // file.pieces
