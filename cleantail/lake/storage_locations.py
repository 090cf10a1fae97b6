"""Compare locations of tables, regardless of the spelling of their addresses.

The module is pure, except that it follows links and reads other tables' metadata.

`file:/a`, `file:///a/`, `/a` and `/b/../a` are one folder, and so are `s3a://b/x` and `s3://b/x`. Links of local
folders are followed. Only a table's own files may be deleted below its location. So two tables are refused if one is in
the other's folder, even if their file names are unlikely to collide.

The platform's catalog does not list tables of other catalogs. Their metadata files show that they exist:

1. Each `*.metadata.json` below the location of a table must have the UUID of that table.
2. The location may be within the data of another table: below a folder `data`, `metadata` or of a partition, such as
   `day=1`. Each `*.metadata.json` in that table's folder `metadata` must also have the UUID of the first table.
3. A file that was written before the table's own oldest file is not the table's.
4. Two machines may create a topic's table at the same moment. The catalog refuses one of them, and its first metadata
   file may stay. This file names the same location and topic, and no snapshot, so it owns no file. It blocks no table.
   It is not deleted, because another catalog could need it. Cleantail writes such a file for each table whose metadata
   it alone writes (keep_first_metadata).

Only the store's listing and the files themselves count, because the table's owner writes the times in its metadata.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import posixpath
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from cleantail.config.topic_table import PROPERTY_FORMAT, PROPERTY_SIDE_OF, PROPERTY_TOPIC
from cleantail.errors import TableError
from cleantail.lake.metadata_guards import metadata_text, parsing

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table


logger = logging.getLogger("cleantail.storage_locations")
READ_THREADS = 16
DELETES_OLD_METADATA = "write.metadata.delete-after-commit.enabled"
METADATA_FILE = re.compile(r"\.metadata\.json(\.gz)?$")
FIRST_METADATA = re.compile(r"(^|/)00000-[^/]*\.metadata\.json(\.gz)?$")
"""Matches the name of the first metadata file of a table, by Iceberg's catalogs. No reclaim removes it (rule 4)."""
HEAD_BYTES = 65_536
"""Number of bytes in which the UUID is searched. Every known writer puts it into the first kilobyte of the text."""
_UUID = re.compile(rb'"table-uuid"\s*:\s*"([^"]{1,64})"')


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of a listing, with the time of the store (Unix ms). The path has no scheme."""

    path: str
    size: int
    written_ms: int
    open: Callable[[str], Any]

    @property
    def name(self) -> str:
        return posixpath.basename(self.path)


def require_safe_commits(table: Table) -> None:
    """Raise TableError if a commit to the table would delete metadata files of others.

    Such files are outside its location, or have the UUID of another table. If the table's property lets each commit
    delete the oldest files, this reads the first bytes of each file in the metadata log.
    """
    if not deletes_old_metadata(table.properties.get(DELETES_OLD_METADATA)):
        return
    name, own = ".".join(table.name()[-2:]), str(table.metadata.table_uuid).lower()
    log = [entry.metadata_file for entry in table.metadata.metadata_log]
    require_inner_log(name, table.location(), log)
    with ThreadPoolExecutor(READ_THREADS) as pool:
        uuids = pool.map(partial(_uuid_in, lambda path: table.io.new_input(path).open()), log)
        for path, uuid in zip(log, uuids, strict=True):
            if uuid not in (None, own):
                raise _other_table(name, table.location(), path, str(uuid))


def deletes_old_metadata(value: str | None) -> bool:
    """Return whether this value of the property lets each commit delete the oldest files of the metadata log."""
    return (value or "").strip().lower() == "true"


OWNER = (PROPERTY_TOPIC, PROPERTY_SIDE_OF, PROPERTY_FORMAT)
NO_SNAPSHOT = {
    "current-snapshot-id": -1,
    "last-sequence-number": 0,
    "refs": {},
    **dict.fromkeys(("snapshots", "snapshot-log", "metadata-log", "statistics", "partition-statistics"), []),
}
"""Fields of a metadata file, with the values of a table without a snapshot."""


def stored_bytes(table: Table) -> tuple[int, int]:
    """Return (bytes in the table's folder `metadata`, bytes of all other files below the table's folder)."""
    sizes = Counter[bool]()
    for file in files_below(table.io, table.location()):
        sizes["/metadata/" in file.path] += file.size
    return sizes[True], sizes[False]


def keep_first_metadata(table: Table) -> None:
    """Write a first metadata file of the table, without its snapshots, unless an earlier call did.

    Commits delete old metadata files, and snapshots expire. So the table's oldest file would soon be younger than the
    files that `reclaim` should remove (rule 3). No commit and no `reclaim` deletes the first metadata file. After the
    table was dropped, this file blocks no later table in the folder (rule 4). Use it only for tables whose metadata
    only Cleantail writes. An error of the store is only logged, because it only means that more files stay."""
    folder = table.metadata_location.rpartition("/")[0]
    first = table.io.new_output(f"{folder}/00000-first-{table.metadata.table_uuid}.metadata.json")
    try:
        if not first.exists():
            owned = {name: value for name in OWNER if (value := table.properties.get(name)) is not None}
            now = metadata_text(table.io.new_input(table.metadata_location))
            document = json.loads(now) | NO_SNAPSHOT | {"properties": owned}
            with first.create() as stream:
                stream.write(json.dumps(document).encode())
    except Exception as e:  # each store has its own errors
        logger.warning("%s has no first metadata file: %s", ".".join(table.name()[-2:]), type(e).__name__)


def oldest_own_file_ms(table: Table) -> int | None:
    """Return the time (Unix ms) of the table's oldest own metadata file, or None without one.

    Raises TableError if metadata of another table are in the folder or around it, except for rule 4. Lists the folder,
    and reads the first bytes of each metadata file in it, 16 at a time.
    """
    name, own = ".".join(table.name()[-2:]), str(table.metadata.table_uuid).lower()
    named = {posixpath.basename(s.manifest_list) for s in table.metadata.snapshots if s.manifest_list}
    metadata, oldest_ms = [], None
    try:
        for file in files_below(table.io, table.location()):
            if METADATA_FILE.search(file.name):
                metadata.append(file)
            elif file.name in named:
                oldest_ms = min(file.written_ms, oldest_ms or file.written_ms)
    except Exception as e:  # each store has its own errors
        raise TableError(
            f"the folder {table.location()} of table {name} cannot be listed: {type(e).__name__}; nothing was "
            "changed. Allow the login of the warehouse to list it"
        ) from None
    with ThreadPoolExecutor(READ_THREADS) as pool:
        uuids = pool.map(lambda file: _uuid_in(file.open, file.path), metadata)
        for file, uuid in zip(metadata, uuids, strict=True):
            if uuid == own:
                oldest_ms = min(file.written_ms, oldest_ms or file.written_ms)
            elif uuid is not None and not _is_refused_creation(file, table):
                raise _other_table(name, table.location(), file.path, uuid)
        around = [file for folder in _around(table.location()) for file in _metadata_in(table.io, folder)]
        uuids = pool.map(lambda file: _uuid_in(file.open, file.path), around)
        for file, uuid in zip(around, uuids, strict=True):
            if uuid not in (None, own):
                raise _other_table(name, table.location(), file.path, str(uuid))
    return oldest_ms


def _is_refused_creation(file: ListedFile, table: Table) -> bool:
    """Return whether a metadata file is from a refused creation of this table (rule 4)."""
    if not FIRST_METADATA.search(file.name):
        return False
    try:
        with file.open(file.path) as stream:
            document = json.loads(_unpacked(stream.read(HEAD_BYTES))[0])
        made, own = document["properties"], table.properties
        is_first = document["last-sequence-number"] == 0
        is_first = is_first and not any(document.get(part) for part in ("snapshots", "metadata-log", "refs"))
        is_here = folder_location(document["location"]) == folder_location(table.location())
    except Exception:  # an error of a store or of a damaged file, or a longer file than Cleantail writes
        return False
    is_ours = all(made.get(key) == own.get(key) for key in (PROPERTY_TOPIC, PROPERTY_SIDE_OF))
    return is_first and is_here and is_ours and (PROPERTY_FORMAT in made or PROPERTY_SIDE_OF in made)


def require_inner_log(name: str, location: str, log: Sequence[str]) -> None:
    """Raise TableError if a file of the metadata log is outside the table's location.

    Call this for a table whose commits delete such files.
    """
    if foreign_files := files_outside(log, location):
        raise TableError(
            f"table {name} has {DELETES_OLD_METADATA}=true, and its metadata log names {foreign_files[0]}, which is "
            f"outside its location {location}: a commit would delete it; nothing was changed. Set the property to "
            "false until the log names no such file"
        )


@dataclass(frozen=True, slots=True)
class OwnFolders:
    """The folders of an adopted table's files: its location, and `platform.imported_folders`.

    Without this limit, the owner of the metadata could name another topic's file, which would be read, shown and
    copied.
    """

    name: str
    location: str
    imported: Sequence[str]

    def require(self, files: Iterable[str]) -> None:
        """Raise TableError if one of the files is outside these folders."""
        foreign_files = files_outside(set(files), self.location)
        for folder in self.imported:
            foreign_files = files_outside(foreign_files, folder)
        if foreign_files:
            raise TableError(
                f"table {self.name} has a file outside its location {self.location}: {min(foreign_files)}; nothing "
                "was read or changed. Remove it from the table. If the file was added on purpose, list its folder "
                "in platform.imported_folders of defaults.yaml"
            )


def only_own_files(table: Table, imported: Sequence[str]) -> None:
    """Prevent the FileIO of an adopted table from opening files that are not in the table's own folders.

    This applies to manifests, data files and delete files. Otherwise the table's owner could name a file on any store
    or host, to which the platform's logins would be sent.
    """
    io: Any = table.io
    io.__class__ = _of_own_folders(type(table.io))
    io.own_folders = OwnFolders(".".join(table.name()[-2:]), table.location(), imported)


def require_own_files(table: Table, files: Iterable[str]) -> None:
    """Raise TableError if one of the files is not in the table's own folders. Tables that Cleantail made pass."""
    own_folders = getattr(table.io, "own_folders", None)
    if own_folders is not None:
        own_folders.require(files)


@lru_cache
def _of_own_folders(kind: type[FileIO]) -> type[FileIO]:
    """Return a FileIO of that kind which checks `own_folders` before it opens a file.

    Metadata files are exempt, because the catalog names them.
    """

    class OwnFiles(kind):  # type: ignore[misc, valid-type]
        own_folders: OwnFolders

        def new_input(self, location: str) -> Any:
            if CUTS.search(location) or not METADATA_FILE.search(location):
                self.own_folders.require([location])
            return super().new_input(location)

    OwnFiles.__name__, OwnFiles.__qualname__, OwnFiles.__module__ = kind.__name__, kind.__qualname__, kind.__module__
    return OwnFiles


def _other_table(name: str, location: str, path: str, uuid: str) -> TableError:
    return TableError(
        f"table {name} lies at {location}, and {path} is metadata of another table ({uuid}): its files could be "
        f"deleted as those of {name}; nothing was changed. Give each table a separate folder. If the other table was "
        "dropped, delete its remaining files by hand"
    )


def _around(location: str) -> list[str]:
    """Return the folders `metadata` of all tables whose files may contain the location (rule 2)."""
    scheme, separator, rest = location.rstrip("/").partition("://") if "://" in location else ("", "", location)
    prefix = scheme + separator
    if not separator and rest.startswith("file:"):
        prefix, rest = "file:", rest.removeprefix("file:")
    parts = rest.rstrip("/").split("/")
    lowest = 2 if separator and not rest.startswith("/") else 1  # a bucket or host is not a folder
    below = [n for n in range(lowest, len(parts)) if parts[n] in ("data", "metadata") or "=" in parts[n]]
    return [f"{prefix}{'/'.join([*parts[:n], 'metadata'])}" for n in reversed(below)]


def _metadata_in(io: Any, folder: str) -> list[ListedFile]:
    """Return the metadata files of one folder. Empty if this login may not list it."""
    try:
        return [file for file in files_below(io, folder, deep=False) if METADATA_FILE.search(file.name)]
    except Exception:  # each store has its own errors, and a login may have no rights outside its own folder
        return []


def files_below(io: Any, folder: str, deep: bool = True) -> Iterator[ListedFile]:
    """Yield the files below a folder. Yields none if the folder does not exist."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    if isinstance(io, PyArrowFileIO):
        from pyarrow.fs import FileSelector

        scheme, host, path = io.parse_location(folder, io.properties)
        files = io.fs_by_scheme(scheme, host)
        for info in files.get_file_info(FileSelector(path, allow_not_found=True, recursive=deep)):
            if info.is_file:
                yield ListedFile(info.path, info.size, (info.mtime_ns or 0) // 1_000_000, files.open_input_stream)
        return
    store = io._get_fs_from_uri(urlparse(folder), folder)
    for path, facts in store.find(folder, maxdepth=None if deep else 1, detail=True).items():
        yield ListedFile(path, int(facts.get("size") or 0), _time_ms(facts), partial(store.open, mode="rb"))


def _time_ms(facts: dict[str, Any]) -> int:
    """Return the time (Unix ms) of a file, from the keys that fsspec's stores use. 0 without a time."""
    from datetime import datetime

    values = (facts.get(key) for key in ("LastModified", "last_modified", "updated", "mtime", "created"))
    value = next((value for value in values if value), 0)
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return int((value.timestamp() if isinstance(value, datetime) else float(value)) * 1000)


def _uuid_in(open_file: Callable[[str], Any], path: str) -> str | None:
    """Return the UUID of a metadata file's table. None if the file has no UUID or was deleted.

    A truncated file of a killed writer belongs to no readable table. Raises TableError if the file cannot be read.
    """
    try:
        with open_file(path) as stream:
            head = stream.read(HEAD_BYTES)
    except FileNotFoundError:  # deleted before
        return None
    except Exception as e:
        raise TableError(
            f"{path} cannot be read: {type(e).__name__}. It may be metadata of another table; nothing was changed. "
            "Allow the login of the warehouse to read it, or move it out of the folder"
        ) from None
    return uuid_in(head, path)


def uuid_in(head: bytes, path: str) -> str | None:
    """Return the UUID of a metadata file's table, from the file's first HEAD_BYTES. None without a UUID.

    Raises TableError if the file is compressed and damaged before its UUID. A full disk damages files behind the UUID.
    """
    text, is_whole = _unpacked(head)
    found = _UUID.search(text)
    if found is None and not is_whole:
        raise TableError(f"{path} is compressed and damaged: it may be metadata of another table")
    return found[1].decode(errors="replace").lower() if found else None


def _unpacked(head: bytes) -> tuple[bytes, bool]:
    """Return the text up to its first damaged byte, and whether no byte is damaged."""
    if head[:2] != b"\x1f\x8b":
        return head, True
    with contextlib.suppress(zlib.error):
        return zlib.decompressobj(31).decompress(head, HEAD_BYTES), True
    stream, text = zlib.decompressobj(31), b""
    with contextlib.suppress(zlib.error):
        for byte in head:
            text += stream.decompress(bytes([byte]), HEAD_BYTES)
    return text, False


_ALIASES = {
    **dict.fromkeys(("s3a", "s3n"), "s3"),
    **dict.fromkeys(("abfss", "wasb", "wasbs", "adl"), "abfs"),
    **dict.fromkeys(("webhdfs", "swebhdfs", "hftp", "viewfs"), "hdfs"),
    "gcs": "gs",
    "cosn": "cos",
    "": "file",
}
"""Scheme -> the usual scheme of the same store."""
_ADDRESSES = (
    (r"([^.]+)\.(?:dfs|blob)\.(?P<rest>.+)", "abfs"),
    (r"(?:.+\.)?s3[.-](?:.+\.)?amazonaws\.com(?:\.cn)?", "s3"),
    (r"(?:.+\.)?storage\.(?:googleapis|cloud\.google)\.com", "gs"),
)
"""Patterns of hosts in http addresses, and their stores."""
_DEFAULT_PORT = re.compile(r":(8020|9870|9871|50070|50470)$")
_PORT = re.compile(r":\d+$")
_FINAL_DOT = re.compile(r"\.(?=:\d+$|$)")
"""Matches the dot at the end of a complete host name in DNS, which does not change the host."""
DATA_PATHS = ("write.data.path", "write.object-storage.path", "write.folder-storage.path")
METADATA_PATH = "write.metadata.path"
PATHS = (*DATA_PATHS, METADATA_PATH)
"""Table properties that move files out of the folders `data` and `metadata` of the location."""

Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StorageLocation:
    """A folder or a file: its store, its bucket or host, and its path, both as written and decoded (%20).

    Both paths count, because clients disagree on them.
    """

    store: str
    authority: str
    paths: tuple[Parts, Parts]


def location_of(location: str) -> StorageLocation:
    """Return the storage location of a folder or a file.

    Links of local folders are followed. A missing folder counts as if it existed.
    """
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
    elif store == "s3" and authority.startswith("arn:"):  # the name of an access point is the first part of the path
        point, _, rest = rest.removeprefix("/").partition("/")
        authority = f"{authority}/{point}"
    return StorageLocation(store, authority, (_parts(rest), _parts(unquote(rest))))


VIEW = "\0view"
"""Prefix of a path in a mount of ViewFs."""


def _is_access_point(authority: str) -> bool:
    """Return whether the name is of an access point, which does not reveal its bucket."""
    return authority.startswith("arn:") or authority.endswith(("-s3alias", "--ol-s3"))


def _of_address(scheme: str, host: str, path: str) -> tuple[str, str, str]:
    """Return the store, authority and path of an http address of a known store. Other addresses stay unchanged."""
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
    """Return the parts of a local path, with the links of its folder followed.

    If the file itself is a link, it is not followed, because a deletion deletes the link.
    """
    folder, _, name = path.rstrip("/").rpartition("/")
    if name in ("", ".", ".."):
        return _parts(_real(path))
    return _parts(f"{_real(folder or '/')}/{name}")


@lru_cache(maxsize=4096)
def _real(folder: str) -> str:
    return os.path.realpath(folder)


def folder_location(location: str) -> StorageLocation:
    """Return the storage location of a folder. If the folder itself is a link, the link's target counts."""
    return location_of(location.rstrip("/") + "/.")


def contains(outer: StorageLocation, inner: StorageLocation) -> bool:
    """Return whether `inner` is or may be `outer`, or may be in it, for any way to read their paths.

    A host of HDFS has many names, so equal paths may be one folder on any two hosts. A mount of ViewFs shows a folder
    by another path with the same last part.
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
    """Return whether one location is, or may be, the other or inside it."""
    return contains(one, other) or contains(other, one)


def surely_inside(file: StorageLocation, folder: StorageLocation) -> bool:
    """Return whether a file is below the folder, for every way to read its path."""
    return (
        file.store == folder.store
        and file.authority == folder.authority
        and all(any(len(p) > len(f) and p[: len(f)] == f for f in folder.paths) for p in file.paths)
    )


def locations_of(location: str, properties: Mapping[str, str]) -> dict[str, StorageLocation]:
    """Return the folders of a table's files: its location, and the folders that its properties name."""
    named = [location, *(properties[name] for name in PATHS if properties.get(name))]
    return {text: folder_location(text) for text in named}


def table_folders(location: str, properties: Mapping[str, str]) -> list[StorageLocation]:
    """Return the folders that only this table writes to. A file there without a snapshot is an orphan of the table.

    The folders are `data` and `metadata` of the location, or folders within the location that properties name instead.
    """
    root = folder_location(location)
    base = location.rstrip("/")
    data = next((properties[name] for name in DATA_PATHS if properties.get(name)), f"{base}/data")
    folders = [folder_location(text) for text in (data, properties.get(METADATA_PATH) or f"{base}/metadata")]
    return [folder for folder in folders if surely_inside(folder, root)]


CUTS = re.compile(r"[?#\x00-\x1f]")
"""Matches characters at which clients of stores end a path, or which they drop.

PyArrow and Iceberg's S3FileIO open `s3://b/other/f#/../../own/f` as `s3://b/other/f`. Iceberg's writers encode these
characters in partition values.
"""


def files_outside(files: Iterable[str], location: str) -> list[str]:
    """Return the files that may lie outside the location. A path with one of CUTS always counts as outside."""
    root = folder_location(location)
    return [file for file in files if CUTS.search(file) or not surely_inside(location_of(file), root)]


def metadata_folder(metadata_location: str) -> dict[str, StorageLocation]:
    folder = posixpath.dirname(metadata_location)
    return {folder: folder_location(folder)} if folder else {}


def known_locations(properties: Mapping[str, str], metadata_location: str) -> Mapping[str, StorageLocation]:
    """Return the folders of files of a metadata file's table.

    If the metadata file cannot be read, returns the folders that most tables use, so that a broken table blocks only
    its own folder. `properties`: of the catalog, for its FileIO.
    """
    try:
        return _locations_in(tuple(sorted(properties.items())), metadata_location)
    except Exception:  # any error of a store or of a broken file
        folder = posixpath.dirname(metadata_location)
        root = posixpath.dirname(folder) if posixpath.basename(folder) == "metadata" else folder
        return metadata_folder(metadata_location) | {root: folder_location(root)}


@lru_cache(maxsize=20_000)
def _locations_in(properties: tuple[tuple[str, str], ...], metadata_location: str) -> Mapping[str, StorageLocation]:
    """Return the folders of files of a metadata file's table.

    A process reads a metadata file only once, because it never changes.
    """
    from pyiceberg.io import load_file_io

    text = metadata_text(load_file_io(dict(properties), metadata_location).new_input(metadata_location))
    with parsing(text):
        document = json.loads(text)
    return metadata_folder(metadata_location) | locations_of(
        str(document["location"]), document.get("properties") or {}
    )
