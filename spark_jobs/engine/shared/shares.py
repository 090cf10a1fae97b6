"""How the files of a log are dealt out to its shares.

Where records of two shares are never compared, a share is a task like any other, which knows its own files only
(run_apart). Else spark_jobs.engine.shared.work brings together what has to be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
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
    by_task = groupby(zip(shares, done, strict=True), key=lambda pair: pair[0][0])
    return [merge([result for _, result in of_task]) for _, of_task in by_task]


def tasks_of_shares(task: LogTask) -> list[LogTask]:
    """Returns one task for each share. It reads its own files, and knows those that reach above the clean point."""
    if task.shares == 1:
        return [task]
    end = min(work.end_offset for work in task.works)
    above = [file for file in task.files if file.upper_offset is None or file.upper_offset >= end]
    shares = [[task.files[number] for number in share] for share in shares_of(task)]
    return [
        replace(task, files=(*own, *(f for f in above if f not in own)), share=tuple(range(len(own)))) for own in shares
    ]


def _records(file: LogFile) -> int:
    """Returns about how many records are in a piece."""
    return file.records // file.pieces
