"""Append files of kcat -J lines to a topic's table, each exactly once.

A file is known by the SHA-256 of its content, which becomes a table property in the commit that appends its
records: the same content again adds nothing, and a run that was killed can be repeated. A line that is not a
record, or that names another topic (source.topic), stops the run with file and line number, and nothing of the run is
appended. So does a record that differs from another one at its offset, in the table or in the files: Kafka gives an
offset once. And so does a file that changes while it is read: its digest would stand for other records.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from cleantail.config.platform import Platform
from cleantail.config.topic import Topic
from cleantail.errors import CleantailError
from cleantail.home.locks import exclusive
from cleantail.log.late_arrivals import late_warnings
from cleantail.log.partition_state import PROPERTY_INGESTED, PartitionState, states_of_properties
from cleantail.rounds.ingest_results import IngestedFile, IngestResult
from cleantail.rounds.ingestions import INGEST, SOURCES, SourceFile, Sources
from cleantail.rounds.size_history import OPERATION
from cleantail.sources.digest_cache import DigestCache
from cleantail.sources.source_files import file_state, require_unchanged
from spark_jobs.iceberg.branches import branch_name
from spark_jobs.iceberg.commits import append_files
from spark_jobs.iceberg.iceberg_reads import added_data_files, partition_of, texts
from spark_jobs.iceberg.tables import TopicTable
from spark_jobs.round.intake.line_files import LineReading, write_files_of_lines
from spark_jobs.round.intake.line_tasks import (
    SuspectLinesError,
    bad_line,
    is_suspect,
    parsed_line_by_line,
    parsed_records,
)
from spark_jobs.round.intake.record_files import UnwritableError, append_written
from spark_jobs.round.intake.staged_records import lowest_offsets, require_below_position, require_one_record_an_offset
from spark_jobs.round.latest_view import ensure_latest_view

logger = logging.getLogger("cleantail.ingest")
Progress = Callable[[str], None]


def ingest_files(
    spark: SparkSession,
    topic: Topic,
    platform: Platform,
    files: list[Path],
    encoding: str,
    progress: Progress,
    any_topic: bool = False,
) -> IngestResult:
    """Appends the files that are not in the table yet, in one commit. Raises BadLineError, ContradictionError where
    a record differs from another one of its offset, and OutsideError where a file changed meanwhile; then nothing is
    appended. `any_topic`: lines may name whatever topic they like."""
    if topic.columns is not None:
        raise CleantailError(f"topic {topic.topic} has an adopted table, which its sink fills: nothing was appended")
    progress("reading")
    limits = platform.limits.of_input
    states = {file: file_state(file) for file in files}
    with DigestCache(platform.home, limits) as cache:
        digests = {file: cache.digest(file, int(time.time() * 1000)) for file in files}
    with exclusive(platform.home, f"ingest-{topic.topic}"):
        table = TopicTable.of(spark, topic, platform)
        is_new = not table.exists()
        table.ensure()
        ingested = {n.removeprefix(PROPERTY_INGESTED) for n in texts(table.load().properties())}
        fresh = {digest: file for file, digest in digests.items() if digest not in ingested}
        try:
            reading = LineReading(encoding, None if any_topic else topic.line_topic, limits)
            read = {file: states[file] for file in fresh.values()}
            records, warnings = _append(table, platform, fresh, read, reading, progress) if fresh else (0, ())
        except CleantailError:
            if is_new:
                table.drop()
            raise
        ensure_latest_view(table)
    rows = tuple(IngestedFile(str(f), digest, fresh.get(digest) != f) for f, digest in digests.items())
    return IngestResult(rows, records, warnings)


def _append(
    table: TopicTable,
    platform: Platform,
    fresh: dict[str, Path],
    states: Mapping[Path, str | None],
    reading: LineReading,
    progress: Progress,
) -> tuple[int, tuple[str, ...]]:
    """Stages all records on a branch, then replays them onto `main` with the marks of their files, unless a file has
    changed since its state in `states`. Returns their number, and what a person should know of them."""
    branch = branch_name(f"in_{next(iter(fresh))[:16]}_{os.getpid()}")
    table.create_branch(branch, None)
    try:
        progress("reading and writing records")
        files = list(fresh.values())
        once = _stage(table, platform, branch, files, reading)
        progress("comparing with what is there")
        require_one_record_an_offset(table, branch, files, reading.encoding, reading.limits, once)
        require_below_position(table, branch)
        progress("committing")
        records, warnings = table.added_records(branch), _warnings(table, branch)
        marks = {f"{PROPERTY_INGESTED}{digest}": "1" for digest in fresh}
        sources = _sources(table, branch, fresh).packed()
        require_unchanged(states)
        append_files(table, branch, marks, {OPERATION: INGEST, SOURCES: sources})
    finally:
        table.drop_branch(branch)
    return records, warnings


def _warnings(table: TopicTable, branch: str) -> tuple[str, ...]:
    states = states_of_properties(texts(table.load().properties()), table.name)
    return late_warnings(lowest_offsets(table, branch), states, table.topic.config)


def _sources(table: TopicTable, branch: str, fresh: dict[str, Path]) -> Sources:
    """Returns what is needed to take the ingestion back."""
    iceberg = table.load()
    states = states_of_properties(texts(iceberg.properties()), table.name)
    logs = sorted({partition_of(file) for file in added_data_files(iceberg, branch)})
    ends = {p: states.get(p, PartitionState()).log_end_offset for p in logs}
    return Sources(tuple(SourceFile(digest, file.name) for digest, file in fresh.items()), ends)


def _stage(table: TopicTable, platform: Platform, branch: str, files: list[Path], reading: LineReading) -> bool:
    """Appends the records of the files to the branch, and returns whether each of their offsets is known to be there
    once. Raises BadLineError for a line that is no record."""
    work = (table.spark, files, reading.encoding, reading.topic, reading.limits)
    try:
        written = write_files_of_lines(table, platform, files, reading)
        append_written(table, branch, written)
        return all(log.once for log in written)
    except UnwritableError as e:
        logger.info("Spark sorts and writes the records of %s: %s", table.topic.topic, e)
        if _append_parsed(table, branch, parsed_records(*work)):
            return False
    except SuspectLinesError as e:
        logger.info("%s", e)
    _append_parsed(table, branch, parsed_line_by_line(*work))
    return False


def _append_parsed(table: TopicTable, branch: str, records: DataFrame) -> bool:
    """Appends records, and returns False where a range of lines has to be looked at line by line. Raises BadLineError
    for a line that is no record."""
    before = table.head_of(branch)
    try:
        table.append_to(branch, records)
    except PythonException as e:
        if is_suspect(e):
            return False
        if (error := bad_line(e)) is None:
            raise
        raise error from None
    if table.head_of(branch) == before:  # without a record Spark makes no commit, and the last one is another's
        append_written(table, branch, ())
    return True
