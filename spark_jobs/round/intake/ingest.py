"""Append files of kcat -J lines to a topic's table, each exactly once.

A file is identified by the SHA-256 of its content. The commit that appends its records stores the digest as a table
property. So the same content adds no records, and a killed run can be repeated. The property is removed
`cleantail.ingested.retention.ms` later, if the file has left the folder of source.path.

After an error, the run appends nothing. The error has file and line number if possible:

- a line that is not a record, or that names another topic (source.topic)
- a record that differs from another record at its offset, in the table or in the files, because Kafka assigns an offset
  once
- a file that changes during the read, because its digest would identify other records

Tasks read ranges of files, and cannot number the lines of their range. A task only reports that a line is wrong
(SuspectLinesError). Then one task for each file reads the whole file line by line, to find the line's number.

kcat writes the records of a partition in offset order. In this order, each task writes its own files, one for each log,
without a shuffle. It sorts a block of lines by itself. If a block belongs before an earlier one of its log, or two
tasks overlap, UnwritableError is raised, the files are deleted, and Spark sorts the records.
"""

from __future__ import annotations

import logging
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession

from cleantail.config.input_limits import DEFAULT_LIMITS, InputLimits
from cleantail.config.source_paths import matching_files
from cleantail.config.topic import Topic
from cleantail.config.topic_table import PARTITION
from cleantail.config.unholdable import ALL, HELD, UNHELD, Keep
from cleantail.errors import BadLineError, CleantailError
from cleantail.home.home_folder import exclusive
from cleantail.human import counted
from cleantail.lake.evaluate import expiry_clock_ms
from cleantail.log.log_state import late_warnings
from cleantail.log.partition_state import (
    PROPERTY_INGESTED,
    LeftOut,
    PartitionState,
    replay_warnings,
    states_of_properties,
)
from cleantail.rounds.commit_summaries import OPERATION
from cleantail.rounds.past_ingestions import INGEST, SOURCES, SourceFile, Sources
from cleantail.rounds.station_results import FileIngestResult, IngestedFile
from cleantail.sources.digest_cache import DigestCache
from cleantail.sources.kcat import Record, ignored_text, parse_line, read_records, unheld_reason
from cleantail.sources.source_files import FileContent, FileRange, file_state, file_tasks, require_unchanged
from spark_jobs.iceberg.commits import append_files
from spark_jobs.iceberg.file_columns import UnionByKey
from spark_jobs.iceberg.java_calls import texts
from spark_jobs.iceberg.tables import TopicTable, branch_name
from spark_jobs.round.intake.denylist import Denylist, left_out_by
from spark_jobs.round.intake.new_records import (
    NewRecords,
    leave_out,
    record_left_out,
    require_below_position,
    require_one_record_an_offset,
)
from spark_jobs.round.intake.record_batches import (
    arrow_batch,
    chunks,
    plain_batch,
    task_errors,
    task_frame,
    unheld_batch,
)
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
from spark_jobs.round.latest_view import ensure_latest_view
from spark_jobs.round.released_logs import note_before_intake


@dataclass(frozen=True, slots=True)
class LineReading:
    """Options for reading lines, as in cleantail.sources.kcat.parse_line. `ignored`: file -> names of its fields."""

    encoding: str = "text"
    topic: str | None = None
    limits: InputLimits = DEFAULT_LIMITS
    ignored: Accumulator[dict[str, frozenset[str]]] | None = None
    keep: Keep = ALL

    def batch_of(self, records: list[Record]) -> pa.RecordBatch:
        if self.keep != UNHELD:
            return arrow_batch(records)
        with_reasons = ((record, unheld_reason(record)) for record in records)
        return unheld_batch([(record, record.headers, reason) for record, reason in with_reasons if reason])

    @contextmanager
    def names_ignored_in(self, file: Path) -> Iterator[set[str]]:
        """Yield a set for the names of ignored fields of a file, and send it to the driver at the end."""
        names: set[str] = set()
        yield names
        if names and self.ignored is not None:
            self.ignored.add({str(file): frozenset(names)})


class SuspectLinesError(CleantailError):
    """A range has a wrong line."""


def parsed_records(
    spark: SparkSession,
    files: Sequence[Path],
    reading: LineReading = LineReading(),
) -> DataFrame:
    """Return the records of all lines. Several tasks read a large file. One task reads several small files."""
    tasks = line_tasks(spark, files)

    def read(number: int) -> Iterator[pa.RecordBatch]:
        for each in tasks[number]:
            yield from range_batches(each, reading)

    return task_frame(spark, len(tasks), read, reading.keep)


def line_tasks(spark: SparkSession, files: Sequence[Path]) -> tuple[tuple[FileRange, ...], ...]:
    sizes = {file: os.path.getsize(file) if file.exists() else 0 for file in files}
    return file_tasks(sizes, int(spark.sparkContext.defaultParallelism))


def parsed_line_by_line(spark: SparkSession, files: Sequence[Path], reading: LineReading) -> DataFrame:
    """Return the records of whole files. One task reads a file line by line."""

    def read(number: int) -> Iterator[pa.RecordBatch]:
        file = files[number]
        try:
            with reading.names_ignored_in(file) as ignored:
                records = read_records(file, reading.encoding, reading.topic, reading.limits, ignored, reading.keep)
                for chunk in chunks(records):
                    yield reading.batch_of(chunk)
        except BadLineError as e:
            raise BadLineError(e.file, e.line_number, f"{e.reason}; nothing was appended") from None

    return task_frame(spark, len(files), read, reading.keep)


def range_batches(lines: FileRange, reading: LineReading) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range. Raises SuspectLinesError if a line is wrong."""
    encoding, topic, limits = reading.encoding, reading.topic, reading.limits
    blank = 0
    try:
        with FileContent(lines.file, limits) as content, reading.names_ignored_in(lines.file) as ignored:
            for block in content.line_blocks(lines.start, lines.end):
                batch = plain_batch(block, topic, limits) if encoding == "text" else None
                if batch is not None:
                    yield batch
                    continue
                filled = [line for line in BytesIO(block) if line.strip()]
                blank += block.count(b"\n") + (not block.endswith(b"\n")) - len(filled)
                if blank > lines.blank_lines or max(map(len, filled), default=0) > limits.line_bytes:
                    raise ValueError("too many blank lines, or a line that is too long")
                parsed = (parse_line(line, encoding, topic, limits, ignored, reading.keep) for line in filled)
                for chunk in chunks(record for record in parsed if record is not None):
                    yield arrow_batch(chunk)
    except (ValueError, OSError, EOFError, zlib.error, CleantailError):
        raise SuspectLinesError(f"{lines.file} must be read line by line to find a wrong line") from None


LOGS_MAX = 64
"""Maximum number of logs, and so of open files, of a task. Above this number Spark writes, with fewer files."""


def write_files_of_lines(
    table: TopicTable, files: Sequence[Path], reading: LineReading, denylist: Denylist
) -> list[WrittenLog]:
    """Write the files' records into uncommitted data files. Raises SuspectLinesError and UnwritableError."""
    iceberg = table.load()
    target, path = file_target(table, iceberg, denylist), log_path(iceberg)
    work = partial(write_lines, reading, target, path, LOGS_MAX)
    written = run_writers(table, work, line_tasks(table.spark, files), "read lines")
    for one, other in pairwise(sorted(written, key=lambda log: (log.partition, log.low))):
        if one.partition == other.partition and other.low <= one.high:  # files of two tasks overlap
            delete_written(table, written)
            raise UnwritableError(f"records of partition {one.partition} are not in the order of their offsets")
    return written


def write_lines(
    reading: LineReading,
    target: FileTarget,
    path: str,
    logs_max: int,
    properties: Mapping[str, str],
    ranges: Sequence[FileRange],
) -> list[WrittenLog]:
    """Write the records of the ranges, in a Spark task. `path`: from log_path. `properties`: of PyIceberg's FileIO.
    Raises SuspectLinesError and UnwritableError, after deleting its files."""
    writers: dict[int, LogWriter] = {}

    def writer_of(log: int) -> LogWriter:
        if log not in writers:
            writers[log] = LogWriter(properties, target, log, path.format(log))
            if len(writers) > logs_max:
                raise UnwritableError(f"there are more than {counted(logs_max, 'partition')}")
        return writers[log]

    try:
        for batch in (batch for lines in ranges for batch in range_batches(lines, reading)):
            kept, erased = target.kept(batch)  # before the split by log, because one comparison of many keys is cheaper
            for log, counts in erased.items():
                writer_of(log).leave_out({log: counts})
            for log, records in _by_log(kept):
                writer_of(log).add(records)
            if sum(writer.pending_bytes for writer in writers.values()) > target.settings.group_bytes:
                max(writers.values(), key=lambda writer: writer.pending_bytes).flush()
        return [writer.close() for writer in writers.values()]
    except BaseException:
        for writer in writers.values():
            writer.discard()
        raise


def _by_log(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (log, records) in the order of the lines."""
    logs = batch.column(PARTITION).to_numpy()
    order = np.argsort(logs, kind="stable")
    starts = np.flatnonzero(np.diff(logs[order], prepend=-1))
    if len(starts) == 1:
        yield int(logs[0]), batch
        return
    for start, end in pairwise([*starts, len(logs)]):
        # A copy, because a slice would keep the whole batch in memory until its log is written.
        yield int(logs[order[start]]), batch.take(pa.array(order[start:end]))


logger = logging.getLogger("cleantail.ingest")
Progress = Callable[[str], None]


def ingest_files(
    spark: SparkSession,
    topic: Topic,
    files: list[Path],
    encoding: str,
    progress: Progress,
    any_topic: bool = False,
    lock_within_s: float | None = None,
    run_ms: int | None = None,
) -> FileIngestResult:
    """Append the files that are not in the table yet, in one commit.

    `any_topic`: accept lines of any topic. `lock_within_s`: time to wait for another ingestion of the topic; None waits
    for its end. `run_ms`: the run's clock, by which marks of files end; None for the real clock. Raises, with nothing
    appended: BadLineError; ContradictionError if two records at one offset differ; OutsideError if a file changed
    meanwhile or the wait timed out."""
    platform = topic.platform
    if topic.columns is not None:
        raise CleantailError(f"topic {topic.topic} has an adopted table, which its sink fills; nothing was appended")
    progress("reading")
    limits = platform.limits.of_input
    states = {file: file_state(file) for file in files}
    now_ms = int(time.time() * 1000)
    with DigestCache(platform.home, limits) as cache:
        digests = {file: cache.digest(file, now_ms) for file in files}
        present = _present(topic, cache, digests, now_ms)
    mark_ms = expiry_clock_ms(platform, now_ms if run_ms is None else run_ms, now_ms)
    with exclusive(platform.home, f"ingest-{topic.topic}", lock_within_s):
        table = TopicTable.of(spark, topic)
        note_before_intake(table, now_ms)
        properties = texts(table.ensure().properties())
        ingested = {name.removeprefix(PROPERTY_INGESTED) for name in properties}
        fresh = {digest: file for file, digest in digests.items() if digest not in ingested}
        ignored: Accumulator[dict[str, frozenset[str]]] = spark.sparkContext.accumulator({}, UnionByKey())
        reading = LineReading(encoding, None if any_topic else topic.line_topic, limits, ignored)
        read = {file: states[file] for file in fresh.values()}
        record_left_out(table, properties)
        records, warnings = _append(table, fresh, read, reading, progress, present, mark_ms) if fresh else (0, ())
        ensure_latest_view(table)
    rows = tuple(IngestedFile(str(f), digest, fresh.get(digest) != f) for f, digest in digests.items())
    notes = (ignored_text(file, names) for file, names in sorted(ignored.value.items()))
    return FileIngestResult(rows, records, (*warnings, *notes))


def _present(topic: Topic, cache: DigestCache, given: Mapping[Path, str], now_ms: int) -> frozenset[str] | None:
    """Return the digests of the given files and of all that match source.path. None if a folder is not mounted or a
    file is unreadable."""
    matching = matching_files(topic.platform, topic.source.path) if topic.source.path else []
    if topic.source.path and not matching:
        return None
    try:
        return frozenset([*given.values(), *(cache.digest(file, now_ms) for file in matching if file not in given)])
    except CleantailError:
        return None


def _append(
    table: TopicTable,
    fresh: dict[str, Path],
    states: Mapping[Path, str | None],
    reading: LineReading,
    progress: Progress,
    present: frozenset[str] | None,
    mark_ms: int,
) -> tuple[int, tuple[str, ...]]:
    """Write all records outside of `main`, then append them to `main` with the marks of their files. Returns (number of
    records, warnings). Raises OutsideError if a file changed since its state in `states`."""
    branch = branch_name(f"in_{next(iter(fresh))[:16]}_{os.getpid()}")
    try:
        progress("reading and writing records")
        files, denylist = list(fresh.values()), Denylist.of(table)
        records, left_out = _held_records(table, branch, files, reading, denylist)
        left_out = (*left_out, *left_out_by(records.erased, int(time.time() * 1000)))
        with records.deleted_on_error(table):
            progress("comparing with the table")
            shared = require_one_record_an_offset(table, branch, records, files, reading.encoding, reading.limits)
            properties = texts(table.load().properties())
            require_below_position(table, properties, records.ranges)
            marks = {f"{PROPERTY_INGESTED}{digest}": str(mark_ms) for digest in fresh}
            states_of_logs = states_of_properties(properties, table.name)
            ends = {p: states_of_logs.get(p, PartitionState()).log_end_offset for p in sorted(records.ranges)}
            sources = Sources(tuple(SourceFile(digest, file.name) for digest, file in fresh.items()), ends)
            require_unchanged(states)
        progress("committing")
        summary = {OPERATION: INGEST, SOURCES: sources.packed()}
        done = append_files(
            table, records.files, marks, summary, left_out, present, mark_ms, denylist.version, [branch]
        )
    except BaseException:
        table.drop_branches([branch])
        raise
    record_left_out(table, texts(done.properties()))
    late = late_warnings(records.lowest, states_of_logs, table.topic.config)
    replayed = replay_warnings(properties, shared)
    return records.count, (*late, *replayed, *(entry.text for entry in left_out))


def _held_records(
    table: TopicTable, branch: str, files: list[Path], reading: LineReading, denylist: Denylist
) -> tuple[NewRecords, tuple[LeftOut, ...]]:
    """Return the written records of the files, and counts of those left out. Raises BadLineError for a line that is not
    a record, or whose record the table cannot hold under policy `fail`."""
    try:
        return _new_records(table, branch, files, reading, denylist), ()
    except BadLineError:
        if table.topic.config.cleantail_unholdable_policy == "fail":
            raise
        unheld = parsed_line_by_line(table.spark, files, replace(reading, keep=UNHELD, ignored=None))
        with task_errors():
            left_out = leave_out(table, unheld, denylist, int(time.time() * 1000))
        if not left_out:
            raise
        table.drop_branches([branch])
    return _new_records(table, branch, files, replace(reading, keep=HELD), denylist), left_out


def _new_records(
    table: TopicTable, branch: str, files: list[Path], reading: LineReading, denylist: Denylist
) -> NewRecords:
    """Let tasks write data files, or Spark append to the branch. Raises BadLineError for a wrong line."""
    work = (table.spark, files, reading)
    try:
        try:
            return NewRecords.of_tasks(table, write_files_of_lines(table, files, reading, denylist))
        except UnwritableError as e:
            logger.info("Spark sorts and writes the records of %s: %s", table.topic.topic, e)
            return _sorted_by_spark(table, branch, parsed_records(*work), denylist)
    except SuspectLinesError as e:
        logger.info("%s", e)
    return _sorted_by_spark(table, branch, parsed_line_by_line(*work), denylist)


def _sorted_by_spark(table: TopicTable, branch: str, parsed: DataFrame, denylist: Denylist) -> NewRecords:
    frame, behind = denylist.without_erased(parsed)
    with task_errors():
        return NewRecords.by_spark(table, branch, frame, behind, sort=True)
