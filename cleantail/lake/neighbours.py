"""Adapter: check that a table shares its folder with no other, and that its metadata names only its own files.

Iceberg deletes files according to a table's own metadata: files below its location that no snapshot names, and files
anywhere that expired snapshots name. Every writer of the table controls both, and Iceberg deletes with Cleantail's
rights. So Cleantail makes these checks before it deletes a file, and before a table is adopted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cleantail.config.platform import Platform
from cleantail.config.source_paths import roots_of
from cleantail.errors import CleantailError, TableError
from cleantail.lake.catalogs import open_catalog
from cleantail.lake.manifest_entries import manifests_of, named_if_damaged
from cleantail.lake.storage_locations import (
    PATHS,
    StorageLocation,
    contains,
    files_outside,
    folder_location,
    known_locations,
    locations_of,
    metadata_folder,
    overlap,
    surely_inside,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import ManifestEntry, ManifestFile
    from pyiceberg.table import Table

READ_THREADS = 16
GC_ENABLED = "gc.enabled"
"""Iceberg's table property that allows deleting files: false for a table that shares files with another table."""
_NAMED = 3
"""Maximum number of files that an error names."""


def may_delete_files(properties: Mapping[str, str]) -> bool:
    """Return whether the table's `gc.enabled` allows deleting its files. The default is true."""
    return properties.get(GC_ENABLED, "true").strip().lower() == "true"


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another table or view of the catalog. `locations`: where its files may be, by the text that names it."""

    name: str
    locations: Mapping[str, StorageLocation]


def require_separate_folder(catalog: Catalog, platform: Platform, table: Table) -> str:
    """Raise TableError if other data could lie among the table's files, or the table's files among other data.

    The table's folder must not be, contain or lie in another table's folder, the warehouse or CLEANTAIL_HOME. Its
    properties must not put files outside its location. Returns a text that names what could not be read, if anything.

    Tables of `platform.source_catalogs` count. Costs one query per SQL catalog, and reads the metadata file of every
    other table, 16 at a time.
    """
    name, location = ".".join(table.name()[-2:]), table.location()
    require_inner_paths(name, location, table.properties)
    folders = {**locations_of(location, table.properties), **metadata_folder(table.metadata_location)}
    _require_below(name, location, platform)
    others, hidden_text = _neighbours(catalog, table, table.catalog.name)
    unseen = [hidden_text] if hidden_text else []
    for name_there in sorted(platform.source_catalogs):
        of_catalog, hidden_text = _of_source_catalog(platform, name_there, table)
        others += of_catalog
        unseen += [hidden_text] if hidden_text else []
    for other in others:
        if pair := next(
            ((m, t) for m, p in folders.items() for t, q in other.locations.items() if overlap(p, q)), None
        ):
            raise TableError(
                f"table {name} lies at {pair[0]} and table {other.name} at {pair[1]}: files of one table could be "
                "deleted as files of the other; nothing was changed. Give each table a separate folder: create one "
                "of them again elsewhere, or drop it without PURGE"
            )
    return "; ".join(unseen)


def require_inner_paths(name: str, location: str, properties: Mapping[str, str]) -> None:
    """Raise TableError if a property puts files of the table outside its location."""
    root = folder_location(location)
    for key in PATHS:
        path = properties.get(key)
        if path and not surely_inside(folder_location(path), root):
            raise TableError(
                f"table {name} has {key}={path}, which is outside its location {location}: files there may belong to "
                "another table; nothing was changed. Name a folder below the location, or remove the property. With "
                f"{GC_ENABLED}=false Cleantail deletes no file of the table"
            )


def require_inner_files(name: str, location: str, files: Iterable[str]) -> None:
    """Raise TableError if one of the files lies outside the location."""
    if foreign_files := files_outside(files, location):
        more = f" and {len(foreign_files) - _NAMED} more" if len(foreign_files) > _NAMED else ""
        raise TableError(
            f"the metadata of table {name} names files outside its location {location}: "
            f"{', '.join(foreign_files[:_NAMED])}{more}; they may belong to another table, and would be deleted with "
            "the snapshots that name them; nothing was changed. Remove these files from the table and its history, "
            f"or set {GC_ENABLED}=false. Then Cleantail deletes no file of the table"
        )


def named_by_metadata(table: Table) -> list[str]:
    """Return files that the table's metadata itself names: manifest lists, statistics, older metadata."""
    metadata = table.metadata
    lists = [s.manifest_list for s in metadata.snapshots if s.manifest_list]
    statistics = [s.statistics_path for s in (*metadata.statistics, *metadata.partition_statistics)]
    return [*lists, *statistics, *(entry.metadata_file for entry in metadata.metadata_log)]


def named_files(table: Table) -> Iterator[str]:
    """Yield every file that the metadata or any snapshot of the table names.

    Raises TableError if a manifest or a manifest list is damaged.
    """

    def entries_in(manifest: ManifestFile) -> list[ManifestEntry]:
        with named_if_damaged(table, manifest.manifest_path):
            return manifest.fetch_manifest_entry(table.io, discard_deleted=False)

    yield from named_by_metadata(table)
    with ThreadPoolExecutor(READ_THREADS) as pool:
        lists = pool.map(lambda s: manifests_of(table, s), table.metadata.snapshots)
        manifests = {m.manifest_path: m for of_snapshot in lists for m in of_snapshot}
        yield from manifests
        for entries in pool.map(entries_in, manifests.values()):
            yield from (entry.data_file.file_path for entry in entries)


def _require_below(name: str, location: str, platform: Platform) -> None:
    """Raise TableError if the warehouse or CLEANTAIL_HOME lies in the table's folder.

    A table outside the warehouse must also not lie in CLEANTAIL_HOME, or overlap a folder of files to ingest.
    """
    table_folder, home = folder_location(location), folder_location(str(platform.home))
    shared = {"CLEANTAIL_HOME": str(platform.home)}
    if "/" in platform.warehouse:  # for a REST catalog it may be only a name
        shared["the warehouse"] = platform.warehouse
    for what, where in shared.items():
        if contains(table_folder, folder_location(where)):
            raise TableError(
                f"table {name} lies at {location}, which contains {what} ({where}): files of other tables could be "
                "deleted as its own; nothing was changed. Give the table a separate folder"
            )
    warehouses = (shared.get("the warehouse"), f"{platform.home}/warehouse")  # the home may have moved
    if any(where and contains(folder_location(where), table_folder) for where in warehouses):
        return
    sources = (str(root) for root in roots_of(platform) if overlap(table_folder, folder_location(str(root))))
    root = next(sources, None)
    if root or contains(home, table_folder):
        raise TableError(
            f"table {name} lies at {location}, in {f'a folder of sources, {root},' if root else 'CLEANTAIL_HOME'} "
            "and not in the warehouse: files that do not belong to a table could be deleted as its own; nothing was "
            f"changed. Give the table a folder in the warehouse, {platform.warehouse}"
        )


def _neighbours(catalog: Catalog, table: Table, own: str | None) -> tuple[list[Neighbour], str]:
    """Return the catalog's other tables and views, and a text that names what could not be read.

    `own`: the name of the table's catalog if it is this catalog, even if this catalog was opened under another name.
    """
    from pyiceberg.catalog.sql import SqlCatalog

    if isinstance(catalog, SqlCatalog):
        return _of_database(catalog, table, own), ""
    return _of_listing(catalog, table, own)


def _of_source_catalog(platform: Platform, name: str, table: Table) -> tuple[list[Neighbour], str]:
    """Return the tables of a catalog of `platform.source_catalogs`, and a text that names what could not be read."""
    try:
        catalog = open_catalog(platform.reading(name))
        uri = catalog.properties.get("uri")
        is_own = uri is not None and uri == table.catalog.properties.get("uri")  # the same catalog with another login
        return _neighbours(catalog, table, table.catalog.name if is_own else None)
    except CleantailError as e:
        return [], str(e)


def _of_database(catalog: Any, table: Table, own: str | None) -> list[Neighbour]:
    """Return the tables of every catalog in the database: they may share a store."""
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import select
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.orm import Session

    table_key = (own, *_identifier(table))
    names = (IcebergTables.catalog_name, IcebergTables.table_namespace, IcebergTables.table_name)
    try:
        with Session(catalog.engine) as session:
            entries = session.execute(select(*names, IcebergTables.metadata_location)).all()
    except SQLAlchemyError as e:
        raise TableError(f"catalog {catalog.name} cannot be reached: {type(e).__name__}") from None
    others = [(entry[:3], str(entry[3])) for entry in entries if tuple(entry[:3]) != table_key and entry[3]]
    with ThreadPoolExecutor(READ_THREADS) as pool:
        read = pool.map(lambda other: known_locations(catalog.properties, other[1]), others)
        return [
            Neighbour(".".join(key[1:] if key[0] == own else key), locations)
            for (key, _), locations in zip(others, read, strict=True)
        ]


def _identifier(table: Table) -> tuple[str, str]:
    *namespace, name = table.name()
    return ".".join(namespace), name


def _of_listing(catalog: Catalog, table: Table, own: str | None) -> tuple[list[Neighbour], str]:
    """Return the tables that the catalog lists, and a count of refusals. Costs a request per namespace and table."""
    names, refused = _listed(catalog)
    own_name, prefix = (_identifier(table), "") if own else (None, f"{catalog.name}.")
    with ThreadPoolExecutor(READ_THREADS) as pool:
        loaded = list(pool.map(lambda name: _loaded(catalog, name, prefix), [n for n in names if n != own_name]))
    hidden = refused + sum(1 for neighbour in loaded if neighbour is None)
    text = f"{hidden} namespaces or tables of catalog {catalog.name} are hidden from this login"
    return [neighbour for neighbour in loaded if neighbour is not None], text if hidden else ""


def _listed(catalog: Catalog) -> tuple[list[tuple[str, str]], int]:
    """Return (namespace, name) of all tables, and the number of refused listings."""
    names: list[tuple[str, str]] = []
    waiting: list[tuple[str, ...]] = [()]
    refused = 0
    while waiting:
        namespace = waiting.pop()
        try:
            if namespace:
                names += [(".".join(t[:-1]), t[-1]) for t in catalog.list_tables(namespace)]
            waiting += [n for n in catalog.list_namespaces(namespace) if len(n) > len(namespace)]
        except Exception:  # forbidden or unsupported: each server answers in its own way
            refused += 1
    return names, refused


def _loaded(catalog: Catalog, name: tuple[str, str], prefix: str) -> Neighbour | None:
    try:
        other = catalog.load_table(name)
    except Exception:  # forbidden, or dropped meanwhile
        return None
    return Neighbour(prefix + ".".join(name), locations_of(other.location(), other.properties))
