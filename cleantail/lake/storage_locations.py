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
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote

from cleantail.lake.metadata_guards import metadata_text, parsing

_ALIASES = {
    **dict.fromkeys(("s3a", "s3n"), "s3"),
    **dict.fromkeys(("abfss", "wasb", "wasbs", "adl"), "abfs"),
    **dict.fromkeys(("webhdfs", "swebhdfs", "hftp", "viewfs"), "hdfs"),
    "gcs": "gs",
    "cosn": "cos",
    "": "file",
}
"""Schemes under which one store is known."""
_ADDRESSES = (
    (r"([^.]+)\.(?:dfs|blob)\.(?P<rest>.+)", "abfs"),
    (r"(?:.+\.)?s3[.-](?:.+\.)?amazonaws\.com(?:\.cn)?", "s3"),
    (r"(?:.+\.)?storage\.(?:googleapis|cloud\.google)\.com", "gs"),
)
"""Hosts of http addresses -> the store that they are of."""
_DEFAULT_PORT = re.compile(r":(8020|9870|9871|50070|50470)$")
_PORT = re.compile(r":\d+$")
_FINAL_DOT = re.compile(r"\.(?=:\d+$|$)")
"""The dot that ends a complete host name in DNS: with and without it the host is the same."""
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
    if store in ("http", "https", "hdfs", "abfs"):
        authority = _FINAL_DOT.sub("", authority)
    if store in ("http", "https"):
        store, authority, rest = _of_address(store, authority.lower(), rest)
    if store == "hdfs":
        rest = f"/{VIEW}{rest}" if scheme.lower() == "viewfs" else rest
        authority = _DEFAULT_PORT.sub("", authority.lower())
    elif store == "abfs":
        authority = _PORT.sub("", authority.lower()).replace(".blob.", ".dfs.")
    elif store == "s3" and authority.startswith("arn:"):  # its name is the first part of the path
        point, _, rest = rest.removeprefix("/").partition("/")
        authority = f"{authority}/{point}"
    return StorageLocation(store, authority, (_parts(rest), _parts(unquote(rest))))


VIEW = "\0view"
"""Begins the path of a folder that is known by a mount of ViewFs alone."""


def _is_access_point(authority: str) -> bool:
    """Returns whether a bucket's name is that of an access point, which says nothing of the bucket behind it."""
    return authority.startswith("arn:") or authority.endswith(("-s3alias", "--ol-s3"))


def _of_address(scheme: str, host: str, path: str) -> tuple[str, str, str]:
    """Returns store, authority and path that an http address of a known store means; any other is as it is written."""
    host = _PORT.sub("", host)
    store = next((store for pattern, store in _ADDRESSES if re.fullmatch(pattern, host)), scheme)
    if store == scheme:
        return scheme, host, path
    first, _, rest = path.removeprefix("/").partition("/")
    if store == "abfs":
        return store, f"{first}@{host}", f"/{rest}"
    bucket = re.match(r"(.+)\.(?:s3[.-]|storage\.)", host)
    return (store, bucket[1], path) if bucket else (store, first, f"/{rest}")


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
    """Returns whether `inner` is `outer` or may lie in it, in any of the ways to read their paths.

    A host of HDFS has many names, so equal paths may be one folder on any two hosts. A mount of ViewFs shows a folder
    by another path, of which the last part stays.
    """
    one, other = outer.authority.lower(), inner.authority.lower()
    unlike = outer.store != "hdfs" and not (_is_access_point(one) or _is_access_point(other))
    return (
        outer.store == inner.store
        and (one == other or not (one and other and unlike))
        and any(_may_begin(folder, path) for folder in outer.paths for path in inner.paths)
    )


def _may_begin(folder: Parts, path: Parts) -> bool:
    if (VIEW in folder[:1]) != (VIEW in path[:1]):
        return not folder or folder[-1] in (VIEW, *path)
    return path[: len(folder)] == folder


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


CUTS = re.compile(r"[?#\x00-\x1f]")
"""Characters at which clients of stores end a path, or which they drop: PyArrow and Iceberg's S3FileIO open
`s3://b/other/f#/../../own/f` as `s3://b/other/f`. Iceberg's writers encode them in the values of partitions."""


def files_outside(files: Iterable[str], location: str) -> list[str]:
    """Return the files that do not surely lie in the location. A path with one of CUTS never does."""
    root = folder_location(location)
    return [file for file in files if CUTS.search(file) or not surely_inside(location_of(file), root)]


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
