"""Records of a topic's table as Arrow, in the columns of a topic table, whatever the table's own columns are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cleantail.config.columns import Columns
from cleantail.config.topic_table import (
    COLUMNS,
    KEY,
    OFFSET,
    ORDER,
    PARTITION,
    TOMBSTONE,
    VALUE,
)
from cleantail.lake.columns_property import columns_of_properties
from cleantail.lake.records.lineage_records import records_with_offsets
from cleantail.lake.records.row_lineage import lineages_of
from cleantail.lake.records.topic_columns import MADE_OFFSET, as_topic_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import DataScan, Table


def log_records(
    table: Table,
    partition: int,
    snapshot_id: int | None = None,
    *,
    from_offset: int = 0,
    keyed: bool = False,
    arrivals: Mapping[str, int] | None = None,
) -> pa.Table:
    """Returns live records of one log at a snapshot: from an offset on, or only those with a key. They are in no order,
    or, with `arrivals` (data file -> data sequence number), file after file in the order in which they came.

    Of an adopted table all columns of the mapping are read and then chosen from, where they are fields of structs: no
    filter reaches the files.
    """
    from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, NotNull

    columns = columns_of_properties(table.properties)
    if columns is not None:
        return _chosen(adopted_records(table, columns, snapshot_id, partition, arrivals), partition, from_offset, keyed)
    condition: BooleanExpression = And(EqualTo(PARTITION, partition), GreaterThanOrEqual(OFFSET, from_offset))
    condition = And(condition, NotNull(KEY)) if keyed else condition
    return _scanned(table.scan(row_filter=condition, snapshot_id=snapshot_id), arrivals)


def records_at(table: Table, partition: int, offsets: Sequence[int], snapshot_id: int) -> pa.Table:
    """Returns live records of one log at a snapshot, of a few offsets. Of an adopted table whose offset is a field of a
    struct the whole log is read: no filter reaches its files."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyiceberg.expressions import And, EqualTo, In

    columns = columns_of_properties(table.properties)
    if columns is None:
        condition = And(EqualTo(PARTITION, partition), In(OFFSET, list(offsets)))
        return _scanned(table.scan(row_filter=condition, snapshot_id=snapshot_id), None)
    records = _chosen(adopted_records(table, columns, snapshot_id, partition), partition, min(offsets), False)
    return records.filter(pc.is_in(records[OFFSET], pa.array(offsets, pa.int64())))


def adopted_records(
    table: Table, columns: Columns, snapshot_id: int | None, partition: int, arrivals: Mapping[str, int] | None = None
) -> pa.Table:
    """Returns live records of an adopted table, at least those of a log."""
    from pyiceberg.expressions import AlwaysTrue, EqualTo

    plain = columns.partition if columns.partition is not None and "." not in columns.partition else None
    condition = EqualTo(plain, partition) if plain is not None else AlwaysTrue()
    scan = table.scan(row_filter=condition, selected_fields=tuple(columns.paths.values()), snapshot_id=snapshot_id)
    if columns.has_offsets:
        return as_topic_columns(_scanned(scan, arrivals), columns, list(COLUMNS), _kinds(table, columns))
    snapshot = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    tasks = scan.plan_files() if arrivals is None else _arrived(scan, arrivals)
    stored = records_with_offsets(table, columns, tasks, lineages_of(table, snapshot))
    names = [*COLUMNS, *((ORDER,) if arrivals is not None else ())]
    return as_topic_columns(stored, columns, names, _kinds(table, columns))


def _scanned(scan: DataScan, arrivals: Mapping[str, int] | None) -> pa.Table:
    """Returns the records of a scan; by arrival, of the same (partition, offset) twice the first is what a round
    keeps."""
    from pyiceberg.io.pyarrow import ArrowScan

    if arrivals is None:
        return scan.to_arrow()
    files = _arrived(scan, arrivals)
    return ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter).to_table(files)


def _arrived(scan: DataScan, arrivals: Mapping[str, int]) -> list[Any]:
    """Returns the files of a scan as they came; of those that came together by name: so do rounds and the view."""
    return sorted(scan.plan_files(), key=lambda task: (arrivals[task.file.file_path], task.file.file_path))


def stored_records(table: Table, columns: Columns, names: Sequence[str], files: Iterable[Any]) -> pa.Table:
    """Returns the named columns of all records in some data files, deleted ones too. Offsets that no column has are 0
    here: a file's lineage tells them."""
    import numpy as np
    import pyarrow as pa
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan
    from pyiceberg.table import FileScanTask

    schema = table.schema().select(*(path for name in names for path in _read(columns, name)))
    scan = ArrowScan(table.metadata, table.io, schema, AlwaysTrue())
    stored = scan.to_table([FileScanTask(file) for file in files])
    if not columns.has_offsets:
        stored = stored.append_column(MADE_OFFSET, pa.array(np.zeros(len(stored), np.int64)))
    return as_topic_columns(stored, columns, names, _kinds(table, columns))


def _read(columns: Columns, name: str) -> tuple[str, ...]:
    """Returns the paths that have to be read for a column of a topic table, or for TOMBSTONE."""
    if columns.deleted is None or name not in (VALUE, TOMBSTONE):
        return columns.of(name)
    return (*(columns.of(name) if name == VALUE else ()), columns.deleted.column)


def _kinds(table: Table, columns: Columns) -> dict[str, str]:
    """Returns path -> Iceberg's name of its type."""
    return {path: str(table.schema().find_field(path).field_type) for path in columns.paths.values()}


def _chosen(records: pa.Table, partition: int, from_offset: int, keyed: bool) -> pa.Table:
    import pyarrow.compute as pc

    in_log = pc.equal(records[PARTITION], partition)
    in_log = pc.and_(in_log, pc.greater_equal(records[OFFSET], from_offset))
    return records.filter(pc.and_(in_log, pc.is_valid(records[KEY])) if keyed else in_log)
