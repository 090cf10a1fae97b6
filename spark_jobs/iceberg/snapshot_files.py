"""The data files of a snapshot, and the positions that a round deletes from them.

Positions come from Spark as bits, and the driver writes small delete files of them.

Iceberg's own DELETE would carry every file name through the plan and shuffle by it; here a file is a 64-bit hash of
its name, and 64 records are one long.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cleantail.config.columns import Columns
from cleantail.config.settings.config_model import LONG_MAX
from cleantail.config.topic_table import KEY, OFFSET, PARTITION
from cleantail.errors import TableError
from spark_jobs.iceberg.delete_files import deletion_vector_of, read_deletes, write_deletes
from spark_jobs.iceberg.deletion_vectors import file_hash, positions_by_file, positions_by_log
from spark_jobs.iceberg.iceberg_reads import each, files_with_deletes, partition_of, require_own_deletes
from spark_jobs.iceberg.log_files import KeyColumns, LogFile

FILE = "ct_file"
POS = "_pos"
WORD = "ct_word"
BYTE_BUFFERS = "org.apache.iceberg.util.ByteBuffers"
"""By its whole name a class is found at once; name by name the JVM looks for each package in every jar first."""
RemovedPositions = Mapping[tuple[int, int], BitMap64]
"""Positions of records by log and hash of the file's name."""


def with_position(records: DataFrame, *columns: str) -> DataFrame:
    """Returns the columns, and where each record lies: (…, ct_file: hash of the file's name, _pos: its position in the
    file)."""
    return records.select(*columns, F.xxhash64("_file").alias(FILE), POS)


def word() -> Column:
    return F.shiftright("_pos", 6).alias(WORD)


def bit() -> Column:
    """Returns the record's bit in its word."""
    return F.expr("shiftleft(1L, cast(_pos & 63 AS int))")


class SnapshotFiles:
    """The data files of a snapshot, by the hash of their names. Raises TableError should two have the same.

    `columns` is the mapping of an adopted table, a file of which may hold several logs.
    """

    def __init__(self, jvm: Any, table: Any, snapshot_id: int, columns: Columns | None = None) -> None:
        self._jvm, self._table, self.columns = jvm, table, columns
        self.snapshot_id = snapshot_id
        files = files_with_deletes(table, snapshot_id)
        self._files = {file_hash(str(file.location())): (file, deletes) for file, deletes in files}
        if len(self._files) < len(files):
            raise TableError(f"two data files of {table.name()} have names with the same hash: run reclaim")

    def positions_in(self, records: DataFrame) -> RemovedPositions:
        """Runs the plan, and returns the positions of its records. `records`: with partition, ct_file and _pos."""
        if self.columns is not None:
            return positions_by_log(*_position_bits(records, PARTITION, FILE))
        by_file = positions_by_file(*_position_bits(records, FILE))
        return {(partition_of(self._files[file][0]), file): positions for file, positions in by_file.items()}

    def may_have_null(self, column: str, logs: Collection[int]) -> bool:
        """Returns whether a record of the logs can be without the column, by the files' metadata; true where that is
        silent."""
        path = column if self.columns is None else self.columns.paths.get(column)
        field = None if path is None else self._table.schema().findField(path)
        return field is None or any(_nulls(file, field.fieldId()) != 0 for file in self._holding(logs))

    def record_count(self, logs: Collection[int]) -> int:
        """Counts the records in the files of the logs, deleted ones included."""
        return sum(int(file.recordCount()) for file in self._holding(logs))

    def _holding(self, logs: Collection[int]) -> list[Any]:
        """Returns the files that can have records of the logs: of an adopted table all of them."""
        files = [file for file, _ in self._files.values()]
        return files if self.columns is not None else [file for file in files if partition_of(file) in logs]

    def all_parquet(self) -> bool:
        return all(str(file.format()) == "PARQUET" for file, _ in self._files.values())

    def key_columns(self) -> KeyColumns:
        schema = self._table.schema()
        return KeyColumns(schema.findField(OFFSET).fieldId(), schema.findField(KEY).fieldId())

    def of_logs(self, logs: Collection[int]) -> dict[int, list[LogFile]]:
        """Returns the files of the logs, for tasks that read them by themselves."""
        columns, by_log = self.key_columns(), dict[int, list[LogFile]]()
        for key, (file, deletes) in self._files.items():
            log = partition_of(file)
            if log in logs:
                by_log.setdefault(log, []).append(self._log_file(key, file, deletes, columns))
        return by_log

    def _log_file(self, file_hash: int, file: Any, deletes: Sequence[Any], columns: KeyColumns) -> LogFile:
        lowest, highest = file.lowerBounds(), file.upperBounds()
        return LogFile(
            hash=file_hash,
            path=str(file.location()),
            records=int(file.recordCount()),
            lower_offset=_as_long(self._bound(lowest, columns.offset)),
            upper_offset=_as_long(self._bound(highest, columns.offset)),
            low_key=self._bound(lowest, columns.key),
            high_key=self._bound(highest, columns.key),
            null_keys=_nulls(file, columns.key),
            before=deletion_vector_of(deletes[0]) if deletes else None,
        )

    def _bound(self, bounds: Any, field: int) -> bytes | None:
        return _bytes_of(self._jvm, None if bounds is None else bounds.get(field))

    def share_with_keys(self, low: bytes, high: bytes) -> float:
        """Returns which share of the bytes of all files is in those that can hold a key in [low, high], by their
        bounds."""
        expressions, wrap = self._jvm.org.apache.iceberg.expressions.Expressions, self._jvm.java.nio.ByteBuffer.wrap
        scan = self._table.newScan().useSnapshot(self.snapshot_id)
        scan = scan.filter(expressions.greaterThanOrEqual(KEY, wrap(low)))
        tasks = scan.filter(expressions.lessThanOrEqual(KEY, wrap(high))).planFiles()
        inside = sum(int(task.file().fileSizeInBytes()) for task in each(tasks))
        tasks.close()
        return inside / max(sum(int(file.fileSizeInBytes()) for file, _ in self._files.values()), 1)

    def bytes_by_log(self, positions_by_reason: Iterable[RemovedPositions]) -> dict[int, int]:
        """Returns how many bytes of each log the positions take: of a file's bytes their share of its records (3.1)."""
        sizes: dict[int, int] = {}
        for (log, key), positions in (
            (name, bitmap) for of_reason in positions_by_reason for name, bitmap in of_reason.items()
        ):
            file = self._files[key][0]
            share = int(file.fileSizeInBytes()) * len(positions) // max(int(file.recordCount()), 1)
            sizes[log] = sizes.get(log, 0) + share
        return sizes

    def write(self, removed: RemovedPositions) -> tuple[list[Any], list[Any]]:
        """Writes delete files of the positions and of what was deleted before. Returns those to add, and those that
        they replace. Raises ConflictError where one cannot be replaced."""
        lost, replaced = [], []
        for key, positions in sorted(_by_file(removed).items()):
            file, deletes = self._files[key]
            require_own_deletes(self._jvm, file, deletes)
            before = [read_deletes(self._table, old, file) for old in deletes]
            lost.append((file, BitMap64.union(positions, *before)))
            replaced += deletes
        return (write_deletes(self._jvm, self._table, lost) if lost else []), replaced


def _position_bits(records: DataFrame, *by: str) -> Iterator[Any]:
    """Runs the plan, and returns the columns `by`, word and bits as arrays."""
    bits = records.groupBy(*by, word()).agg(F.bit_or(bit()).alias("bits")).toArrow()
    return (bits.column(name).to_numpy() for name in (*by, WORD, "bits"))


def _nulls(file: Any, field: int) -> int | None:
    """Returns how many nulls the file has in a column; None where its writer did not say."""
    counts = file.nullValueCounts()
    count = None if counts is None else counts.get(field)
    return None if count is None else int(count)


def offset_bounds(jvm: Any, schema: Any, file: Any) -> tuple[int, int]:
    """Returns the lowest and the highest offset that a topic table's own file can have, by its metadata."""
    field, ends = int(schema.findField(OFFSET).fieldId()), (0, LONG_MAX - 1)
    sides = (file.lowerBounds(), file.upperBounds())
    bounds = [_as_long(_bytes_of(jvm, None if side is None else side.get(field))) for side in sides]
    low, high = (end if bound is None else bound for bound, end in zip(bounds, ends, strict=True))
    return low, high


def _bytes_of(jvm: Any, bound: Any) -> bytes | None:
    return None if bound is None else bytes(getattr(jvm, BYTE_BUFFERS).toByteArray(bound))


def _as_long(bound: bytes | None) -> int | None:
    """Returns the number of a bound in Iceberg's single-value serialization: a long is 8 bytes, the lowest first."""
    return None if bound is None else int.from_bytes(bound, "little", signed=True)


def _by_file(removed: RemovedPositions) -> dict[int, BitMap64]:
    """Returns the positions of each file, of all its logs together: an adopted table's file may hold several, and has
    one delete file."""
    whole: dict[int, BitMap64] = {}
    for (_, file), positions in removed.items():
        whole[file] = whole[file] | positions if file in whole else positions
    return whole


def count_by_log(removed: RemovedPositions) -> dict[int, int]:
    """Counts the records of each log among the positions."""
    counts: dict[int, int] = {}
    for (log, _), positions in removed.items():
        counts[log] = counts.get(log, 0) + len(positions)
    return counts


def without(removed: RemovedPositions, others: Iterable[RemovedPositions]) -> RemovedPositions:
    """Returns the positions that are in none of the others."""
    left = {key: positions.copy() for key, positions in removed.items()}
    for other in others:
        for key in left.keys() & other.keys():
            left[key] -= other[key]
    return {key: positions for key, positions in left.items() if positions}


def union_of(removed: Iterable[RemovedPositions]) -> RemovedPositions:
    """Returns the positions that are in any."""
    whole: dict[tuple[int, int], BitMap64] = {}
    for some in removed:
        for key, positions in some.items():
            whole[key] = whole.get(key, BitMap64()) | positions
    return whole
