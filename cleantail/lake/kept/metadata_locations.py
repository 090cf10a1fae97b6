"""Adapter: where the metadata of all tables of a catalog are, without loading one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleantail.errors import OutsideError
from cleantail.lake.catalog_errors import cause

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


def metadata_locations(catalog: Catalog) -> dict[str, str]:
    """Returns `namespace.table` -> location of its metadata, in one query; empty for a catalog that has no such list.
    Raises OutsideError where the catalog is out of reach."""
    from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
    from sqlalchemy import select
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.orm import Session

    if not isinstance(catalog, SqlCatalog):
        return {}
    columns = (IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location)
    try:
        with Session(catalog.engine) as session:
            rows = session.execute(select(*columns).where(IcebergTables.catalog_name == catalog.name)).all()
    except SQLAlchemyError as e:
        raise OutsideError(f"catalog {catalog.name} cannot be reached: {cause(e)}") from None
    return {f"{namespace}.{name}": location or "" for namespace, name, location in rows}
