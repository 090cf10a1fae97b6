"""Adapter: facts in manifests that PyIceberg 0.12 does not read.

These facts are delete files, each with its data file, and the row lineage of data files (cleantail.log.adopted_table).

A data file's first row id is in its manifest entry, or follows from the manifest's first row id in the manifest list.
Manifests never change, and a manifest gets its first row id only once, so a process caches what it has read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cleantail.errors import CleantailError, ConflictError, TableError
from cleantail.human import counted, one_line
from cleantail.lake.metadata_guards import avro_file
from cleantail.lake.position_deletes import POSITIONS, VECTORS, DeleteFile, only_data_file
from cleantail.lake.records.topic_columns import columns_of_properties
from cleantail.log.adopted_table import LAST_UPDATED, LINEAGE_IDS, ROW_ID, Lineage, Span, Spans, spans_of_metrics

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot


DATA, DELETES = 0, 1
"""Content types of a manifest."""


REWRITE = (
    "Iceberg can rewrite the data files without the deleted rows: CALL system.rewrite_data_files(table => …, "
    "options => map('rewrite-all', 'true', 'use-starting-sequence-number', 'false')), twice"
)
"""The first commit rewrites the data files. The second drops the delete files, which no data file uses any more."""


EQUALITY = 2
"""Content type of an equality delete file, which names values of columns."""
ENTRY_DELETED = 2
"""Status of a manifest entry whose file is no longer in the table."""


DAMAGE = (
    "Put the file back from a backup, or from an earlier version of the object. Or make an older snapshot current by "
    "Iceberg's procedure rollback_to_snapshot"
)


@contextmanager
def named_if_damaged(table: Table, path: str, snapshot_id: int | None = None) -> Iterator[None]:
    """Raise TableError, with table and file, for a file of a snapshot that is missing or cannot be read. Raises
    ConflictError for a missing file if the snapshot has expired meanwhile. `snapshot_id`: by default the current one.

    Errors of a network or a store are not damage and are raised unchanged.
    """
    name = ".".join(table.name()[-2:])
    try:
        yield
    except CleantailError:
        raise
    except FileNotFoundError:
        read = snapshot_id or table.metadata.current_snapshot_id
        if read is not None and _has_expired(table, read):
            text = f"table {name} was changed while it was read, and {path} was removed: run the command again"
            raise ConflictError(text) from None
        raise TableError(f"table {name} is broken: {path} is missing. {DAMAGE}") from None
    except Exception as e:
        if isinstance(e, OSError) and not isinstance(e, PermissionError | IsADirectoryError | NotADirectoryError):
            raise
        raise TableError(f"table {name} is broken: {path} cannot be read: {type(e).__name__}. {DAMAGE}") from None


def _has_expired(table: Table, snapshot_id: int) -> bool:
    """Return whether a snapshot of the loaded table is no longer in its catalog's. False if the catalog fails."""
    try:
        return table.catalog.load_table(table.name()).snapshot_by_id(snapshot_id) is None
    except Exception:  # the caller reports the missing file
        return False


def manifests_of(table: Table, snapshot: Snapshot) -> list[ManifestFile]:
    with named_if_damaged(table, snapshot.manifest_list, snapshot.snapshot_id):
        return list(snapshot.manifests(table.io))


def content_of(file: ManifestFile | IcebergFile) -> int:
    """Return DATA or DELETES. For a table in format version 1, PyIceberg returns the plain number."""
    return int(getattr(file.content, "value", file.content))


@dataclass(frozen=True, slots=True)
class ForeignDelete:
    """A delete file that does not belong to a single data file.

    `by_value`: whether it names values of columns (an equality delete).
    """

    path: str
    format: str
    records: int
    by_value: bool


def deletes_of(table: Table, manifest: ManifestFile, *, pass_foreign: bool = False) -> Iterator[DeleteFile]:
    """Yield the delete files of a manifest. Raises TableError for a delete file without a single data file.

    With `pass_foreign` such a file is skipped, as if its records were alive.
    """
    for delete in entries_of_deletes(table, manifest):
        if isinstance(delete, ForeignDelete):
            if pass_foreign:
                continue
            raise TableError(_refusal(delete, ".".join(table.name()[-2:])))
        if delete.format not in (VECTORS, POSITIONS):
            raise TableError(
                f"{delete.path} has position deletes as {delete.format}, and only Parquet can be read. {REWRITE}"
            )
        yield delete


def _refusal(delete: ForeignDelete, table: str) -> str:
    convert = f"`cleantail convert-deletes {table}` converts them. " if delete.format == POSITIONS else ""
    return (
        f"{delete.path} deletes rows of more than one data file, or by values of columns; Cleantail reads tables whose "
        f"deletes are of one data file each (deletion vectors, or position deletes). {convert}{REWRITE}"
    )


def entries_of_deletes(table: Table, manifest: ManifestFile) -> Iterator[DeleteFile | ForeignDelete]:
    """Yield all delete files of a manifest.

    PyIceberg 0.12 reads entries with the schema of version 2, which lacks the data file of a deletion vector. Its own
    schema of version 3 has that field. For position deletes (version 2) the bounds contain the name.
    """
    with named_if_damaged(table, manifest.manifest_path):
        for sequence_number, _, file in _live_entries(table.io, manifest.manifest_path):
            inherited = manifest.sequence_number if sequence_number is None else sequence_number
            yield _delete_file(file, inherited or 0)


def _live_entries(io: FileIO, manifest_path: str) -> Iterator[tuple[int | None, int | None, dict[str, Any]]]:
    """Yield (data sequence number, file sequence number, fields of the file) of each live entry, with all fields of
    format version 3. A file that is registered again may keep the first number, and gets a new second one."""
    from pyiceberg.manifest import DATA_FILE_TYPE, MANIFEST_ENTRY_SCHEMAS, DataFile, ManifestEntry

    names = [field.name for field in DATA_FILE_TYPE[3].fields]
    types: Any = {-1: ManifestEntry, 2: DataFile}
    with avro_file()(io.new_input(manifest_path), MANIFEST_ENTRY_SCHEMAS[3], types) as entries:
        for entry in entries:
            if entry.status != ENTRY_DELETED:
                file = {name: entry.data_file[i] for i, name in enumerate(names)}
                yield entry.sequence_number, entry.file_sequence_number, file


def _delete_file(file: Mapping[str, Any], sequence_number: int) -> DeleteFile | ForeignDelete:
    path, kind = str(file["file_path"]), str(getattr(file["file_format"], "value", file["file_format"])).upper()
    by_value = int(getattr(file["content"], "value", file["content"])) == EQUALITY
    of = file["referenced_data_file"] or only_data_file(file["lower_bounds"], file["upper_bounds"])
    if of is None or by_value:
        return ForeignDelete(path, kind, int(file["record_count"]), by_value)
    start, length = (int(file[name] or 0) for name in ("content_offset", "content_size_in_bytes"))
    return DeleteFile(str(of), path, kind, int(file["record_count"]), sequence_number, start, length)


MANIFEST_READERS = 8
CACHED_FILES = 100_000
"""Maximum number of files with cached lineage."""
Lineages = Mapping[str, Lineage]
NO_LINEAGES: Lineages = {}
_manifests: dict[tuple[str, int | None], Lineages] = {}
_spans_by_file: dict[str, Spans] = {}


def lineages_where_needed(table: Table, snapshot: Snapshot | None) -> Lineages:
    """Return lineages_of an adopted table if its offsets are made of row lineage. Empty for any other table."""
    return lineages_of(table, snapshot) if _makes_offsets(table) else NO_LINEAGES


def lacks_row_ids(table: Table, snapshot: Snapshot) -> bool:
    """Return whether the table's offsets are made of row ids that its records lacked at that snapshot."""
    return _makes_offsets(table) and snapshot.first_row_id is None


def _makes_offsets(table: Table) -> bool:
    columns = columns_of_properties(table.properties)
    return columns is not None and not columns.has_offsets


def lineages_of(table: Table, snapshot: Snapshot | None) -> Lineages:
    """Return data file -> the lineage that its records inherit, for the files of a snapshot.

    A file that is registered more than once has the lineage of its first registration.
    """
    if snapshot is None:
        return {}
    lineages: dict[str, Lineage] = {}
    listed = f"a manifest of snapshot {snapshot.snapshot_id}"
    with named_if_damaged(table, listed, snapshot.snapshot_id), ThreadPoolExecutor(MANIFEST_READERS) as threads:
        for of_manifest in threads.map(lambda m: _of_manifest(table.io, m), list(_manifests_of(table, snapshot))):
            for path, lineage in of_manifest.items():
                lineages[path] = lineage.or_earlier(lineages.get(path))
    return lineages


def _manifests_of(table: Table, snapshot: Snapshot) -> Iterator[Any]:
    """Yield the manifests of data files, with all fields of format version 3."""
    from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS, ManifestFile, PartitionFieldSummary

    schema = MANIFEST_LIST_FILE_SCHEMAS[3]
    types: Any = {-1: ManifestFile, 508: PartitionFieldSummary}
    names = [field.name for field in schema.fields]
    with avro_file()(table.io.new_input(snapshot.manifest_list), schema, types) as manifests:
        for manifest in manifests:
            facts = {name: manifest[number] for number, name in enumerate(names)}
            if int(getattr(facts["content"], "value", facts["content"]) or 0) == DATA:
                yield facts


def _of_manifest(io: FileIO, manifest: Mapping[str, Any]) -> Lineages:
    key = (str(manifest["manifest_path"]), manifest["first_row_id"])
    if (known := _manifests.get(key)) is None:
        known = dict(_entries(io, manifest))
        if sum(map(len, list(_manifests.values()))) >= CACHED_FILES:
            _manifests.clear()
        _manifests[key] = known
    return known


def _entries(io: FileIO, manifest: Mapping[str, Any]) -> Iterator[tuple[str, Lineage]]:
    """Yield each live data file of a manifest, with its lineage.

    A file without a first row id gets the next id after the files before it (Iceberg's specification, First Row ID
    Inheritance).
    """
    next_id = manifest["first_row_id"]
    for _, sequence_number, file in _live_entries(io, str(manifest["manifest_path"])):
        first = file["first_row_id"]
        if first is None and next_id is not None:
            first, next_id = next_id, next_id + int(file["record_count"])
        inherited = manifest["sequence_number"] if sequence_number is None else sequence_number
        yield str(file["file_path"]), Lineage(first, int(inherited or 0))


def spans_of(table: Table, file: Any) -> Spans:
    """Return the row lineage in the file itself: from its manifest, else from its lineage columns.

    A process reads these columns once.
    """
    path = str(file.file_path)
    if (known := _spans_by_file.get(path)) is None:
        metrics = (file.null_value_counts or {}, file.lower_bounds or {}, file.upper_bounds or {})
        if (known := spans_of_metrics(*metrics)) is None:
            with table.io.new_input(path).open() as source:
                parquet = open_parquet(source, path)
                names = _lineage_names(parquet.schema_arrow)
                known = _span(parquet, names.get(ROW_ID)), _span(parquet, names.get(LAST_UPDATED))
        if len(_spans_by_file) >= CACHED_FILES:
            _spans_by_file.clear()
        _spans_by_file[path] = known
    return known


def open_parquet(source: Any, path: str, records: int | None = None, buffer_size: int = 0) -> Any:
    """Open a data file as pyarrow's ParquetFile. `records`: their number by the table's metadata.

    Raises TableError if the file is damaged or has another number of records.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(source, buffer_size=buffer_size)
    except pa.ArrowException as e:
        raise TableError(f"{path} is not a Parquet file, or is damaged: {one_line(str(e))}") from None
    found = file.metadata.num_rows
    if records is not None and found != records:
        raise TableError(f"{path} has {counted(found, 'record')}, but {records} by its metadata")
    return file


def _lineage_names(schema: Any) -> dict[str, str]:
    """Return the names of a file's lineage columns, found by their field ids."""
    names = {int((field.metadata or {}).get(b"PARQUET:field_id", -1)): field.name for field in schema}
    return {name: names[number] for name, number in LINEAGE_IDS.items() if number in names}


def _span(file: Any, name: str | None) -> Span | None:
    import pyarrow.compute as pc

    if name is None or not file.metadata.num_rows:
        return None
    found, nulls = list[tuple[int, int]](), 0
    for batch in file.iter_batches(columns=[name], use_threads=False):  # a small file may have many records
        ends = pc.min_max(batch.column(0))
        nulls += batch.column(0).null_count
        if ends["min"].is_valid:
            found.append((ends["min"].as_py(), ends["max"].as_py()))
    # without bounds, every record inherits its lineage
    return Span(min(low for low, _ in found), max(high for _, high in found), bool(nulls)) if found else None


def lineage_columns(io: FileIO, path: str) -> dict[str, Any]:
    """Return the file's own lineage columns, for all records, including deleted ones."""
    with io.new_input(path).open() as source:
        file = open_parquet(source, path)
        names = _lineage_names(file.schema_arrow)
        stored = file.read(columns=list(names.values()))
        return {name: stored[column].combine_chunks() for name, column in names.items()}
