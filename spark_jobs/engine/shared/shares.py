"""How the files of a log are dealt out to its shares."""

from __future__ import annotations

from dataclasses import replace

from spark_jobs.engine.log_task import LogTask
from spark_jobs.iceberg.log_files import LogFile

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


def _records(file: LogFile) -> int:
    """Returns about how many records are in a piece."""
    return file.records // file.pieces
