"""Rows that are appended to a table through PyIceberg, where they are few."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.table import Transaction

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableUpdate


def append(table: Table, rows: pa.Table) -> None:
    """Appends rows in one commit, which PyIceberg tries again as the table's properties say."""
    with _Remembering(table) as transaction:
        transaction.append(rows)


class _Remembering(Transaction):
    """Works the table's metadata out anew only where they have changed. PyIceberg's own copies all of them each time
    that it looks at one of their fields, some twenty times for an append: two thirds of its time."""

    _basis: tuple[TableMetadata, tuple[TableUpdate, ...]] | None = None
    _known: TableMetadata

    @property
    def table_metadata(self) -> TableMetadata:
        basis = self._table.metadata, self._updates
        if self._basis is None or any(before is not now for before, now in zip(self._basis, basis, strict=True)):
            self._known, self._basis = super().table_metadata, basis
        return self._known
