"""Delete files of one data file: deletion vectors, and the position deletes of format version 2.

Which data file they are of, and which positions it has lost.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cleantail.errors import TableError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from pyiceberg.io import FileIO
    from pyroaring import BitMap64

PATH_ID = 2_147_483_546
"""Field id that Iceberg's specification reserves for the name of the data file."""
VECTORS, POSITIONS = "PUFFIN", "PARQUET"
"""Formats of the delete files that can be read: deletion vectors and position deletes."""
VECTOR_MAGIC = bytes.fromhex("d1d33964")


MEND = (
    "No engine that follows Iceberg's specification reads such a table, Spark neither. `cleantail mend TABLE` writes "
    "one deletion vector in their place, with all that they delete"
)


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """Describes a delete file of one data file. `records`: so many positions are in it. `sequence_number`: it is of no
    data file with a higher one. `start` and `length`: the bytes of a deletion vector in its Puffin file."""

    data_file: str
    path: str
    format: str
    records: int
    sequence_number: int = 0
    start: int = 0
    length: int = 0


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
    return len(lost_positions(io, deletes))


def lost_positions(io: FileIO, deletes: Sequence[DeleteFile], sequence_number: int = 0) -> npt.NDArray[np.int64]:
    """Returns the positions that lost_records counts, each once, in ascending order."""
    import numpy as np

    if vectors := [d for d in deletes if d.format == VECTORS]:
        require_readable(vectors, sequence_number)
        with io.new_input(vectors[0].path).open() as file:
            file.seek(vectors[0].start)
            blob = file.read(vectors[0].length)
        return np.fromiter(vector_positions(blob, vectors[0].path), np.int64)
    positions = [np.empty(0, np.int64)]
    for delete in (d for d in deletes if d.sequence_number >= sequence_number):
        with io.new_input(delete.path).open() as file:
            positions.append(positions_of_file(file, delete.data_file, delete.path))
    return np.unique(np.concatenate(positions))


def vector_positions(blob: bytes, where: str) -> BitMap64:
    """Returns the positions in a deletion vector's blob. Raises TableError, naming `where`, when it is damaged."""
    from pyroaring import BitMap64

    body, crc = blob[4:-4], int.from_bytes(blob[-4:], "big")
    if int.from_bytes(blob[:4], "big") != len(body) or body[:4] != VECTOR_MAGIC or zlib.crc32(body) != crc:
        raise TableError(f"{where} is not a deletion vector, or a damaged one")
    return BitMap64.deserialize(body[4:])


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


def puffin_problem(io: FileIO, path: str) -> str | None:
    """Returns why PyIceberg cannot read a file of deletion vectors; None if it can."""
    from pyiceberg.table.puffin import PuffinFile

    with io.new_input(path).open() as file:
        content = file.read()
    try:
        PuffinFile(content)
    except ValueError:
        return (
            f"{path} has a deletion vector and is not a Puffin file, as Iceberg's specification asks; not every engine "
            "reads it. `cleantail mend TABLE` writes the same deletion vector into a Puffin file"
        )
    return None


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
