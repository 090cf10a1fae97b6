"""Tasks that read lines of kcat: each has ranges of files, and yields their records as Arrow batches.

A task does not know how many lines are before its range, so it does not say what is wrong with one of them. It says
that there is something (`is_suspect`), and then the files are read whole, each by one task and line by line.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from cleantail.config.input_limits import DEFAULT_LIMITS, InputLimits
from cleantail.config.topic_table import COLUMNS
from cleantail.config.unholdable import ALL, UNHELD, Keep
from cleantail.errors import BadLineError, CleantailError
from cleantail.sources.kcat import Record, parse_line, read_records, unheld_reason
from cleantail.sources.source_files import Content, FileRange, file_tasks
from spark_jobs.round.intake.record_batches import UNHELD_COLUMNS, arrow_batch, chunks, plain_batch, unheld_batch

BAD_LINE = "cleantail.bad-line"
"""Marks the one message that comes back from a worker: file, line and reason follow, separated by this."""
SUSPECT = "cleantail.suspect-lines"
"""Marks what a worker says of a range in which something is wrong."""


class IgnoredFields(AccumulatorParam[dict[str, frozenset[str]]]):
    """Collects in the driver, by file, the names of fields that its tasks have ignored. A task that runs twice adds
    nothing to them."""

    def zero(self, value: dict[str, frozenset[str]]) -> dict[str, frozenset[str]]:
        return {}

    def addInPlace(
        self, value1: dict[str, frozenset[str]], value2: dict[str, frozenset[str]]
    ) -> dict[str, frozenset[str]]:
        return value1 | {file: value1.get(file, frozenset()) | names for file, names in value2.items()}


@dataclass(frozen=True, slots=True)
class LineReading:
    """Says how lines are read, and which records are kept, as cleantail.sources.kcat.parse_line does. `ignored`: of
    IgnoredFields."""

    encoding: str = "text"
    topic: str | None = None
    limits: InputLimits = DEFAULT_LIMITS
    ignored: Accumulator[dict[str, frozenset[str]]] | None = None
    keep: Keep = ALL

    def batch_of(self, records: list[Record]) -> pa.RecordBatch:
        """Returns records of these lines as an Arrow batch."""
        if self.keep != UNHELD:
            return arrow_batch(records)
        with_reasons = ((record, unheld_reason(record)) for record in records)
        return unheld_batch([(record, record.headers, reason) for record, reason in with_reasons if reason])

    @contextmanager
    def names_ignored_in(self, file: Path) -> Iterator[set[str]]:
        """Yields a set that takes the names of ignored fields of a file, and hands them to the driver."""
        names: set[str] = set()
        yield names
        if names and self.ignored is not None:
            self.ignored.add({str(file): frozenset(names)})


class SuspectLinesError(CleantailError):
    """Is raised where something is wrong with a range of lines."""


def parsed_records(
    spark: SparkSession,
    files: Sequence[Path],
    reading: LineReading = LineReading(),
) -> DataFrame:
    """Returns (partition, offset, timestamp, timestamp_type, key, value, headers) of every line; a large file is read
    by several tasks, small ones together by one."""
    tasks = line_tasks(spark, files)

    def read(number: int) -> Iterator[pa.RecordBatch]:
        try:
            for each in tasks[number]:
                yield from range_batches(each, reading)
        except SuspectLinesError:
            raise RuntimeError(SUSPECT) from None

    return _frame(spark, len(tasks), read)


def line_tasks(spark: SparkSession, files: Sequence[Path]) -> tuple[tuple[FileRange, ...], ...]:
    """Returns the ranges of each task that reads these files."""
    sizes = {file: os.path.getsize(file) if file.exists() else 0 for file in files}
    return file_tasks(sizes, int(spark.sparkContext.defaultParallelism))


def parsed_line_by_line(spark: SparkSession, files: Sequence[Path], reading: LineReading) -> DataFrame:
    """Returns the same, of whole files: one task reads one of them, line by line."""

    def read(number: int) -> Iterator[pa.RecordBatch]:
        file = files[number]
        try:
            with reading.names_ignored_in(file) as ignored:
                records = read_records(file, reading.encoding, reading.topic, reading.limits, ignored, reading.keep)
                for chunk in chunks(records):
                    yield reading.batch_of(chunk)
        except BadLineError as e:
            raise RuntimeError(BAD_LINE.join(["", str(e.file), str(e.line_number), e.reason, ""])) from None

    return _frame(spark, len(files), read, UNHELD_COLUMNS if reading.keep == UNHELD else COLUMNS)


def _frame(
    spark: SparkSession,
    tasks: int,
    read: Callable[[int], Iterator[pa.RecordBatch]],
    columns: Mapping[str, str] = COLUMNS,
) -> DataFrame:
    """Returns what the tasks read; each calls `read` with its number."""

    def read_each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read(number)

    schema = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
    return spark.range(0, tasks, 1, tasks).mapInArrow(read_each, schema)


def range_batches(lines: FileRange, reading: LineReading) -> Iterator[pa.RecordBatch]:
    """Yields the records of a range. Raises SuspectLinesError where something is wrong with it."""
    encoding, topic, limits = reading.encoding, reading.topic, reading.limits
    blank = 0
    try:
        with Content(lines.file, limits) as content, reading.names_ignored_in(lines.file) as ignored:
            for block in content.line_blocks(lines.start, lines.end):
                batch = plain_batch(block, topic, limits) if encoding == "text" else None
                if batch is not None:
                    yield batch
                    continue
                filled = [line for line in BytesIO(block) if line.strip()]
                blank += _lines_in(block) - len(filled)
                if blank > lines.blank_lines or max(map(len, filled), default=0) > limits.line_bytes:
                    raise ValueError("more blank lines, or a longer one, than this range can answer for")
                parsed = (parse_line(line, encoding, topic, limits, ignored, reading.keep) for line in filled)
                for chunk in chunks(record for record in parsed if record is not None):
                    yield arrow_batch(chunk)
    except (ValueError, OSError, EOFError, zlib.error, CleantailError):
        raise SuspectLinesError(f"{lines.file} has to be looked at line by line") from None


def _lines_in(block: bytes) -> int:
    return block.count(b"\n") + (not block.endswith(b"\n"))


def is_suspect(error: PythonException) -> bool:
    """Returns whether a task says that something is wrong with its range."""
    return SUSPECT in str(error)


def bad_line(error: PythonException) -> BadLineError | None:
    """Returns what a task says of a line, None where it failed for another reason. Spark wraps it in a message with a
    traceback."""
    parts = str(error).split(BAD_LINE)
    if len(parts) < 5:
        return None
    return BadLineError(parts[1], int(parts[2]), f"{parts[3]}; nothing was appended")
