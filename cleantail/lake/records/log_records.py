"""Records of a topic's table as Arrow, in the columns of a topic table, whatever the table's own columns are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cleantail.config.topic_table import (
    COLUMNS,
    KEY,
    OFFSET,
    ORDER,
    PARTITION,
    TOMBSTONE,
    VALUE,
    Columns,
)
from cleantail.errors import TableError
from cleantail.lake.manifest_entries import lineages_of
from cleantail.lake.position_deletes import bound_deletes
from cleantail.lake.records.file_records import (
    constants_of,
    layout_of_paths,
    live_columns,
    records_with_offsets,
    stored_batches,
)
from cleantail.lake.records.projection import arrow_type
from cleantail.lake.records.topic_columns import MADE_OFFSET, as_topic_columns, columns_of_properties

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
    import pyarrow as pa

    scan = table.scan(snapshot_id=snapshot_id)
    tasks = scan.plan_files() if arrivals is None else _arrived(scan, arrivals)
    tasks = [task for task in tasks if _may_have(table, columns, task.file, partition)]
    if columns.has_offsets:
        files, names = live_columns(table, list(columns.paths.values()), tasks), list(COLUMNS)
    else:
        snapshot = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
        files = records_with_offsets(table, columns, tasks, lineages_of(table, snapshot))
        names = [*COLUMNS, *((ORDER,) if arrivals is not None else ())]
    return pa.concat_tables(_in_topic_columns(table, columns, names, files))


def _in_topic_columns(
    table: Table, columns: Columns, names: Sequence[str], files: Iterable[tuple[Any, pa.Table]]
) -> Iterator[pa.Table]:
    """Yields the records of each file, after a table without any, which has the types."""
    import pyarrow as pa

    layout = layout_of_paths(table, columns.paths.values())
    kinds = {path: place.kind for path, place in layout.items()}
    nothing = {path: pa.array([], arrow_type(place.leaf)) for path, place in layout.items()}
    yield as_topic_columns(pa.table(nothing | {MADE_OFFSET: pa.array([], pa.int64())}), columns, names, kinds)
    for file, rows in files:
        try:
            yield as_topic_columns(rows, columns, names, kinds)
        except TableError as e:
            raise TableError(f"{file.file_path}: {e}") from None


def _may_have(table: Table, columns: Columns, file: Any, partition: int) -> bool:
    """Returns whether a file can have records of a log, by its partition or its bounds."""
    if columns.partition is None:
        return True
    number = layout_of_paths(table, [columns.partition])[columns.partition].leaf.id
    low, high = ((bounds or {}).get(number) for bounds in (file.lower_bounds, file.upper_bounds))
    if low is not None and high is not None:
        return int.from_bytes(low, "little", signed=True) <= partition <= int.from_bytes(high, "little", signed=True)
    by_partition = dict(constants_of(table, file)).get(number)
    return by_partition is None or bool(by_partition == partition)


def _scanned(scan: DataScan, arrivals: Mapping[str, int] | None) -> pa.Table:
    """Returns the records of a scan; by arrival, of the same (partition, offset) twice the first is what a round
    keeps."""
    from pyiceberg.io.pyarrow import ArrowScan

    bound_deletes()
    if arrivals is None:
        return scan.to_arrow()
    files = _arrived(scan, arrivals)
    return ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter).to_table(files)


def _arrived(scan: DataScan, arrivals: Mapping[str, int]) -> list[Any]:
    """Returns the files of a scan as they came; of those that came together by name: so do rounds and the view."""
    return sorted(scan.plan_files(), key=lambda task: (arrivals[task.file.file_path], task.file.file_path))


def stored_records(table: Table, columns: Columns, names: Sequence[str], file: Any) -> Iterator[pa.Table]:
    """Yields the named columns of all records in a data file, deleted ones too, in batches: a file of 400 kB may have
    50 million records. Offsets that no column has are 0 here: a file's lineage tells them."""
    import pyarrow as pa

    paths = list(dict.fromkeys(path for name in names for path in _read(columns, name)))

    def batches() -> Iterator[tuple[Any, pa.Table]]:
        for rows in stored_batches(table, paths, file):
            made = pa.repeat(pa.scalar(0, pa.int64()), len(rows))
            yield file, rows.append_column(MADE_OFFSET, made)

    return _in_topic_columns(table, columns, names, batches())


def _read(columns: Columns, name: str) -> tuple[str, ...]:
    """Returns the paths that have to be read for a column of a topic table, or for TOMBSTONE."""
    if columns.deleted is None or name not in (VALUE, TOMBSTONE):
        return columns.of(name)
    return (*(columns.of(name) if name == VALUE else ()), columns.deleted.column)


def _chosen(records: pa.Table, partition: int, from_offset: int, keyed: bool) -> pa.Table:
    import pyarrow.compute as pc

    in_log = pc.equal(records[PARTITION], partition)
    in_log = pc.and_(in_log, pc.greater_equal(records[OFFSET], from_offset))
    return records.filter(pc.and_(in_log, pc.is_valid(records[KEY])) if keyed else in_log)
