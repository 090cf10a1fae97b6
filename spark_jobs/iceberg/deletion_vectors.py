"""Deletion vectors as bytes: the positions of deleted records of one data file (Iceberg's Puffin specification).

A blob `deletion-vector-v1` is a length, a magic number, a 64-bit Roaring bitmap in the portable format, and a CRC-32.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt
import xxhash
from pyroaring import BitMap64

from cleantail.errors import TableError

MAGIC = bytes.fromhex("d1d33964")
SPARK_SEED = 42
WORD = 64
"""Positions travel from Spark as words of so many bits: `bits` bit i of word w is the position 64 w + i."""


def vector_blob(positions: BitMap64) -> bytes:
    """Returns the blob of these positions."""
    body = MAGIC + positions.serialize()
    return len(body).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


def positions_of(blob: bytes, where: str) -> BitMap64:
    """Returns the positions in a blob. Raises TableError, naming `where`, when it is damaged."""
    body, crc = blob[4:-4], int.from_bytes(blob[-4:], "big")
    if int.from_bytes(blob[:4], "big") != len(body) or body[:4] != MAGIC or zlib.crc32(body) != crc:
        raise TableError(f"{where} is not a deletion vector, or a damaged one")
    return BitMap64.deserialize(body[4:])


def file_hash(path: str) -> int:
    """Returns what Spark's xxhash64 makes of a file's name, a signed 64-bit number."""
    return int.from_bytes(xxhash.xxh64_digest(path.encode(), seed=SPARK_SEED), "big", signed=True)


def positions_by_log(
    logs: npt.NDArray[np.int32],
    files: npt.NDArray[np.int64],
    word_numbers: npt.NDArray[np.int64],
    bits: npt.NDArray[np.int64],
) -> dict[tuple[int, int], BitMap64]:
    """Returns the positions of each (log, file), from rows (log, file, word, bits) in any order."""
    order = np.argsort(logs, kind="stable")
    names, starts = np.unique(logs[order], return_index=True)
    positions_of_files: dict[tuple[int, int], BitMap64] = {}
    for log, at in zip(names, np.split(order, starts[1:]), strict=False):  # without rows there is one empty part
        by_file = positions_by_file(files[at], word_numbers[at], bits[at])
        positions_of_files |= {(int(log), file): positions for file, positions in by_file.items()}
    return positions_of_files


def positions_by_file(
    files: npt.NDArray[np.int64], word_numbers: npt.NDArray[np.int64], bits: npt.NDArray[np.int64]
) -> dict[int, BitMap64]:
    """Returns the positions of each file, from rows (file, word, bits) in any order; a file's rows have different
    words."""
    order = np.argsort(files, kind="stable")
    names, starts = np.unique(files[order], return_index=True)
    ends = [*starts[1:], len(order)]
    rows = [order[start:end] for start, end in zip(starts, ends, strict=bool(len(starts)))]
    return {int(name): _positions(word_numbers[at], bits[at]) for name, at in zip(names, rows, strict=True)}


def _positions(word_numbers: npt.NDArray[np.int64], bits: npt.NDArray[np.int64]) -> BitMap64:
    octets = bits.astype("<i8").view(np.uint8).reshape(-1, 8)
    row, bit = np.nonzero(np.unpackbits(octets, axis=1, bitorder="little"))
    return BitMap64((word_numbers[row] * WORD + bit).astype(np.uint64))
