"""Says where tables lie, in a form in which two folders can be compared however they are written. Pure, but for links
and what other tables' metadata say.

`file:/a`, `file:///a/`, `/a` and `/b/../a` are one folder, and so are `s3a://b/x` and `s3://b/x`; links of local
folders are followed. What is deleted below a table's location must be the table's own: two tables of which one lies in
the other's folder are refused, however unlikely it is that the names of their files meet.
"""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote

from cleantail.lake.clients.bounded_reads import metadata_text, parsing

_ALIASES = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "wasb": "abfs", "wasbs": "abfs", "gcs": "gs", "": "file"}
"""Schemes under which one store is known."""
DATA_PATHS = ("write.data.path", "write.object-storage.path", "write.folder-storage.path")
METADATA_PATH = "write.metadata.path"
PATHS = (*DATA_PATHS, METADATA_PATH)
"""Table properties that put files elsewhere than into the folders `data` and `metadata` of the location."""

Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StorageLocation:
    """Describes a folder or a file: its store, the bucket or host there, and its path, as written and with %20 and the
    like decoded, since clients do not agree on which of the two it is."""

    store: str
    authority: str
    paths: tuple[Parts, Parts]


def location_of(location: str) -> StorageLocation:
    """Returns the storage location of a folder or a file. Links of local folders are followed; a missing folder is
    where it would be."""
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        scheme, rest = "", location
    store = _ALIASES.get(scheme.lower(), scheme.lower())
    authority = ""
    if rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
    if store == "file":
        return StorageLocation(store, "", (_local(rest), _local(unquote(rest))))
    host = authority.lower().replace(".blob.", ".dfs.") if store == "abfs" else authority
    return StorageLocation(store, host, (_parts(rest), _parts(unquote(rest))))


def _parts(path: str) -> Parts:
    return tuple(part for part in posixpath.normpath("/" + path).split("/") if part)


def _local(path: str) -> Parts:
    """Returns the parts of a local path with the links of its folder followed, but not one that a file itself is:
    deleting that deletes the link."""
    folder, _, name = path.rstrip("/").rpartition("/")
    if name in ("", ".", ".."):
        return _parts(_real(path))
    return _parts(f"{_real(folder or '/')}/{name}")


@lru_cache(maxsize=4096)
def _real(folder: str) -> str:
    return os.path.realpath(folder)


def folder_location(location: str) -> StorageLocation:
    """Returns the storage location of a folder, where a link that the folder itself is counts as what it points to."""
    return location_of(location.rstrip("/") + "/.")


def contains(outer: StorageLocation, inner: StorageLocation) -> bool:
    """Returns whether `inner` is `outer` or may lie in it, in any of the ways to read their paths."""
    same_host = outer.authority == inner.authority or not (outer.authority and inner.authority)
    return (
        outer.store == inner.store
        and same_host
        and any(path[: len(folder)] == folder for folder in outer.paths for path in inner.paths)
    )


def overlap(one: StorageLocation, other: StorageLocation) -> bool:
    """Returns whether one is, or may be, the other or in it."""
    return contains(one, other) or contains(other, one)


def surely_inside(file: StorageLocation, folder: StorageLocation) -> bool:
    """Returns whether a file lies in the folder and below it, in every way to read its path."""
    return (
        file.store == folder.store
        and file.authority == folder.authority
        and all(any(len(p) > len(f) and p[: len(f)] == f for f in folder.paths) for p in file.paths)
    )


def locations_of(location: str, properties: Mapping[str, str]) -> dict[str, StorageLocation]:
    """Returns where a table's files may be: its location, and the folders that its properties name."""
    named = [location, *(properties[name] for name in PATHS if properties.get(name))]
    return {text: folder_location(text) for text in named}


def table_folders(location: str, properties: Mapping[str, str]) -> list[StorageLocation]:
    """Returns the folders in which files that no snapshot knows are a table's own: `data` and `metadata` of the
    location, or what its properties put in their place within it."""
    root = folder_location(location)
    base = location.rstrip("/")
    data = next((properties[name] for name in DATA_PATHS if properties.get(name)), f"{base}/data")
    folders = [folder_location(text) for text in (data, properties.get(METADATA_PATH) or f"{base}/metadata")]
    return [folder for folder in folders if surely_inside(folder, root)]


def files_outside(files: Iterable[str], location: str) -> list[str]:
    """Returns those of the files that do not surely lie in the location."""
    root = folder_location(location)
    return [file for file in files if not surely_inside(location_of(file), root)]


def metadata_folder(metadata_location: str) -> dict[str, StorageLocation]:
    """Returns the folder of a metadata file, by its text."""
    folder = posixpath.dirname(metadata_location)
    return {folder: folder_location(folder)} if folder else {}


def known_locations(properties: Mapping[str, str], metadata_location: str) -> Mapping[str, StorageLocation]:
    """Returns where the table of a metadata file may have files; where the file cannot be read, those of most tables: a
    table that is broken is in nobody's way but by its folder. `properties`: of the catalog, for its FileIO."""
    try:
        return _locations_in(tuple(sorted(properties.items())), metadata_location)
    except Exception:  # whatever a store or a broken file leads to
        folder = posixpath.dirname(metadata_location)
        root = posixpath.dirname(folder) if posixpath.basename(folder) == "metadata" else folder
        return metadata_folder(metadata_location) | {root: folder_location(root)}


@lru_cache(maxsize=20_000)
def _locations_in(properties: tuple[tuple[str, str], ...], metadata_location: str) -> Mapping[str, StorageLocation]:
    """Returns where the table of a metadata file may have files. Each process reads such a file once: it is never
    changed."""
    from pyiceberg.io import load_file_io

    text = metadata_text(load_file_io(dict(properties), metadata_location).new_input(metadata_location))
    with parsing(text):
        document = json.loads(text)
    return metadata_folder(metadata_location) | locations_of(
        str(document["location"]), document.get("properties") or {}
    )
