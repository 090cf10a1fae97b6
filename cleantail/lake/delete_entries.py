"""Adapter: the delete files that a manifest names, each with the data file whose records it deletes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cleantail.errors import CleantailError, TableError
from cleantail.lake.metadata_guards import avro_file
from cleantail.lake.position_deletes import POSITIONS, VECTORS, DeleteFile, only_data_file

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.typedef import StructProtocol

DATA, DELETES = 0, 1
"""What the files of a manifest are."""


REWRITE = (
    "Iceberg itself takes such deletes into the data files: CALL system.rewrite_data_files(table => …, options => "
    "map('rewrite-all', 'true', 'use-starting-sequence-number', 'false')), twice"
)
"""Once writes the data files anew, and the next commit of this kind finds that the deletes are of none any more."""


EQUALITY = 2
"""What a delete file is that names values of columns."""
ENTRY_DELETED = 2
"""Status of a manifest entry whose file is no longer in the table."""


DAMAGE = (
    "Put the file back from a backup, or from an earlier version of the object. Or make an older snapshot current by "
    "Iceberg's procedure rollback_to_snapshot"
)


@contextmanager
def named_if_damaged(table: Table, path: str) -> Iterator[None]:
    """Raises TableError, with table and file, for a file of the table that is missing or cannot be read. A network or a
    store that fails is no damage: its error is raised as it is."""
    name = ".".join(table.name()[-2:])
    try:
        yield
    except CleantailError:
        raise
    except FileNotFoundError:
        raise TableError(f"table {name} is broken: its file {path} is missing. {DAMAGE}") from None
    except Exception as e:
        if isinstance(e, OSError) and not isinstance(e, PermissionError | IsADirectoryError | NotADirectoryError):
            raise
        raise TableError(f"table {name} is broken: {path} cannot be read: {type(e).__name__}. {DAMAGE}") from None


def manifests_of(table: Table, snapshot: Snapshot) -> list[ManifestFile]:
    """Returns the manifests of a snapshot. Raises TableError as above."""
    with named_if_damaged(table, snapshot.manifest_list):
        return list(snapshot.manifests(table.io))


def content_of(file: ManifestFile | IcebergFile) -> int:
    """Returns DATA or DELETES; of a table in format version 1 PyIceberg gives the number itself."""
    return int(getattr(file.content, "value", file.content))


@dataclass(frozen=True, slots=True)
class ForeignDelete:
    """Describes a delete file that is not of one data file. `by_value`: it names values of columns (an equality
    delete)."""

    path: str
    format: str
    records: int
    by_value: bool


def deletes_of(table: Table, manifest: ManifestFile, *, pass_foreign: bool = False) -> Iterator[DeleteFile]:
    """Yields the delete files of a manifest. Those that are not of one data file are passed over, as if their records
    were still there, where `pass_foreign` says so. Raises TableError for them else."""
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
    convert = f"`cleantail convert-deletes {table}` makes such of them. " if delete.format == POSITIONS else ""
    return (
        f"{delete.path} deletes rows of more than one data file, or by values of columns; Cleantail reads tables whose "
        f"deletes are of one data file each (deletion vectors, or position deletes). {convert}{REWRITE}"
    )


def entries_of_deletes(table: Table, manifest: ManifestFile) -> Iterator[DeleteFile | ForeignDelete]:
    """Yields all delete files of a manifest.

    PyIceberg 0.12 reads entries with the schema of version 2, which lacks the name of the data file that a deletion
    vector belongs to; its own schema of version 3 has it. Of position deletes (version 2) the bounds tell it, too.
    """
    from pyiceberg.manifest import DATA_FILE_TYPE, MANIFEST_ENTRY_SCHEMAS, ManifestEntry
    from pyiceberg.manifest import DataFile as IcebergFile

    names = [field.name for field in DATA_FILE_TYPE[3].fields]
    types: dict[int, Callable[..., StructProtocol]] = {-1: ManifestEntry, 2: IcebergFile}
    damage = named_if_damaged(table, manifest.manifest_path)
    with damage, avro_file()(table.io.new_input(manifest.manifest_path), MANIFEST_ENTRY_SCHEMAS[3], types) as entries:
        for entry in entries:
            if entry.status != ENTRY_DELETED:
                inherited = manifest.sequence_number if entry.sequence_number is None else entry.sequence_number
                yield _delete_file({name: entry.data_file[i] for i, name in enumerate(names)}, inherited or 0)


def _delete_file(file: Mapping[str, Any], sequence_number: int) -> DeleteFile | ForeignDelete:
    path, kind = str(file["file_path"]), str(getattr(file["file_format"], "value", file["file_format"])).upper()
    by_value = int(getattr(file["content"], "value", file["content"])) == EQUALITY
    of = file["referenced_data_file"] or only_data_file(file["lower_bounds"], file["upper_bounds"])
    if of is None or by_value:
        return ForeignDelete(path, kind, int(file["record_count"]), by_value)
    start, length = (int(file[name] or 0) for name in ("content_offset", "content_size_in_bytes"))
    return DeleteFile(str(of), path, kind, int(file["record_count"]), sequence_number, start, length)
