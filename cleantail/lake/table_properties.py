"""Adapter: a table property changed without Spark, in one compare-and-swap commit on the catalog.

PyIceberg 0.12 reads tables of format version 3 and does not write their metadata. A REST catalog writes it itself. For
a SQL catalog the metadata file is copied with that one property changed, every other field as it was, and the catalog
is pointed to the copy if it still points to the original: what Iceberg's own commit does.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cleantail.errors import ConflictError, TableError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_PREVIOUS_MAX = "write.metadata.previous-versions-max"
_PREVIOUS_DEFAULT = 100


def set_table_property(catalog: Catalog, table: Table, name: str, value: str, now_ms: int) -> None:
    """Commits the property. Raises ConflictError where the table has changed since `table` was loaded."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import CommitFailedException

    if not isinstance(catalog, SqlCatalog):
        try:
            with table.transaction() as transaction:
                transaction.set_properties({name: value})
        except CommitFailedException as e:
            raise ConflictError(f"{'.'.join(table.name())} was changed meanwhile: {e}") from None
        return
    location = _write_copy(table, name, value, now_ms)
    if not _point_to(catalog, table, location):
        table.io.delete(location)
        raise ConflictError(f"{'.'.join(table.name())} was changed meanwhile")


def _write_copy(table: Table, name: str, value: str, now_ms: int) -> str:
    """The next metadata file; gives its location."""
    current = table.metadata_location
    if not current.endswith(".metadata.json") or current.endswith(".gz.metadata.json"):
        raise TableError(f"{current} is compressed or has no known name: release through Spark is needed")
    with table.io.new_input(current).open() as stream:
        metadata = json.loads(stream.read())
    version = int(current.rpartition("/")[2].partition("-")[0])
    location: str = table.location_provider().new_table_metadata_file_location(version + 1)
    text = json.dumps(with_property(metadata, current, name, value, now_ms))
    with table.io.new_output(location).create() as stream:
        stream.write(text.encode())
    return location


def with_property(metadata: dict[str, Any], location: str, name: str, value: str, now_ms: int) -> dict[str, Any]:
    """The table metadata with one property changed; `location` is where it was read from, for the metadata log."""
    log = [*metadata.get("metadata-log", ()), {"timestamp-ms": metadata["last-updated-ms"], "metadata-file": location}]
    properties = {**metadata.get("properties", {}), name: value}
    keep = int(properties.get(_PREVIOUS_MAX) or _PREVIOUS_DEFAULT)
    return {
        **metadata,
        "properties": properties,
        "last-updated-ms": max(now_ms, metadata["last-updated-ms"]),
        "metadata-log": log[-keep:],
    }


def _point_to(catalog: Any, table: Table, location: str) -> bool:
    """Whether the catalog still had the metadata that `table` was loaded from, and now has `location`."""
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import update
    from sqlalchemy.orm import Session

    *namespace, table_name = table.name()
    swap = (
        update(IcebergTables)
        .where(
            IcebergTables.catalog_name == catalog.name,
            IcebergTables.table_namespace == ".".join(namespace),
            IcebergTables.table_name == table_name,
            IcebergTables.metadata_location == table.metadata_location,
        )
        .values(metadata_location=location, previous_metadata_location=table.metadata_location)
    )
    with Session(catalog.engine) as session:
        done: Any = session.execute(swap)
        swapped = bool(done.rowcount == 1)
        session.commit()
    return swapped
