"""Search a table for erased keys: in every object below its location, and in every file that its metadata reach.

An erasure scans a table twice. The first scan is the inventory of files to remove. The last scan proves that no such
file is left. Neither uses a reader of the rounds for records and manifests:

1. The store lists the objects. The catalog gives only the location of the metadata.
2. Polars reads the key columns of each Parquet file, even of records that delete files hide. From an object in a
   bucket, only these columns are downloaded.
3. fastavro reads manifests and their lists. A manifest repeats bounds of keys and of values. So a manifest must be
   removed too if it names a file with an erased key. This also holds if it names a deleted file, because the keys of
   that file can no longer be read.
4. Sketches, deletion vectors and delete files by position have no keys. In metadata, the scan searches only names of
   ingested files, and counts names with an erased key as a part. Any other object is *unread*, and prevents a proof.

The scan shows that keys are absent from the listed objects at one time. It does not cover other places.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from io import SEEK_END, BytesIO
from itertools import accumulate, product
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any

from cleantail.errors import CleantailError, ConflictError, TableError
from cleantail.lake.position_deletes import vector_positions
from cleantail.lake.records.topic_columns import joined_parts, key_bytes
from cleantail.lake.storage_locations import files_below
from cleantail.rounds.past_ingestions import SOURCES, unpacked_sources

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

    from cleantail.erasure.erased_keys import ErasedKeys

READ_THREADS = 8
BATCH_RECORDS = 1 << 20
PORTION_BYTES = 8 << 20
"""Maximum size of a download in memory."""
FOOTER_BYTES = 8
"""The end of a Parquet file: the length of its footer, and PAR1."""
ENTRY_DELETED, POSITION_DELETES = 2, 1
POSITION_COLUMNS = {"file_path", "pos"}
"""Columns of a delete file by position. A file with a third column, the deleted row, counts as unread."""
NO_KEYS = (".metadata.json", ".metadata.json.gz", ".puffin", ".stats", ".crc", "version-hint.text")
"""Ends of names of objects without keys. Iceberg's sketches in Puffin files contain only hashes."""
VECTOR_PROPERTIES = {"referenced-data-file", "cardinality"}
"""Properties of a deletion vector in a Puffin file, by Iceberg's specification."""


KeyColumn = tuple[tuple[int, str, str], ...]
"""A column of the key: (field id, name, type in Iceberg) of every field that ever had the column's name or id."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in a manifest. `live`: snapshots of the manifest have the file. `bounded`: the entry has bounds of
    columns."""

    name: str
    live: bool
    bounded: bool


@dataclass(frozen=True, slots=True)
class Holding:
    """A file with erased keys. `records`: all its records. `erased`: records of erased keys. `keys`: numbers of the
    keys."""

    records: int
    erased: int
    keys: frozenset[int] = frozenset()


@dataclass(frozen=True)
class TableScan:
    """The result of one scan of a table. Names are paths below the location, or whole paths outside of it.

    objects    name -> bytes, of all objects below the location
    lists      snapshot -> its manifest list; `manifests`: list -> manifests; `entries`: manifest -> its files
    refs       branch or tag -> snapshot
    others     other files that the metadata name, such as statistics
    holding    files with erased keys
    read       number of Parquet files, and of records in them
    unread     objects that this scan cannot read
    file_names number of names of ingested files, in any metadata, that have an erased key as a part
    """

    table: str
    location: str
    metadata: str
    snapshot_id: int | None
    lists: Mapping[int, str]
    refs: Mapping[str, int]
    objects: Mapping[str, int]
    manifests: Mapping[str, tuple[str, ...]]
    entries: Mapping[str, tuple[Entry, ...]]
    others: frozenset[str]
    holding: Mapping[str, Holding]
    read: tuple[int, int]
    unread: tuple[str, ...] = ()
    written_ms: Mapping[str, int] = field(default_factory=dict)
    file_names: int = 0

    @cached_property
    def tainted(self) -> frozenset[str]:
        """Return the files to remove: files with erased keys, and manifests that may have bounds of such keys."""
        return frozenset(self.holding) | {manifest for manifest in self.entries if self.tainting(manifest)}

    def tainting(self, name: str) -> set[str]:
        """Return the files whose bounds make a manifest tainted. For another file, return the name of the file."""
        entries = self.entries.get(name)
        if entries is None:
            return {name}
        return {e.name for e in entries if e.bounded and (e.name in self.holding or e.name not in self.objects)}

    def is_gone(self, name: str) -> bool:
        """Return whether a file below the location does not exist. False for a file outside of it, which is not
        listed."""
        return name not in self.objects and not _is_outside(name)

    def manifests_of(self, snapshot_id: int) -> tuple[str, ...]:
        return self.manifests.get(self.lists.get(snapshot_id, ""), ())

    def files_of(self, snapshot_id: int) -> set[str]:
        """Return all files of a snapshot: its manifest list, its manifests, and their files."""
        manifests = self.manifests_of(snapshot_id)
        live = (e.name for manifest in manifests for e in self.entries.get(manifest, ()) if e.live)
        return {self.lists[snapshot_id], *manifests, *live}

    def reached(self, snapshots: Iterable[int] | None = None) -> set[str]:
        """Return the files of these snapshots (default: all), and `others`."""
        chosen = self.lists if snapshots is None else snapshots
        return {*self.others}.union(*(self.files_of(snapshot) for snapshot in chosen))

    @property
    def tainted_snapshots(self) -> list[int]:
        return [s for s in self.lists if not self.tainted.isdisjoint({*self.manifests_of(s), *self.files_of(s)})]

    @property
    def missing(self) -> list[str]:
        """Return the files that the metadata reach and the store does not have."""
        return sorted(name for name in self.reached() - self.objects.keys() if name not in self.others)

    def left(self, excluded: Collection[str] = ()) -> list[str]:
        """Return the tainted files, except files that only excluded branches or tags reach."""
        heads = {self.refs[name] for name in excluded if name in self.refs} - {self.snapshot_id}
        kept: set[str] = set().union(*(self.files_of(snapshot) for snapshot in heads))
        return sorted(self.tainted - (kept - self.reached(self.lists.keys() - heads)))

    def kept_by(self, ref: str) -> list[Holding]:
        """Return the files with erased keys that a branch or tag reaches. Empty if the table does not have it."""
        reached = self.files_of(self.refs[ref]) if ref in self.refs else set()
        return [holding for name, holding in self.holding.items() if name in reached]

    def problems(self, excluded: Collection[str] = ()) -> list[str]:
        """Return why this scan proves nothing. Empty if it proves that no erased key is left."""
        left, reached = self.left(excluded), self.reached()
        orphans = [name for name in left if name not in reached]
        wait = (
            "and no snapshot has them. A commit that has just begun may need them: erase again after a day. Move files "
            "away that are older than the table, and those of an adopted table without cleantail.adopted.orphans=remove"
        )
        found = [
            ("have an erased key, or bounds of its record", [name for name in left if name in reached]),
            (f"have an erased key, or bounds of its record, {wait}", orphans),
            ("cannot be read by a scan", list(self.unread)),
            ("are named by the metadata, and the store does not list them", self.missing),
        ]
        return [f"{self.table}: {_named(names)} {what}" for what, names in found if names]


def _named(names: Sequence[str], most: int = 100) -> str:
    """Return the names. A person may have to move each file away: a full disk damages one in each try of a commit."""
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def engine() -> str:
    """Return the readers of a scan, with their versions."""
    return f"polars {version('polars')}, fastavro {version('fastavro')}"


def require_engine() -> None:
    """Raise CleantailError if the readers of the proof are not installed."""
    try:
        import fastavro  # noqa: F401
        import polars  # noqa: F401
    except ImportError as e:
        raise CleantailError(
            f"{e.name} is missing: a proof reads files with it; pip install 'cleantail[erasure]'"
        ) from None


def scan_table(table: Table, keys: ErasedKeys | None, paths: Sequence[str]) -> TableScan:
    """Scan a table for the keys. `paths`: columns of its key, in their order.

    Without `keys`, reads only the metadata, so that `holding` is empty.

    Raises TableError if a file of the metadata cannot be read, or if the table's partitions or file names show keys.
    Raises ConflictError if the metadata name a file that is missing, and a snapshot has expired since the table was
    loaded.
    """
    require_engine()
    store = _Store(table)
    document = store.json_of(table.metadata_location)
    columns = key_columns(document, paths)
    _require_hidden_keys(table, document, paths)
    snapshots = document.get("snapshots", ())
    lists = {int(s["snapshot-id"]): store.name_of(s["manifest-list"]) for s in snapshots}
    refs = {name: int(ref["snapshot-id"]) for name, ref in document.get("refs", {}).items()}
    with ThreadPoolExecutor(READ_THREADS) as threads:
        avro = sorted({*(n for n in store.objects if n.endswith(".avro")), *lists.values()})
        read = dict(zip(avro, threads.map(store.manifest_of, avro), strict=True))
        manifests = {name: content for name, content in read.items() if isinstance(content, _List)}
        entries = {name: content for name, content in read.items() if isinstance(content, _Manifest)}
        outside = {m for of_list in manifests.values() for m in of_list.manifests} - read.keys()
        others = dict(zip(outside, threads.map(store.manifest_of, outside), strict=True))
        entries |= {name: content for name, content in others.items() if isinstance(content, _Manifest)}
        manifest_names = [m for name in lists.values() if name in manifests for m in manifests[name].manifests]
        if lacking := sorted({*lists.values()} - manifests.keys()) + sorted({*manifest_names} - entries.keys()):
            # the snapshot's files are unknown, so no file may be deleted
            _require_snapshots(table, lists)
            raise TableError(f"table {store.table}: {lacking[0]}, which its metadata name, is missing or damaged")
        files = {m: tuple(e.entry(store) for e in content.entries) for m, content in entries.items()}
        live = {e.name for of_manifest in files.values() for e in of_manifest if e.live}
        parquet = sorted({n for n in {*store.objects, *live} if n.endswith(".parquet")}) if keys is not None else []
        found = dict(zip(parquet, threads.map(lambda n: store.keys_in(n, columns, keys), parquet), strict=True))
    unread = {n for n, content in read.items() if content is None and n in store.objects}
    unread |= {n for n, holding in found.items() if holding is None}
    unread |= {n for n in store.objects if not n.endswith((".avro", ".parquet", *NO_KEYS))}
    readable = [holding for holding in found.values() if holding is not None]
    named = {store.name_of(n) for n in _named_besides(document)} | {e.name for of in files.values() for e in of}
    unread |= {n for n in store.objects if keys is not None and n.endswith(NO_KEYS) and not store.is_known(n, named)}
    scan = TableScan(
        table=".".join(table.name()[-2:]),
        location=store.location,
        metadata=store.name_of(table.metadata_location),
        snapshot_id=refs.get("main"),
        lists=lists,
        refs=refs,
        objects=store.objects,
        manifests={name: content.manifests for name, content in manifests.items()},
        entries=files,
        others=frozenset(store.name_of(name) for name in _named_besides(document)),
        holding={n: h for n, h in found.items() if h is not None and h.erased},
        read=(len(readable), sum(h.records for h in readable)),
        unread=tuple(sorted(unread)),
        written_ms=store.written_ms,
        file_names=sum(bool(keys.found(_parts(name)).any()) for name in store.source_names) if keys is not None else 0,
    )
    if scan.missing:
        _require_snapshots(table, lists)
    return scan


def _require_snapshots(table: Table, snapshots: Collection[int]) -> None:
    """Raise ConflictError if one of the snapshots has expired. Then its files may be gone, which is no damage."""
    left = {snapshot.snapshot_id for snapshot in table.catalog.load_table(table.name()).snapshots()}
    if not left >= set(snapshots):
        name = ".".join(table.name()[-2:])
        raise ConflictError(f"table {name} was changed while it was read, and snapshots expired: run the command again")


def _has_only_vectors(puffin: bytes) -> bool:
    """Return whether a file has deletion vectors, which are positions, and nothing else: a round that was given up may
    leave one that no snapshot names."""
    from pyiceberg.table.puffin import PuffinFile

    end = 4
    try:
        for blob in sorted(PuffinFile(puffin).footer.blobs, key=lambda blob: blob.offset):
            is_next = blob.offset == end and blob.type == "deletion-vector-v1"
            if not (is_next and blob.properties.keys() <= VECTOR_PROPERTIES):
                return False
            vector_positions(puffin[end : end + blob.length], "a Puffin file")
            end += blob.length
    except (ValueError, TableError):  # it is damaged; the message may quote it
        return False
    return end == len(puffin) - int.from_bytes(puffin[-12:-8], "little") - 16


@dataclass(frozen=True, slots=True)
class _List:
    manifests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _RawEntry:
    status: int
    content: int
    path: str
    bounded: bool

    def entry(self, store: _Store) -> Entry:
        bounded = self.content != POSITION_DELETES and self.bounded
        return Entry(store.name_of(self.path), self.status != ENTRY_DELETED, bounded)


@dataclass(frozen=True, slots=True)
class _Manifest:
    entries: tuple[_RawEntry, ...]


class _Store:
    """The objects of one table, by their names."""

    def __init__(self, table: Table) -> None:
        self._io, self.table = table.io, ".".join(table.name()[-2:])
        self.location = table.location().rstrip("/")
        listed = list(files_below(table.io, self.location))
        root = self._root([file.path for file in listed])
        self.objects = {file.path[root:]: file.size for file in listed}
        self.written_ms = {file.path[root:]: file.written_ms for file in listed}
        self.source_names: set[str] = set()
        """Names of ingested files in the metadata that were read."""

    def _root(self, paths: Sequence[str]) -> int:
        """Return the length of the location in listed paths, which lack the scheme."""
        bare = self.location.partition("://")[2] or self.location.removeprefix("file:")
        candidates = (bare, "/" + bare.lstrip("/"), bare.lstrip("/"), bare.partition("/")[2])
        return next((len(c) + 1 for c in candidates if c and all(p.startswith(c + "/") for p in paths)), 0)

    def name_of(self, path: str) -> str:
        """Return the path relative to the table's location; unchanged if it is outside."""
        inner = _without_scheme(path).removeprefix(_without_scheme(self.location) + "/")
        return inner if inner != _without_scheme(path) else path

    def path_of(self, name: str) -> str:
        return name if name not in self.objects and _is_outside(name) else f"{self.location}/{name}"

    def content_of(self, name: str) -> bytes:
        with self._io.new_input(self.path_of(name)).open() as stream:
            return bytes(stream.read())

    def is_known(self, name: str, named: Collection[str]) -> bool:
        """Return whether the content of an object fits the end of its name, so that the object has no keys.

        `named`: names in the metadata. Hadoop's checksums have 4 bytes for 512."""
        folder, _, last = name.rpartition("/")
        if last == "version-hint.text":
            return folder == "metadata" and self.content_of(name).strip().isdigit()
        if last.endswith(".crc"):
            size = self.objects.get(f"{folder}/{last[1:-4]}" if folder else last[1:-4])
            return last.startswith(".") and size is not None and self.objects[name] == 8 + 4 * -(-size // 512)
        if last.endswith((".puffin", ".stats")):
            is_small = last.endswith(".puffin") and self.objects[name] <= PORTION_BYTES
            return name in named or (is_small and _has_only_vectors(self.content_of(name)))
        try:
            document = self.json_of(self.path_of(name))
        except Exception:  # of a store or of a damaged file; its message may quote the file
            return False
        return folder == "metadata" and isinstance(document, dict) and "table-uuid" in document

    def json_of(self, path: str) -> dict[str, Any]:
        with self._io.new_input(path).open() as stream:
            content = bytes(stream.read())
        document: dict[str, Any] = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
        for snapshot in document.get("snapshots", ()):
            with suppress(TableError):  # another writer may have the same entry
                if text := snapshot.get("summary", {}).get(SOURCES):
                    self.source_names.update(file.name for file in unpacked_sources(text, SOURCES).files)
        return document

    def manifest_of(self, name: str) -> _List | _Manifest | None:
        """Return a manifest list or a manifest. None if the object is neither, is damaged, or does not exist."""
        import fastavro

        try:
            reader = fastavro.reader(BytesIO(self.content_of(name)))
            rows: list[Any] = list(reader)
        except Exception:  # of a store or of a damaged file; its message may quote the file
            return None
        kind = str(reader.writer_schema["name"]).rpartition(".")[2]  # type: ignore[index, call-overload]
        if kind == "manifest_file":
            return _List(tuple(self.name_of(row["manifest_path"]) for row in rows))
        if kind != "manifest_entry":
            return None
        return _Manifest(tuple(_raw(row["status"], row["data_file"]) for row in rows))

    def keys_in(self, name: str, columns: Sequence[KeyColumn], keys: ErasedKeys | None) -> Holding | None:
        """Count the records of a Parquet file with an erased key. None if the file cannot be read, or has no column for
        a key."""
        assert keys is not None, "the keys of a scan of the metadata alone"
        try:
            return self._keys_in(name, columns, keys)
        except FileNotFoundError:  # another process has just deleted it
            return Holding(0, 0)
        except Exception:  # any error of a store or of a damaged file, which may quote a record
            return None

    def _keys_in(self, name: str, columns: Sequence[KeyColumn], keys: ErasedKeys) -> Holding | None:
        path = self.path_of(name)
        if not _is_local(path) and set("#?") & set(path):
            return None  # PyIceberg would open the object whose name ends there
        if _is_local(path):
            return _found_in(_without_scheme(path), columns, keys)
        with self._io.new_input(path).open() as stream, TemporaryFile("w+b") as copy:
            _download(stream, copy, columns)
            return _found_in(f"/dev/fd/{copy.fileno()}", columns, keys)


def _parts(name: str) -> pa.Array:
    """Return the parts of a file's name to compare with keys, as they are and as JSON texts.

    The parts are the name, its beginnings before a point, and its words."""
    import pyarrow as pa

    stems = accumulate(name.split("."), "{}.{}".format)
    parts = {*stems, *re.split(r"[\W_]+", name)} - {""}
    return pa.array([text.encode() for part in sorted(parts) for text in (part, json.dumps(part))], pa.binary())


def _is_outside(name: str) -> bool:
    """Return whether a name is a whole path, because the file is not below the location."""
    return ":" in name or name.startswith("/")


def _is_local(path: str) -> bool:
    return path.startswith(("/", "file:"))


def _download(stream: Any, copy: IO[bytes], columns: Sequence[KeyColumn]) -> None:
    """Copy the ends of a Parquet file and the chunks of these columns to the same places. The rest stays a hole.

    The copy has no name in a folder, so that it ends with its process. If an engine reads a hole, it fails, because a
    page does not begin with zeros."""
    import pyarrow.parquet as pq

    size = stream.seek(0, SEEK_END) or stream.tell()
    stream.seek(max(size - FOOTER_BYTES, 0))
    length = FOOTER_BYTES + int.from_bytes(stream.read(FOOTER_BYTES)[:4], "little")
    footer = pq.read_metadata(stream)
    ids = _paths_by_id(footer.schema.to_arrow_schema())
    names = {path for column in columns for number, name, _ in column for path in (name, ids.get(number))}
    ranges = [(0, FOOTER_BYTES), (max(size - length, 0), length)]
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for column in (group.column(at) for at in range(group.num_columns)):
            if column.path_in_schema in names:
                starts = (column.dictionary_page_offset, column.data_page_offset)
                ranges.append((min(start for start in starts if start), column.total_compressed_size))
    for start, length in ranges:
        for at in range(start, min(start + length, size), PORTION_BYTES):
            stream.seek(at)
            copy.seek(at)
            copy.write(stream.read(min(PORTION_BYTES, start + length - at)))
    copy.flush()


def _found_in(source: str, columns: Sequence[KeyColumn], keys: ErasedKeys) -> Holding | None:
    import numpy as np
    import polars as pl
    import pyarrow.parquet as pq

    frame = pl.scan_parquet(source, glob=False)
    there = frame.collect_schema()
    if set(there.names()) == POSITION_COLUMNS:
        return Holding(0, 0)
    ids = _paths_by_id(pq.read_schema(source))
    # every field of the file that may be the key, in any schema; more than one after a rename
    parts = [_candidates(column, there, ids) for column in columns]
    if not all(parts) or not parts:
        return None
    names = sorted({name for part in parts for name, _ in part})
    chosen = frame.select(_field(name).alias(name) for name in names)
    records = int(frame.select(pl.len()).collect().item())
    erased, met = 0, set[int]()
    for at in range(0, records, BATCH_RECORDS):
        batch = chosen.slice(at, BATCH_RECORDS).collect().to_arrow(compat_level=pl.CompatLevel.oldest())
        found = np.zeros(batch.num_rows, bool)
        for key in product(*parts):
            entries = keys.entries(_keys(batch, key))
            found |= entries >= 0
            met.update(entries[entries >= 0].tolist())
        erased += int(found.sum())
    return Holding(records, erased, frozenset(met))


def _candidates(column: KeyColumn, there: Mapping[str, Any], ids: Mapping[int, str]) -> list[tuple[str, str]]:
    """Return (name in the file, type) of each field that may be this column: by id, or by name if the file has none of
    the ids."""
    by_id = {ids[number]: kind for number, _, kind in column if number in ids}
    by_name = {name: kind for _, name, kind in column}
    return [(name, kind) for name, kind in (by_id or by_name).items() if _leads_to(there, name)]


def _paths_by_id(schema: pa.Schema) -> dict[int, str]:
    """Return field id -> path of the columns of a Parquet file that have an id. Polars does not read ids."""

    def walk(fields: Iterable[pa.Field], prefix: str) -> Iterator[tuple[int, str]]:
        for each in fields:
            if number := (each.metadata or {}).get(b"PARQUET:field_id"):
                yield int(number), prefix + each.name
            if hasattr(each.type, "fields"):
                yield from walk(each.type.fields, f"{prefix}{each.name}.")

    return dict(walk(schema, ""))


def _raw(status: int, file: Mapping[str, Any]) -> _RawEntry:
    bounded = bool(file.get("lower_bounds") or file.get("upper_bounds"))
    return _RawEntry(status, file.get("content") or 0, file["file_path"], bounded)


def _without_scheme(path: str) -> str:
    scheme, separator, rest = path.partition("://")
    return rest if separator and "/" not in scheme else path.removeprefix("file:")


def _leads_to(schema: Mapping[str, Any], name: str) -> bool:
    first, *rest = name.split(".")
    kind: Any = schema.get(first)
    for step in rest:
        kind = next((f.dtype for f in getattr(kind, "fields", ()) if f.name == step), None)
    return kind is not None


def _field(name: str) -> Any:
    import polars as pl

    first, *rest = name.split(".")
    expression = pl.col(first)
    for step in rest:
        expression = expression.struct.field(step)
    return expression


def _keys(batch: pa.Table, key: Sequence[tuple[str, str]]) -> pa.Array:
    parts = [key_bytes(batch.column(name).combine_chunks(), kind) for name, kind in key]
    return parts[0] if len(parts) == 1 else joined_parts(parts)


def key_columns(document: Mapping[str, Any], paths: Sequence[str]) -> list[KeyColumn]:
    return [tuple(f for f in _fields(document) if f[0] in _ids(document, path)) for path in paths]


def _ids(document: Mapping[str, Any], path: str) -> set[int]:
    return {number for number, name, _ in _fields(document) if name == path}


def _fields(document: Mapping[str, Any]) -> Iterator[tuple[int, str, str]]:
    """Yield (field id, path, type) of the fields of all schemas, except in lists and maps."""
    for schema in document.get("schemas", ()):
        yield from _fields_of(schema, "")


def _fields_of(struct: Mapping[str, Any], prefix: str) -> Iterator[tuple[int, str, str]]:
    for each in struct.get("fields", ()):
        kind = each["type"]
        yield int(each["id"]), f"{prefix}{each['name']}", kind if isinstance(kind, str) else kind["type"]
        if isinstance(kind, dict) and kind["type"] == "struct":
            yield from _fields_of(kind, f"{prefix}{each['name']}.")


def _require_hidden_keys(table: Table, document: Mapping[str, Any], paths: Sequence[str]) -> None:
    """Raise TableError if the table is partitioned by its key, because names of files and manifest lists then show
    keys."""
    ids = {number for path in paths for number in _ids(document, path)}
    for spec in document.get("partition-specs", ()):
        for each in spec["fields"]:
            if each["source-id"] in ids and not str(each["transform"]).startswith(("bucket", "void")):
                raise TableError(
                    f"table {'.'.join(table.name()[-2:])} is partitioned by its key ({each['transform']}): the names "
                    "of its files show keys, so no erasure can prove their absence. Partition it by a bucket of the key"
                )


def _named_besides(document: Mapping[str, Any]) -> Iterator[str]:
    for each in (*document.get("statistics", ()), *document.get("partition-statistics", ())):
        yield each["statistics-path"]
    for each in document.get("metadata-log", ()):
        yield each["metadata-file"]
