"""Position delete files of format version 2: which data file they are of, and the positions that it has lost there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cleantail.errors import TableError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from pyiceberg.io import FileIO

PATH_ID = 2_147_483_546
"""Field id that Iceberg's specification reserves for the name of the data file."""
VECTORS, POSITIONS = "PUFFIN", "PARQUET"
"""Formats of the delete files that can be read: deletion vectors and position deletes."""


MEND = (
    "No engine that follows Iceberg's specification reads such a table, Spark neither. `cleantail mend TABLE` writes "
    "one deletion vector in their place, with all that they delete"
)


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """Describes a delete file of one data file. `records`: so many positions are in it. `sequence_number`: it is of no
    data file with a higher one."""

    data_file: str
    path: str
    format: str
    records: int
    sequence_number: int = 0


def only_data_file(lower: Mapping[int, bytes] | None, upper: Mapping[int, bytes] | None) -> str | None:
    """Returns the data file that position deletes are of by their bounds, where both say the same."""
    low, high = ((bounds or {}).get(PATH_ID) for bounds in (lower, upper))
    return low.decode() if low is not None and low == high else None


def lost_records(io: FileIO, deletes: Sequence[DeleteFile], sequence_number: int = 0) -> int:
    """Returns how many records of one data file its delete files hide. A deletion vector has all of them. Of several
    files of position deletes, as two engines leave them that wrote at the same time, some may have the same positions.

    `sequence_number` is the data file's: what was deleted before it came is of an earlier registration of it. Raises
    TableError for deletion vectors that make the table unreadable.
    """
    if vectors := [d for d in deletes if d.format == VECTORS]:
        require_readable(vectors, sequence_number)
        return vectors[0].records
    deletes = [d for d in deletes if d.sequence_number >= sequence_number]
    if len(deletes) < 2:
        return sum(d.records for d in deletes)
    import numpy as np

    positions = []
    for delete in deletes:
        with io.new_input(delete.path).open() as file:
            positions.append(positions_of_file(file, delete.data_file, delete.path))
    return len(np.unique(np.concatenate(positions)))


def vectors_by_file(deletes: Iterable[DeleteFile]) -> dict[str, list[DeleteFile]]:
    """Returns data file -> its deletion vectors."""
    by_file: dict[str, list[DeleteFile]] = {}
    for delete in deletes:
        if delete.format == VECTORS:
            by_file.setdefault(delete.data_file, []).append(delete)
    return by_file


def require_readable(vectors: Sequence[DeleteFile], sequence_number: int) -> None:
    """Raises TableError where a data file has two deletion vectors, or one that is older than the file: engines that
    follow Iceberg's specification read no record of such a table."""
    file = vectors[0].data_file
    if len(vectors) > 1:
        names = " and ".join(sorted(v.path for v in vectors))
        raise TableError(f"{file} has {len(vectors)} deletion vectors, in {names}: a data file may have one. {MEND}")
    if vectors[0].sequence_number < sequence_number:
        raise TableError(
            f"{file} was registered (sequence number {sequence_number}) after its deletion vector in {vectors[0].path} "
            f"(sequence number {vectors[0].sequence_number}), as where a sink commits a file once more, or one that "
            f"was gone. {MEND}"
        )


def positions_of_file(source: Any, data_file: str, where: str) -> npt.NDArray[np.int64]:
    """Returns the positions of a data file in position deletes. Raises TableError, naming `where`, when they are
    damaged."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # each name once: a delete file has one for every position, and is as a rule of one data file
        deletes = pq.read_table(source, columns=["file_path", "pos"], read_dictionary=["file_path"])
        parts = [_positions_in(batch, data_file) for batch in deletes.to_batches()]
    except (pa.ArrowException, OSError) as e:
        raise TableError(f"{where} is not a position delete file, or a damaged one: {e}") from None
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _positions_in(deletes: Any, data_file: str) -> npt.NDArray[np.int64]:
    """Returns the positions of a data file among some position deletes, whose names are numbers of a dictionary."""
    import pyarrow.compute as pc

    paths, positions = deletes.column("file_path"), deletes.column("pos")
    named = pc.equal(paths.dictionary, data_file)
    if paths.null_count or not pc.all(named).as_py():
        positions = positions.filter(named.take(paths.indices))
    numbers: npt.NDArray[np.int64] = positions.to_numpy(zero_copy_only=False)
    return numbers
