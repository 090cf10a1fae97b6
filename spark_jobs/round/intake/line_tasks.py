"""Tasks that read lines of kcat from ranges of files into Arrow batches.

A task cannot number the lines of its range, so it only reports that a line is wrong (SuspectLinesError). Then one task
for each file reads the whole file line by line, to find the line's number.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import DataFrame, SparkSession

from cleantail.config.input_limits import DEFAULT_LIMITS, InputLimits
from cleantail.config.unholdable import ALL, UNHELD, Keep
from cleantail.errors import BadLineError, CleantailError
from cleantail.sources.kcat import Record, parse_line, read_records, unheld_reason
from cleantail.sources.source_files import FileContent, FileRange, file_tasks
from spark_jobs.round.intake.record_batches import arrow_batch, chunks, plain_batch, task_frame, unheld_batch


class IgnoredFields(AccumulatorParam[dict[str, frozenset[str]]]):
    """Collects file -> names of ignored fields in the driver. A repeated task changes nothing."""

    def zero(self, value: dict[str, frozenset[str]]) -> dict[str, frozenset[str]]:
        return {}

    def addInPlace(
        self, value1: dict[str, frozenset[str]], value2: dict[str, frozenset[str]]
    ) -> dict[str, frozenset[str]]:
        return value1 | {file: value1.get(file, frozenset()) | names for file, names in value2.items()}


@dataclass(frozen=True, slots=True)
class LineReading:
    """Options for reading lines, as in cleantail.sources.kcat.parse_line. `ignored`: accumulator of IgnoredFields."""

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
