"""The data files of a snapshot, and the positions that a round deletes from them.

Tasks find the positions (spark_jobs.engine) and send them to the driver as roaring bitmaps, by a 64-bit hash of the
file's name. The driver writes small delete files from them.

Iceberg's scan plans the files, each with its delete files and its metadata. Files of an adopted table are read in the
columns of a topic table (cleantail.log.adopted_table). That module also bounds offsets that no column has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from pyroaring import BitMap64
from pyspark.errors import UnsupportedOperationException
from pyspark.sql import DataFrame

from cleantail.config.config_model import LONG_MAX
from cleantail.config.topic_table import COLUMNS, KEY, OFFSET, PARTITION, TOMBSTONE, VALUE, Columns, quoted
from cleantail.errors import TableError
from cleantail.lake.records.log_records import require_parquet
from cleantail.log.adopted_table import Lineage, expressions, offset_range, spans_of_metrics
from spark_jobs.iceberg.commits import Committed, create_branch
from spark_jobs.iceberg.file_columns import (
    NO_PATH,
    Constants,
    Layout,
    PartitionConstants,
    adopted_layout,
    layout_of,
    null_keys,
    parts_in,
)
from spark_jobs.iceberg.file_facts import FileFacts, facts_of_task
from spark_jobs.iceberg.iceberg_reads import BranchChange, KeptFile, identity, require_own_deletes
from spark_jobs.iceberg.java_calls import each, static
from spark_jobs.iceberg.log_files import Deletes, FileDeletes, LogFile, file_hash, read_deletes_in_driver, write_deletes

FEW_RECORDS = 100_000
"""Maximum number of records that count as few, including deleted records, because a read of hidden records reads them
too."""
TASK_BYTES, LEAST_FILE_BYTES = 128 << 20, 4 << 20
"""Iceberg gives a task files of 128 MiB. It counts each file as at least 4 MiB, because opening a file takes time
(`read.split.target-size` and `read.split.open-file-cost`). Records of more files are not few."""
FileSize = tuple[int, int]
"""Records and bytes of a data file."""


def are_few(sizes: Iterable[FileSize]) -> bool:
    """Return whether one task of Spark reads the records of these files faster than several tasks."""
    known = list(sizes)
    size_bytes = sum(max(size, LEAST_FILE_BYTES) for _, size in known)
    return size_bytes <= TASK_BYTES and sum(records for records, _ in known) <= FEW_RECORDS


UNKNOWN_TYPE = "Type: unknown"
"""In Iceberg's error about a partition field whose source column was dropped."""
REPARTITION = (
    "Rewrite them with the present columns: CALL system.rewrite_data_files(table => …, options => "
    "map('rewrite-all', 'true'))"
)


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A data file of a snapshot and its delete files: Iceberg's own object (`task`), and its metadata.

    Iceberg writes the metadata as JSON in one call. Reading each number would take thirty calls. The JSON lacks
    `sequence_numbers`: of the data, and of the file.
    """

    task: Any
    facts: FileFacts
    delete_files: Deletes
    sequence_numbers: tuple[Any, Any]

    @property
    def path(self) -> str:
        return self.facts.path

    @property
    def arrived(self) -> int:
        return int(self.sequence_numbers[0])

    @property
    def updated(self) -> int:
        """Return the file sequence number. Records inherit it as the number of their last change."""
        return int(self.sequence_numbers[1])

    @property
    def size(self) -> FileSize:
        return self.facts.records, self.facts.size_bytes


def planned_files(table: Any, jvm: Any, snapshot_id: int) -> list[PlannedFile]:
    """Return the snapshot's data files. Raises TableError if a file is partitioned by a dropped column."""
    to_json = static(jvm, "org.apache.iceberg.ScanTaskParser", "toJson")
    tasks = table.newScan().useSnapshot(snapshot_id).includeColumnStats().planFiles()
    try:
        planned = []
        for task in each(tasks):
            file, (facts, deletes) = task.file(), facts_of_task(to_json(task))
            planned.append(PlannedFile(task, facts, deletes, (file.dataSequenceNumber(), file.fileSequenceNumber())))
        return planned
    except UnsupportedOperationException as e:
        if UNKNOWN_TYPE not in str(e):
            raise
        raise TableError(f"{table.name()} has files that are partitioned by a dropped column. {REPARTITION}") from None
    finally:
        tasks.close()


def by_path(files: Iterable[PlannedFile]) -> dict[str, list[PlannedFile]]:
    """Return path -> its registrations: one, unless a sink has registered the file again."""
    registrations: dict[str, list[PlannedFile]] = {}
    for file in files:
        registrations.setdefault(file.path, []).append(file)
    return registrations


METADATA = ("_file", "_pos", "_row_id")
"""Iceberg's hidden columns that rounds use. A projection drops them unless it names them."""
POSITION_AS_ROW_ID = "concat(`_file`, '#', lpad(cast(`_pos` AS string), 19, '0')) AS `_row_id`"
"""Records of format version 2, and older records of an upgraded table, have no row ids. Their place identifies them
too, because base and branch have the same data files."""


def as_topic_table(stored: DataFrame, columns: Columns, *more: str) -> DataFrame:
    """Return the columns of a topic table and the hidden columns, with `more` columns of Iceberg's."""
    return stored.selectExpr(*topic_columns(stored, columns), *METADATA[:2], *more, POSITION_AS_ROW_ID)


def topic_columns(stored: DataFrame, columns: Columns) -> list[str]:
    """Return the columns of a topic table as a select list, without hidden columns."""
    paths = list(dict.fromkeys(columns.paths.values()))
    kinds = [field.dataType.simpleString() for field in stored.select(*map(quoted, paths)).schema]
    sql_of_columns = expressions(columns, dict(zip(paths, kinds, strict=True)))
    return [f"{sql} AS `{name}`" for name, sql in sql_of_columns.items()]


def lineage_of(registrations: Sequence[PlannedFile], with_updates: bool) -> Lineage:
    """Return the lineage that a file's records inherit from its first registration. `with_updates`: also the sequence
    number, which takes a JVM call for each registration."""
    row_ids = [f.facts.first_row_id for f in registrations if f.facts.first_row_id is not None]
    updated = min(f.updated for f in registrations) if with_updates else 0
    return Lineage(min(row_ids, default=None), updated)


def made_bounds(file: PlannedFile, lineage: Lineage) -> tuple[int | None, int | None]:
    """Return the bounds of the offsets that row lineage gives. None if the metadata do not show whether the file has
    lineage columns of its own. Raises TableError if there are no row ids."""
    spans = spans_of_metrics(file.facts.null_value_counts, *file.facts.bounds())
    return (None, None) if spans is None else offset_range(file.facts.records, lineage, file.path, spans)


BYTE_BUFFERS = "org.apache.iceberg.util.ByteBuffers"
"""Full name of the class, for a lookup in one step. A lookup through its packages would search every jar for each."""
RemovedPositions = Mapping[tuple[int, int], BitMap64]
"""Positions of records by log and hash of the file's name."""


class SnapshotFiles:
    """The data files of a snapshot, by the hash of their names. Raises TableError if two have the same hash.

    `columns` is the mapping of an adopted table, whose files may have several logs. If a file is registered more than
    once, the last registration represents it, because its deletes apply to all registrations.
    """

    def __init__(self, jvm: Any, table: Any, snapshot_id: int, columns: Columns | None = None) -> None:
        self._jvm, self._table, self.columns = jvm, table, columns
        self.snapshot_id = snapshot_id
        self._files: dict[int, PlannedFile] = {}
        self._again: dict[int, tuple[PlannedFile, ...]] = {}
        for path, same in by_path(planned_files(table, jvm, snapshot_id)).items():
            key = file_hash(path)
            if key in self._files:
                raise TableError(f"two data files of {table.name()} have names with the same hash: run reclaim")
            *earlier, self._files[key] = sorted(same, key=lambda f: f.arrived) if len(same) > 1 else same
            if earlier:
                self._again[key] = tuple(earlier)

    @cached_property
    def layout(self) -> Layout:
        if self.columns is not None:
            return adopted_layout(self._table, self.columns)
        return layout_of(self._table, {name: name for name in (*COLUMNS, TOMBSTONE)})

    @cached_property
    def _partitions(self) -> PartitionConstants:
        """Return partition values of columns that files may lack. Files of Cleantail's own tables lack no column."""
        own = self.columns is None
        return PartitionConstants(self._table, () if own else (i for path in self.layout.values() for i in path.ids))

    def log_files(self, logs: Collection[int]) -> list[LogFile]:
        """Return the files that can have records of the logs. Raises TableError for a file that is not Parquet."""
        ids = {column: path.ids[-1] for column, path in self.layout.items()}
        files = [self._log_file(key, file, ids) for key, file in self._files.items()]
        return [file for file in files if file.log is None or file.log in logs]

    def planned(self, path: str) -> PlannedFile | None:
        """Return the last registration of a file; None if the snapshot does not have it."""
        file = self._files.get(file_hash(path))
        return file if file is not None and file.path == path else None

    @property
    def paths(self) -> set[str]:
        files = [*self._files.values(), *(file for again in self._again.values() for file in again)]
        return {path for file in files for path in (file.path, *(d.path for d in file.delete_files))}

    @property
    def iceberg(self) -> Any:
        return self._table

    def sizes_of(self, logs: Collection[int]) -> list[FileSize]:
        """Return the sizes of the files that can have records of the logs. In an adopted table all files can."""
        return [f.size for f in self._files.values() if self.columns is not None or self._own_log(f.facts) in logs]

    def deletes_by_path(self) -> dict[str, FileDeletes]:
        """Return path -> the deletes of that file, without other facts, which would take JVM calls for each file."""
        return {
            file.path: FileDeletes(file.delete_files, self._deletes_again(key)) for key, file in self._files.items()
        }

    def _deletes_again(self, key: int) -> tuple[Deletes, ...]:
        return tuple(file.delete_files for file in self._again.get(key, ()))

    def _log_file(self, file_hash: int, file: PlannedFile, ids: Mapping[str, int]) -> LogFile:
        facts = file.facts
        require_parquet(file.path, facts.file_format)
        constants = self._partitions.of(facts)
        nulls = _null_counts(facts, constants, self.layout)
        again = self._again.get(file_hash, ())
        lineage = lineage_of((file, *again), with_updates=OFFSET not in ids)
        if OFFSET in ids:
            low, high = map(_as_long, facts.bounds_of(ids[OFFSET]))
        else:
            low, high = made_bounds(file, lineage)
        low_key, high_key = facts.bounds_of(ids[KEY]) if self._keys_are_bytes else (None, None)
        return LogFile(
            hash=file_hash,
            path=file.path,
            records=facts.records,
            log=self._log_of(facts, ids, dict(constants)),
            lower_offset=low,
            upper_offset=high,
            low_key=low_key,
            high_key=high_key,
            null_keys=null_keys(ids, lambda name: nulls.get(ids[name])),
            null_values=None if self._has_marks else nulls.get(ids[VALUE]) if VALUE in ids else 0,
            marked=self._has_marks or (TOMBSTONE in ids and nulls.get(ids[TOMBSTONE]) == 0),
            before=file.delete_files,
            arrived=min(f.arrived for f in (file, *again)),
            first_row_id=lineage.first_row_id,
            updated=lineage.updated,
            again=self._deletes_again(file_hash),
            key_bytes=sum(facts.column_sizes.get(ids[n], 0) for n in parts_in(ids, KEY) or (KEY,)),
            row_groups=facts.row_groups,
            constants=constants,
            spec_id=facts.spec_id,
        )

    def _log_of(self, facts: FileFacts, ids: Mapping[str, int], constants: Mapping[int, Any]) -> int | None:
        """Return the log of all records of a file, or None if a file of an adopted table may have several."""
        if self.columns is None:
            return self._own_log(facts)
        if self.columns.partition is None:
            return 0
        low, high = map(_as_long, facts.bounds_of(ids[PARTITION]))
        by_partition = constants.get(ids[PARTITION])
        if low is None and high is None and by_partition is not None:
            return int(by_partition)
        without_log = facts.null_value_counts.get(ids[PARTITION])
        agrees = by_partition is None or by_partition == low
        return low if low is not None and low == high and agrees and not without_log else None

    def _own_log(self, facts: FileFacts) -> int:
        """Return the log of a file in a topic's own table: its one partition value."""
        [number] = facts.partition_values
        return int(cast(int, number))

    @cached_property
    def _keys_are_bytes(self) -> bool:
        """Return whether a key's bounds are bytes of the key itself."""
        more = () if self.columns is None else self.columns.of(KEY)[1:]
        return not more and self.layout.get(KEY, NO_PATH).kind in ("binary", "string")

    @cached_property
    def _has_marks(self) -> bool:
        """Return whether a column marks the records that delete their key."""
        return self.columns is not None and self.columns.deleted is not None

    def bytes_by_log(self, positions_by_reason: Iterable[RemovedPositions]) -> dict[int, int]:
        """Estimate the bytes of the positions by log: a share of a file's records is the same share of its bytes
        (semantics.md 3.1)."""
        sizes: dict[int, int] = {}
        for (log, key), positions in (
            (name, bitmap) for of_reason in positions_by_reason for name, bitmap in of_reason.items()
        ):
            records, size = self._files[key].size
            sizes[log] = sizes.get(log, 0) + size * len(positions) // max(records, 1)
        return sizes

    def delete_positions(
        self,
        table: Committed,
        branch: str,
        positions: RemovedPositions,
        once: Iterable[LogFile] = (),
        summary: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Create the branch at this snapshot of the table, and delete the positions there, in one commit at most.

        The commit also leaves one registration of each file in `once`, and sets the table's `properties`. A `summary`
        is committed even if nothing else changes. Raises ConflictError, and leaves no branch, if a change of the table
        makes the result void.
        """
        change = self.write(positions, once)
        if not (change.added or change.kept or summary or properties):
            create_branch(table, branch, self.snapshot_id)
            return
        table.stage_deletes(branch, self.snapshot_id, change, summary or {}, properties or {})

    def write(self, removed: RemovedPositions, once: Iterable[LogFile] = ()) -> BranchChange:
        """Write delete files of the positions and of earlier deletes. Returns them, the delete files that they replace,
        and the data files registered `once` from now on. Raises ConflictError if one cannot be replaced."""
        lost, replaced, by_file = [], [], _by_file(removed)
        kept = {file.hash: KeptFile(self._files[file.hash].task.file(), file.arrived) for file in once}
        changed = sorted({*by_file, *kept})
        deletes = self._deletes(changed, kept)
        require_own_deletes(self._jvm, ((self._files[key].path, some) for key, some in deletes.items()))
        for key in changed:
            file = self._files[key]
            before = [read_deletes_in_driver(self._table, old, file.path) for old in file.delete_files]
            if positions := BitMap64.union(by_file.get(key, BitMap64()), *before):
                lost.append((file.facts, positions))
            replaced += deletes[key]
        added = write_deletes(self._jvm, self._table, lost) if lost else []
        return BranchChange(tuple(added), tuple(replaced), 0, tuple(kept.values()))

    def _deletes(self, keys: Iterable[int], whole: Collection[int]) -> dict[int, list[Any]]:
        """Return the delete files of the last registration of each file. For files in `whole`, of all registrations."""
        by_key: dict[int, dict[tuple[str, int], Any]] = {key: {} for key in keys}
        registrations = [(key, f) for key in by_key for f in (self._files[key], *self._again.get(key, ()))]
        last = [(key, f) for key, f in registrations if key in whole or f is self._files[key]]
        for key, file in last:
            for delete in each(file.task.deletes()) if file.delete_files else ():
                by_key[key][identity(delete)] = delete
        return {key: list(some.values()) for key, some in by_key.items()}


def _null_counts(facts: FileFacts, constants: Constants, layout: Layout) -> dict[int, int]:
    """Return field id -> number of nulls, from the metadata. For a column that a file may lack, from the partition."""
    counts = {path.leaf.id: path.null_count(facts.null_value_counts) for path in layout.values()}
    by_partition = {number: facts.records if value is None else 0 for number, value in constants}
    return by_partition | {number: count for number, count in counts.items() if count is not None}


def offset_bounds(jvm: Any, schema: Any, file: Any) -> tuple[int, int]:
    """Return the lowest and the highest offset that a file of a topic's own table can have, by its metadata."""
    field = int(schema.findField(OFFSET).fieldId())
    low, high = (whole_bound(jvm, bounds, field) for bounds in (file.lowerBounds(), file.upperBounds()))
    return 0 if low is None else low, LONG_MAX - 1 if high is None else high


def whole_bound(jvm: Any, bounds: Any, field_id: int) -> int | None:
    """Return a column's bound as a whole number, or None if the metadata lack it."""
    bound = None if bounds is None else bounds.get(field_id)
    return None if bound is None else _as_long(bytes(getattr(jvm, BYTE_BUFFERS).toByteArray(bound)))


def _as_long(bound: bytes | None) -> int | None:
    """Return a bound as a number. Iceberg's single-value serialization of a long is 8 bytes, little-endian."""
    return None if bound is None else int.from_bytes(bound, "little", signed=True)


def _by_file(removed: RemovedPositions) -> dict[int, BitMap64]:
    """Return the positions of each file. A file of an adopted table may have several logs, but has one delete file."""
    whole: dict[int, BitMap64] = {}
    for (_, file), positions in removed.items():
        whole[file] = whole[file] | positions if file in whole else positions
    return whole


def count_by_log(removed: RemovedPositions) -> dict[int, int]:
    counts: dict[int, int] = {}
    for (log, _), positions in removed.items():
        counts[log] = counts.get(log, 0) + len(positions)
    return counts


def union_of(removed: Iterable[RemovedPositions]) -> RemovedPositions:
    whole: dict[tuple[int, int], BitMap64] = {}
    for some in removed:
        for key, positions in some.items():
            whole[key] = whole.get(key, BitMap64()) | positions
    return whole
