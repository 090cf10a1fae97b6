"""Position delete files of format version 2: which data file they are of, and the positions that it has lost there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A delete file of one data file. `records`: so many positions are in it."""

    data_file: str
    path: str
    format: str
    records: int


def only_data_file(lower: Mapping[int, bytes] | None, upper: Mapping[int, bytes] | None) -> str | None:
    """Returns the data file that position deletes are of by their bounds, where both say the same."""
    low, high = ((bounds or {}).get(PATH_ID) for bounds in (lower, upper))
    return low.decode() if low is not None and low == high else None


def lost_records(io: FileIO, deletes: Sequence[DeleteFile]) -> int:
    """Returns how many records of one data file its delete files hide. A deletion vector has all of them. Of several
    files of position deletes, as two engines leave them that wrote at the same time, some may have the same
    positions."""
    vectors = [d for d in deletes if d.format == VECTORS]
    if vectors or len(deletes) == 1:
        return (vectors or deletes)[0].records
    import numpy as np

    positions = []
    for delete in deletes:
        with io.new_input(delete.path).open() as file:
            positions.append(positions_of_file(file, delete.data_file, delete.path))
    return len(np.unique(np.concatenate(positions)))


def positions_of_file(source: Any, data_file: str, where: str) -> npt.NDArray[np.int64]:
    """Returns the positions of a data file in position deletes. Raises TableError, naming `where`, when they are
    damaged."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        deletes = pq.read_table(source, columns=["file_path", "pos"])
    except (pa.ArrowException, OSError) as e:
        raise TableError(f"{where} is not a position delete file, or a damaged one: {e}") from None
    positions: npt.NDArray[np.int64] = deletes.filter(pc.equal(deletes["file_path"], data_file))["pos"].to_numpy()
    return positions
