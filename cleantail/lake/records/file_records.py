"""Records of an adopted table's data files through PyIceberg's metadata: read by cleantail.lake.records.projection, as
tasks on Spark read them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cleantail.config.topic_table import Columns
from cleantail.errors import TableError
from cleantail.human import counted
from cleantail.lake.manifest_entries import Lineages, lineage_columns, spans_of
from cleantail.lake.position_deletes import VECTORS, bound_deletes, puffin_problem
from cleantail.lake.records.projection import (
    NAME_MAPPING,
    Constants,
    Layout,
    Projection,
    arrow_type,
    layout_of_schema,
)
from cleantail.lake.records.topic_columns import MADE_OFFSET
from cleantail.log.adopted_table import LAST_UPDATED, ROW_ID, record_offsets, require_row_ids

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import FileScanTask, Table

BATCH_RECORDS = 1 << 17
REMEMBERED_LAYOUTS = 1_000
_layouts: dict[tuple[Any, ...], Layout] = {}


def layout_of_paths(table: Table, paths: Iterable[str]) -> Layout:
    """Returns path -> where the files have it."""
    wanted, mapping = tuple(dict.fromkeys(paths)), table.properties.get(NAME_MAPPING)
    key = (str(table.metadata.table_uuid), table.schema().schema_id, mapping, wanted)
    if (known := _layouts.get(key)) is None:
        if len(_layouts) >= REMEMBERED_LAYOUTS:
            _layouts.clear()
        schema = json.loads(table.schema().model_dump_json())
        _layouts[key] = known = layout_of_schema(schema, mapping, {path: path for path in wanted})
    return known


def constants_of(table: Table, file: Any) -> Constants:
    """Returns field id -> value of the file's identity partition. A null is a value."""
    fields = table.specs()[file.spec_id].fields
    return tuple(
        (field.source_id, file.partition[at]) for at, field in enumerate(fields) if str(field.transform) == "identity"
    )


def stored_columns(table: Table, paths: Sequence[str], file: Any) -> pa.Table:
    """Returns path -> column, of all records of a data file, deleted ones included. Raises TableError for a file that
    has not as many records as its metadata say."""
    import pyarrow as pa

    return pa.concat_tables(stored_batches(table, paths, file)).combine_chunks()


def stored_batches(table: Table, paths: Sequence[str], file: Any) -> Iterator[pa.Table]:
    """Yields what stored_columns returns in batches, at least one. Without paths its tables have rows all the same."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    layout = layout_of_paths(table, paths)
    with table.io.new_input(file.file_path).open() as source:
        parquet = pq.ParquetFile(source)
        records = parquet.metadata.num_rows
        if records != file.record_count:
            raise TableError(f"{file.file_path} has {counted(records, 'record')}, its metadata say {file.record_count}")
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
        # a file without records has no batch, and one that has none of the columns has nothing to be read
        for at in range(0, max(records, 1), BATCH_RECORDS):
            yield table_of(pa.record_batch({"": pa.nulls(min(BATCH_RECORDS, records - at))}), False)


def _with_uuids(array: pa.Array, kind: str) -> pa.Array:
    """Returns UUIDs as such, whose text is what counts."""
    import pyarrow as pa

    is_plain = kind == "uuid" and pa.types.is_fixed_size_binary(array.type)
    return pa.ExtensionArray.from_storage(pa.uuid(), array) if is_plain else array


AS_PARQUET = (
    "Iceberg writes the files again as Parquet: set the table property write.format.default to parquet, and CALL "
    "system.rewrite_data_files(table => …, options => map('rewrite-all', 'true'))"
)


def require_parquet(path: str, kind: object) -> None:
    """Raises TableError for a data file of another format than Parquet."""
    if _format(kind) != "PARQUET":
        raise TableError(f"{path} is {_format(kind)}, and only Parquet can be read. {AS_PARQUET}")


def _format(kind: object) -> str:
    return str(getattr(kind, "value", kind)).upper()


def file_problem(table: Table, file: Any, paths: Iterable[str]) -> str | None:
    """Returns why these columns of a data file cannot be read in place; None if they can.

    pyarrow reads INT96 as nanoseconds, in which times after the year 2262 wrap around.
    """
    import pyarrow.parquet as pq

    try:
        require_parquet(file.file_path, file.file_format)
    except TableError as e:
        return str(e)
    layout = layout_of_paths(table, paths)
    with table.io.new_input(file.file_path).open() as source:
        parquet = pq.ParquetFile(source)
        columns = [parquet.schema.column(n) for n in range(len(parquet.schema))]
        int96 = {column.path for column in columns if column.physical_type == "INT96"}
        projection = Projection(parquet.schema_arrow, layout, layout, constants_of(table, file), file.file_path)
        names = sorted(path for path in projection.places if projection.path_in_file(path) in int96)
    if not names:
        return None
    return f"{file.file_path} has timestamps as INT96 ({', '.join(names)}), which is not read. {AS_PARQUET}"


def live_columns(table: Table, paths: Sequence[str], tasks: Iterable[FileScanTask]) -> list[tuple[Any, pa.Table]]:
    """Returns (data file, path -> column) of the records of each file that are not deleted."""
    return [(file, rows.filter(live)) for file, rows, live in _with_deletes(table, paths, tasks)]


def records_with_offsets(
    table: Table, columns: Columns, tasks: Iterable[FileScanTask], lineages: Lineages
) -> list[tuple[Any, pa.Table]]:
    """Returns live_columns of the mapping, with the offsets that row lineage gives. Raises TableError for a file whose
    records have no row ids."""
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
    """Yields (data file, its records, which of them live)."""
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
