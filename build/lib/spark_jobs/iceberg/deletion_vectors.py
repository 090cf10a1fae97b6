"""Deletion vectors as bytes: the positions of deleted records of one data file (Iceberg's Puffin specification).

A blob `deletion-vector-v1` is a length, a magic number, a 64-bit Roaring bitmap in the portable format, and a CRC-32.
"""

from __future__ import annotations

import zlib

import xxhash
from pyroaring import BitMap64

from cleantail.errors import TableError

MAGIC = bytes.fromhex("d1d33964")
SPARK_SEED = 42


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
