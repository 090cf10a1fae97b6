"""Lines of kcat, written into the table's files by the tasks that read them.

kcat writes the records of a partition in their order. As long as they come so, each task writes its own files, a log
to a file, and nothing is shuffled or sorted. Where records go back in their log, or the parts of two tasks overlap,
UnwritableError says so, no file is left, and Spark sorts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from cleantail.config.platform import Platform
from cleantail.config.topic_table import PARTITION
from cleantail.human import counted
from cleantail.sources.source_files import FileRange
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.intake.line_tasks import LineReading, line_tasks, range_batches
from spark_jobs.round.intake.record_files import (
    FileTarget,
    LogWriter,
    UnwritableError,
    WrittenLog,
    delete_written,
    file_target,
    log_path,
    run_writers,
)

LOGS_MAX = 64
"""A task has a file open for each log that it meets: of more of them Spark makes fewer files."""


def write_files_of_lines(
    table: TopicTable, platform: Platform, files: Sequence[Path], reading: LineReading
) -> list[WrittenLog]:
    """Writes the records of the files into data files that no snapshot knows yet. Raises SuspectLinesError and
    UnwritableError; no file is left then."""
    target, path = file_target(table, platform), log_path(table)
    work = partial(write_lines, reading, target, path, LOGS_MAX)
    written = run_writers(table, platform, work, line_tasks(table.spark, files), "read lines")
    try:
        _require_apart(written)
    except UnwritableError:
        delete_written(table, written)
        raise
    return written


def _require_apart(written: Sequence[WrittenLog]) -> None:
    """Raises UnwritableError where two tasks have written the same part of a log."""
    for one, other in pairwise(sorted(written, key=lambda log: (log.partition, log.low))):
        if one.partition == other.partition and other.low <= one.high:
            raise UnwritableError(f"records of partition {one.partition} are not in the order of their offsets")


def write_lines(
    reading: LineReading,
    target: FileTarget,
    path: str,
    logs_max: int,
    properties: Mapping[str, str],
    ranges: Sequence[FileRange],
) -> list[WrittenLog]:
    """Writes the records of the ranges: a task of Spark. `path`: as log_path has it; `properties`: of PyIceberg's
    FileIO. Raises SuspectLinesError and UnwritableError, and no file is left then."""
    writers: dict[int, LogWriter] = {}
    try:
        for log, records in _by_log(ranges, reading):
            if log not in writers:
                writers[log] = LogWriter(properties, target, log, path.format(log))
                if len(writers) > logs_max:
                    raise UnwritableError(f"there are more than {counted(logs_max, 'partition')}")
            writers[log].add(records)
            if sum(writer.pending_bytes for writer in writers.values()) > target.settings.group_bytes:
                max(writers.values(), key=lambda writer: writer.pending_bytes).flush()
        return [writer.close() for writer in writers.values()]
    except BaseException:
        for writer in writers.values():
            writer.discard()
        raise


def _by_log(ranges: Sequence[FileRange], reading: LineReading) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields the records of each log, in the order of the lines."""
    for lines in ranges:
        for batch in range_batches(lines, reading):
            logs = batch.column(PARTITION).to_numpy()
            order = np.argsort(logs, kind="stable")
            starts = np.flatnonzero(np.diff(logs[order], prepend=-1))
            if len(starts) == 1:
                yield int(logs[0]), batch
                continue
            for start, end in zip(starts, [*starts[1:], len(logs)], strict=True):
                # a copy: a part of the batch would keep all of it in memory for as long as its log is not written
                yield int(logs[order[start]]), batch.take(pa.array(order[start:end]))
