"""Adapter: the deletes of a table that a round cannot replace, and that `convert-deletes` can, through PyIceberg.

1. Equality deletes: they name values of columns, and are of whatever data file has such records.
2. Position deletes of several data files in one file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleantail.lake.manifest_entries import (
    DATA,
    DELETES,
    ForeignDelete,
    content_of,
    deletes_of,
    entries_of_deletes,
    manifests_of,
)
from cleantail.lake.records.file_records import require_parquet
from cleantail.lake.table_metadata import entries_of

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class ForeignDeletes:
    """Says how many there are of each kind, and how many rows the equality deletes have."""

    equality_deletes: int = 0
    equality_rows: int = 0
    shared_position_deletes: int = 0

    @property
    def any(self) -> bool:
        return bool(self.equality_deletes or self.shared_position_deletes)


def foreign_deletes(table: Table) -> ForeignDeletes:
    """Returns what the current snapshot has of them, from its manifests alone."""
    snapshot = table.current_snapshot()
    manifests = manifests_of(table, snapshot) if snapshot else []
    entries = (e for m in manifests if content_of(m) == DELETES for e in entries_of_deletes(table, m))
    deletes = [entry for entry in entries if isinstance(entry, ForeignDelete)]
    by_value = [entry for entry in deletes if entry.by_value]
    return ForeignDeletes(len(by_value), sum(entry.records for entry in by_value), len(deletes) - len(by_value))


def require_parquet_files(table: Table) -> None:
    """Raises TableError for data files of the current snapshot that are not Parquet."""
    snapshot = table.current_snapshot()
    manifests = manifests_of(table, snapshot) if snapshot else []
    for entry in entries_of(table, [m for m in manifests if content_of(m) == DATA]):
        require_parquet(entry.data_file.file_path, entry.data_file.file_format)


def require_own_deletes(table: Table) -> None:
    """Raises TableError where the current snapshot has deletes that a round could not replace, with the way out."""
    snapshot = table.current_snapshot()
    for manifest in manifests_of(table, snapshot) if snapshot else ():
        if content_of(manifest) == DELETES:
            for _ in deletes_of(table, manifest):
                pass
