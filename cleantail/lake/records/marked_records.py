"""Records of an adopted table that a column marks as deletes: counted by reading that column, and no other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cleantail.config.topic_table import TOMBSTONE, Columns
from cleantail.lake.records.log_records import stored_records

if TYPE_CHECKING:
    from pyiceberg.table import Table


def marked_records(table: Table, file: Any, columns: Columns) -> int:
    """Returns how many records of a data file are marked, deleted ones included."""
    import pyarrow.compute as pc

    batches = stored_records(table, columns, [TOMBSTONE], file)
    return sum(int(pc.sum(records[TOMBSTONE]).as_py() or 0) for records in batches)
