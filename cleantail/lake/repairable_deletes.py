"""Adapter: find deletes that `mend` or `convert-deletes` must replace, through PyIceberg. Changes nothing.

`mend`: deletion vectors that make a table unreadable, now or later:

1. A data file has two vectors: a writer added a vector without removing the existing one.
2. A vector is older than a registration of its file: after a delete, a sink has committed the file once more.
3. A vector is not in a Puffin file. Spark reads it by its place, PyIceberg does not.
4. The data file of a vector is no longer in the table. This does no harm until a sink commits that file again, which is
   case 2.

`convert-deletes`: deletes that a round cannot replace:

1. Equality deletes: they name values of columns, and apply to every data file with such records.
2. Position deletes of several data files in one file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleantail.errors import TableError
from cleantail.lake.manifest_entries import (
    DATA,
    DELETES,
    ForeignDelete,
    content_of,
    deletes_of,
    entries_of_deletes,
    manifests_of,
)
from cleantail.lake.position_deletes import DeleteFile, puffin_problem, require_readable, vectors_by_file
from cleantail.lake.records.log_records import require_parquet
from cleantail.lake.table_metadata import entries_of

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class DamagedVectors:
    """The damaged vectors. `unreadable`: data file -> why no engine reads the table. `gone`: data files that have a
    vector but are no longer in the table.
    """

    unreadable: dict[str, str]
    gone: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        return bool(self.unreadable or self.gone)


def damaged_vectors(table: Table) -> DamagedVectors:
    """Return the damaged deletion vectors of the table's current snapshot.

    Skips deletes that do not belong to a single data file.
    """
    deletes = (delete for m in _manifests(table, DELETES) for delete in entries_of_deletes(table, m))
    vectors = vectors_by_file(delete for delete in deletes if isinstance(delete, DeleteFile))
    newest = dict.fromkeys(vectors, -1)
    for entry in entries_of(table, _manifests(table, DATA)) if vectors else ():
        path = entry.data_file.file_path
        if path in newest:
            newest[path] = max(newest[path], entry.sequence_number or 0)
    problems = {path: _problem(of_file, newest[path]) for path, of_file in vectors.items() if newest[path] >= 0}
    puffins = {vector.path for path in problems for vector in vectors[path]}
    bare = {path: text for path in puffins if (text := puffin_problem(table.io, path))}
    for path in problems:
        problems[path] = problems[path] or next((bare[v.path] for v in vectors[path] if v.path in bare), "")
    gone = tuple(sorted(path for path, number in newest.items() if number < 0))
    return DamagedVectors({path: text for path, text in sorted(problems.items()) if text}, gone)


def _manifests(table: Table, content: int) -> list[ManifestFile]:
    """Return the current snapshot's manifests of this content."""
    snapshot = table.current_snapshot()
    return [m for m in manifests_of(table, snapshot) if content_of(m) == content] if snapshot else []


def _problem(vectors: list[DeleteFile], sequence_number: int) -> str:
    """Return the problem of a data file's vectors. Empty without a problem."""
    try:
        require_readable(vectors, sequence_number)
    except TableError as e:
        return str(e)
    return ""


@dataclass(frozen=True, slots=True)
class ForeignDeletes:
    """The number of delete files of each kind, and of rows in the equality deletes."""

    equality_deletes: int = 0
    equality_rows: int = 0
    shared_position_deletes: int = 0

    @property
    def any(self) -> bool:
        return bool(self.equality_deletes or self.shared_position_deletes)


def foreign_deletes(table: Table) -> ForeignDeletes:
    """Count the current snapshot's deletes of these kinds, from its manifests alone."""
    entries = (entry for m in _manifests(table, DELETES) for entry in entries_of_deletes(table, m))
    deletes = [entry for entry in entries if isinstance(entry, ForeignDelete)]
    by_value = [entry for entry in deletes if entry.by_value]
    return ForeignDeletes(len(by_value), sum(entry.records for entry in by_value), len(deletes) - len(by_value))


def require_parquet_files(table: Table) -> None:
    """Raise TableError for data files of the current snapshot that are not Parquet."""
    for entry in entries_of(table, _manifests(table, DATA)):
        require_parquet(entry.data_file.file_path, entry.data_file.file_format)


def require_own_deletes(table: Table) -> None:
    """Raise TableError if the current snapshot has deletes that a round could not replace. The error names the
    remedy."""
    for manifest in _manifests(table, DELETES):
        for _ in deletes_of(table, manifest):
            pass
