"""Live records of an adopted table without offsets, each with the one that row lineage gives it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from cleantail.config.columns import Columns
from cleantail.errors import TableError
from cleantail.human import counted
from cleantail.lake.records.row_lineage import Lineages, lineage_columns, spans_of
from cleantail.lake.records.topic_columns import MADE_OFFSET
from cleantail.log.ranks.row_offsets import LAST_UPDATED, ROW_ID, record_offsets, require_row_ids

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import FileScanTask, Table


def records_with_offsets(table: Table, columns: Columns, tasks: Iterable[FileScanTask], lineages: Lineages) -> pa.Table:
    """Returns the live records of the files in the columns of the mapping, and their offsets. Raises TableError for a
    file whose records have no row ids."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    schema = table.schema().select(*columns.paths.values())
    files = list(_files(table, schema, list(tasks), lineages))
    if not files:
        empty: pa.Table = schema_to_pyarrow(schema, include_field_ids=False).empty_table()
        return empty.append_column(MADE_OFFSET, pa.array([], pa.int64()))
    return pa.concat_tables(files, promote_options="permissive")


def _files(table: Table, schema: Any, tasks: list[FileScanTask], lineages: Lineages) -> Iterator[pa.Table]:
    """Yields the live records of each file: all are read, in their order, and the deleted ones are then left out."""
    import numpy as np
    import pyarrow as pa
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files
    from pyiceberg.table import FileScanTask

    scan = ArrowScan(table.metadata, table.io, schema, AlwaysTrue())
    deleted = _read_all_delete_files(table.io, tasks)
    for task in tasks:
        path = task.file.file_path
        stored = scan.to_table([FileScanTask(task.file)])
        if len(stored) != task.file.record_count:
            raise TableError(f"{path} has {counted(len(stored), 'record')}, its metadata say {task.file.record_count}")
        lineage = require_row_ids(lineages.get(path), path)
        stored_lineage = lineage_columns(table.io, path) if any(spans_of(table, task.file)) else {}
        offsets = record_offsets(
            range(len(stored)), lineage, path, stored_lineage.get(ROW_ID), stored_lineage.get(LAST_UPDATED)
        )
        live = np.ones(len(stored), np.bool_)
        for positions in deleted.get(path, ()):
            live[positions.to_numpy()] = False
        yield stored.append_column(MADE_OFFSET, offsets).filter(pa.array(live))
