"""Says which records of a table are there, as Iceberg's own reader in Spark says: the other count of a conversion's
check.

Data files do not change in a conversion, so a record is known by its file and position. Each task of the read says of
its files which positions it has got; nothing of a record but the columns that deletes compare is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame

SEEN = "file string, positions binary, records bigint"
_SEEN = pa.schema([("file", pa.string()), ("positions", pa.binary()), ("records", pa.int64())])


@dataclass(frozen=True, slots=True)
class Alive:
    """Holds the records of a data file that readers see: their positions, and how many rows these are, which is more
    than one for each where the file is registered more than once."""

    positions: BitMap64
    records: int


def alive_records(frame: DataFrame) -> dict[str, Alive]:
    """Returns data file -> its records, of a table as Spark reads it; a file without any is left out."""
    alive: dict[str, Alive] = {}
    for row in frame.select("_file", "_pos").mapInArrow(_by_file, SEEN).collect():
        before = alive.get(row.file, Alive(BitMap64(), 0))
        positions = before.positions | BitMap64.deserialize(bytes(row.positions))
        alive[row.file] = Alive(positions, before.records + row.records)
    return alive


def _by_file(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    bitmaps, counts = dict[str, BitMap64](), dict[str, int]()
    for batch in batches:
        names = batch.column(0).dictionary_encode()
        numbers, positions = names.indices.to_numpy(zero_copy_only=False), batch.column(1).to_numpy()
        for number, name in enumerate(names.dictionary.to_pylist()):
            of_file = positions[numbers == number].astype(np.uint64)
            bitmaps.setdefault(name, BitMap64()).update(of_file)
            counts[name] = counts.get(name, 0) + len(of_file)
    columns = [list(bitmaps), [bitmap.serialize() for bitmap in bitmaps.values()], list(counts.values())]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SEEN, strict=True)]
    yield pa.RecordBatch.from_arrays(arrays, schema=_SEEN)
