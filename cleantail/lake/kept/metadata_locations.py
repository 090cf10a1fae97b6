"""Adapter: where the metadata of all tables of a catalog are, without loading one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleantail.config.platform import Platform
from cleantail.lake.catalogs import unreachable

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


def metadata_locations(catalog: Catalog, platform: Platform) -> dict[str, str]:
    """Returns `namespace.table` -> location of its metadata, in one query; empty for a catalog that has no such list.
    `platform`: whose catalog it is. Raises OutsideError where it is out of reach."""
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
        raise unreachable(platform, e) from None
    return {f"{namespace}.{name}": location or "" for namespace, name, location in rows}
