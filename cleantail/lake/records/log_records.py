"""Records of a topic's table as Arrow, in the columns of a topic table, regardless of the table's own columns.

Data files of an adopted table are read through PyIceberg's metadata and cleantail.lake.records.projection, as in tasks
on Spark.
"""

from __future__ import annotations

import json
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
from cleantail.human import counted
from cleantail.lake.manifest_entries import Lineages, lineage_columns, lineages_of, open_parquet, spans_of
from cleantail.lake.position_deletes import VECTORS, bound_deletes, puffin_problem
from cleantail.lake.records.projection import (
    NAME_MAPPING,
    Constants,
    Layout,
    Projection,
    arrow_type,
    layout_of_schema,
)
from cleantail.lake.records.topic_columns import MADE_OFFSET, as_topic_columns, columns_of_properties
from cleantail.log.adopted_table import LAST_UPDATED, ROW_ID, record_offsets, require_row_ids

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import DataScan, FileScanTask, Table


BATCH_RECORDS = 1 << 17
REMEMBERED_LAYOUTS = 1_000
_layouts: dict[tuple[Any, ...], Layout] = {}


def layout_of_paths(table: Table, paths: Iterable[str]) -> Layout:
    """Return path -> the column's place in the files."""
    wanted, mapping = tuple(dict.fromkeys(paths)), table.properties.get(NAME_MAPPING)
    key = (str(table.metadata.table_uuid), table.schema().schema_id, mapping, wanted)
    if (known := _layouts.get(key)) is None:
        if len(_layouts) >= REMEMBERED_LAYOUTS:
            _layouts.clear()
        schema = json.loads(table.schema().model_dump_json())
        _layouts[key] = known = layout_of_schema(schema, mapping, {path: path for path in wanted})
    return known


def constants_of(table: Table, file: Any) -> Constants:
    """Return field id -> value of the file's identity partition. A null counts as a value."""
    fields = table.specs()[file.spec_id].fields
    return tuple(
        (field.source_id, file.partition[at]) for at, field in enumerate(fields) if str(field.transform) == "identity"
    )


def stored_columns(table: Table, paths: Sequence[str], file: Any) -> pa.Table:
    """Return path -> column, for all records of a data file, including deleted ones.

    Raises TableError if the file's number of records differs from its metadata.
    """
    import pyarrow as pa

    return pa.concat_tables(stored_batches(table, paths, file)).combine_chunks()


def stored_batches(table: Table, paths: Sequence[str], file: Any) -> Iterator[pa.Table]:
    """Yield the result of stored_columns in batches, at least one. Without paths, the tables still have rows."""
    import pyarrow as pa

    layout = layout_of_paths(table, paths)
    with table.io.new_input(file.file_path).open() as source:
        parquet = open_parquet(source, file.file_path, file.record_count)
        records = parquet.metadata.num_rows
        projection = Projection(parquet.schema_arrow, layout, layout, constants_of(table, file), file.file_path)

        def table_of(batch: pa.RecordBatch, read: bool) -> pa.Table:
            arrays = projection.arrays(batch) if read or projection.lacks_all else {}
            whole = {path: arrays.get(path, pa.array([], arrow_type(layout[path].leaf))) for path in layout}
            rows = {path: _with_uuids(array, layout[path].kind) for path, array in whole.items()}
            return pa.table(rows) if rows else pa.table({"": pa.nulls(batch.num_rows)}).select([])

        if projection.read and records:
            for batch in parquet.iter_batches(BATCH_RECORDS, columns=projection.read, use_threads=False):
                yield table_of(batch, True)
            return
        # a file without records has no batch; a file without any of the columns is not read
        for at in range(0, max(records, 1), BATCH_RECORDS):
            yield table_of(pa.record_batch({"": pa.nulls(min(BATCH_RECORDS, records - at))}), False)


def _with_uuids(array: pa.Array, kind: str) -> pa.Array:
    """Return a UUID column as Arrow UUIDs, because their text form is used. Other columns stay."""
    import pyarrow as pa

    is_plain = kind == "uuid" and pa.types.is_fixed_size_binary(array.type)
    return pa.ExtensionArray.from_storage(pa.uuid(), array) if is_plain else array


AS_PARQUET = (
    "Let Iceberg rewrite the files as Parquet: set the table property write.format.default to parquet, and CALL "
    "system.rewrite_data_files(table => …, options => map('rewrite-all', 'true'))"
)


def require_parquet(path: str, kind: object) -> None:
    """Raise TableError if a data file is not Parquet."""
    if _format(kind) != "PARQUET":
        raise TableError(f"{path} is {_format(kind)}, but only Parquet can be read. {AS_PARQUET}")


def _format(kind: object) -> str:
    return str(getattr(kind, "value", kind)).upper()


def file_problem(table: Table, file: Any, paths: Iterable[str]) -> str | None:
    """Return why these columns of a data file cannot be read in place. None if they can.

    pyarrow reads INT96 as nanoseconds, in which times after the year 2262 wrap around.
    """
    try:
        require_parquet(file.file_path, file.file_format)
    except TableError as e:
        return str(e)
    layout = layout_of_paths(table, paths)
    with table.io.new_input(file.file_path).open() as source:
        parquet = open_parquet(source, file.file_path)
        columns = [parquet.schema.column(n) for n in range(len(parquet.schema))]
        int96 = {column.path for column in columns if column.physical_type == "INT96"}
        projection = Projection(parquet.schema_arrow, layout, layout, constants_of(table, file), file.file_path)
        names = sorted(path for path in projection.places if projection.path_in_file(path) in int96)
    if not names:
        return None
    return f"{file.file_path} has timestamps as INT96 ({', '.join(names)}), which is not read. {AS_PARQUET}"


def live_columns(table: Table, paths: Sequence[str], tasks: Iterable[FileScanTask]) -> list[tuple[Any, pa.Table]]:
    """Return (data file, path -> column) of the records of each file that are not deleted."""
    return [(file, rows.filter(live)) for file, rows, live in _with_deletes(table, paths, tasks)]


def records_with_offsets(
    table: Table, columns: Columns, tasks: Iterable[FileScanTask], lineages: Lineages
) -> list[tuple[Any, pa.Table]]:
    """Return live_columns of the mapping, with the offsets that row lineage gives.

    Raises TableError for a file whose records have no row ids.
    """
    files = []
    for file, rows, live in _with_deletes(table, list(columns.paths.values()), tasks):
        lineage = require_row_ids(lineages.get(file.file_path), file.file_path)
        stored = lineage_columns(table.io, file.file_path) if any(spans_of(table, file)) else {}
        own = (stored.get(ROW_ID), stored.get(LAST_UPDATED))
        offsets = record_offsets(range(len(rows)), lineage, file.file_path, *own)
        files.append((file, rows.append_column(MADE_OFFSET, offsets).filter(live)))
    return files


def _with_deletes(
    table: Table, paths: Sequence[str], tasks: Iterable[FileScanTask]
) -> Iterable[tuple[Any, pa.Table, pa.Array]]:
    """Yield (data file, its records, mask of the live ones)."""
    import numpy as np
    import pyarrow as pa
    from pyiceberg.io.pyarrow import _read_all_delete_files

    bound_deletes()
    read = list(tasks)
    deleted: Mapping[str, Any] = {}
    try:
        deleted = _read_all_delete_files(table.io, read)
    except ValueError:
        for delete in (delete for task in read for delete in task.delete_files):
            if _format(delete.file_format) == VECTORS and (text := puffin_problem(table.io, delete.file_path)):
                raise TableError(text) from None
        raise
    for task in read:
        rows = stored_columns(table, paths, task.file)
        live = np.ones(len(rows), np.bool_)
        for positions in deleted.get(task.file.file_path, ()):
            gone = positions.to_numpy()
            if len(gone) and gone[-1] >= len(rows):
                path, found = task.file.file_path, counted(len(rows), "record")
                raise TableError(f"a delete file has position {gone[-1]} of {path}, which has {found}")
            live[gone] = False
        yield task.file, rows, pa.array(live)


def marked_records(table: Table, file: Any, columns: Columns) -> int:
    """Return how many records of a data file are marked as deletes, including deleted records."""
    import pyarrow.compute as pc

    batches = stored_records(table, columns, [TOMBSTONE], file)
    return sum(int(pc.sum(records[TOMBSTONE]).as_py() or 0) for records in batches)


def log_records(
    table: Table,
    partition: int | None,
    snapshot_id: int | None = None,
    *,
    from_offset: int = 0,
    end_offset: int | None = None,
    key: bytes | None = None,
    keyed: bool = False,
    arrivals: Mapping[str, int] | None = None,
) -> pa.Table:
    """Return live records of a log (None: of all logs) at a snapshot: those in [from_offset, end_offset), only those
    of `key`, or only those with a key.

    The records are unordered. With `arrivals` (data file -> data sequence number), they are in order of arrival, file
    after file.

    If columns of an adopted table are fields of structs, all mapped columns are read and then filtered: no filter
    reaches the files.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, LessThan, NotNull

    columns = columns_of_properties(table.properties)
    if columns is not None:
        records = adopted_records(table, columns, snapshot_id, partition, arrivals)
        records = _chosen(records, partition, from_offset, keyed)
        if end_offset is not None:
            records = records.filter(pc.less(records[OFFSET], end_offset))
        return records if key is None else records.filter(pc.equal(records[KEY], pa.scalar(key, pa.binary())))
    condition: BooleanExpression = GreaterThanOrEqual(OFFSET, from_offset)
    condition = And(EqualTo(PARTITION, partition), condition) if partition is not None else condition
    condition = And(condition, NotNull(KEY)) if keyed else condition
    condition = And(condition, LessThan(OFFSET, end_offset)) if end_offset is not None else condition
    condition = And(condition, EqualTo(KEY, key)) if key is not None else condition
    return _scanned(table.scan(row_filter=condition, snapshot_id=snapshot_id), arrivals)


def records_at(table: Table, partition: int, offsets: Sequence[int], snapshot_id: int) -> pa.Table:
    """Return live records of one log at a snapshot, at a few offsets.

    If an adopted table's offset is a field of a struct, the whole log is read: no filter reaches its files.
    """
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
    table: Table,
    columns: Columns,
    snapshot_id: int | None,
    partition: int | None,
    arrivals: Mapping[str, int] | None = None,
) -> pa.Table:
    """Return live records of an adopted table: those of a log (None: of all logs), and possibly of other logs."""
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
    """Yield the records of each file. An empty table comes first, so that the types are known without files."""
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


def _may_have(table: Table, columns: Columns, file: Any, partition: int | None) -> bool:
    """Return whether a file may have records of a log, by its partition or its bounds."""
    if columns.partition is None or partition is None:
        return True
    number = layout_of_paths(table, [columns.partition])[columns.partition].leaf.id
    low, high = ((bounds or {}).get(number) for bounds in (file.lower_bounds, file.upper_bounds))
    if low is not None and high is not None:
        return int.from_bytes(low, "little", signed=True) <= partition <= int.from_bytes(high, "little", signed=True)
    by_partition = dict(constants_of(table, file)).get(number)
    return by_partition is None or bool(by_partition == partition)


def _scanned(scan: DataScan, arrivals: Mapping[str, int] | None) -> pa.Table:
    """Return the records of a scan. With `arrivals`, in order of arrival.

    A round keeps the first of two records with the same (partition, offset). Raises TableError for a damaged file.
    """
    import pyarrow as pa
    from pyiceberg.io.pyarrow import ArrowScan

    bound_deletes()
    files = list(scan.plan_files()) if arrivals is None else _arrived(scan, arrivals)
    try:
        return ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter).to_table(files)
    except pa.ArrowException:  # it does not name the file
        for task in files:
            with scan.io.new_input(task.file.file_path).open() as source:
                open_parquet(source, task.file.file_path)
        raise


def _arrived(scan: DataScan, arrivals: Mapping[str, int]) -> list[Any]:
    """Return the files of a scan in order of arrival, then by name, like rounds and the view."""
    return sorted(scan.plan_files(), key=lambda task: (arrivals[task.file.file_path], task.file.file_path))


def stored_records(table: Table, columns: Columns, names: Sequence[str], file: Any) -> Iterator[pa.Table]:
    """Yield the named columns of all records in a data file, including deleted ones, in batches.

    A file of 400 kB may have 50 million records. If row lineage gives the offsets, they are 0 here.
    """
    import pyarrow as pa

    paths = list(dict.fromkeys(path for name in names for path in _read(columns, name)))

    def batches() -> Iterator[tuple[Any, pa.Table]]:
        for rows in stored_batches(table, paths, file):
            made = pa.repeat(pa.scalar(0, pa.int64()), len(rows))
            yield file, rows.append_column(MADE_OFFSET, made)

    return _in_topic_columns(table, columns, names, batches())


def _read(columns: Columns, name: str) -> tuple[str, ...]:
    """Return the paths to read for a column of a topic table, or for TOMBSTONE."""
    if columns.deleted is None or name not in (VALUE, TOMBSTONE):
        return columns.of(name)
    return (*(columns.of(name) if name == VALUE else ()), columns.deleted.column)


def _chosen(records: pa.Table, partition: int | None, from_offset: int, keyed: bool) -> pa.Table:
    import pyarrow.compute as pc

    in_log = pc.greater_equal(records[OFFSET], from_offset)
    in_log = pc.and_(in_log, pc.equal(records[PARTITION], partition)) if partition is not None else in_log
    return records.filter(pc.and_(in_log, pc.is_valid(records[KEY])) if keyed else in_log)
