"""Deletion vectors as bytes: the positions of deleted records of data files (Iceberg's Puffin specification).

1. A blob `deletion-vector-v1` is a length, a magic number, a 64-bit Roaring bitmap in the portable format, and a CRC.
2. A Puffin file is its magic, the blobs, and a footer that says where they are: magic, a JSON text, its length, four
   bytes of flags (all 0: the text is not compressed), magic.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import xxhash
from pyiceberg.table.puffin import MAGIC_BYTES, Footer, PuffinBlobMetadata
from pyroaring import BitMap64

from cleantail.lake.position_deletes import VECTOR_MAGIC

PART_BYTES = 8 << 20
ROW_POSITION_ID = 2_147_483_645
"""The field id that Iceberg's specification reserves for a row's position."""
NOT_COMMITTED: dict[str, object] = {"snapshot-id": -1, "sequence-number": -1}
"""What a blob says of its snapshot: it is not known yet."""
SPARK_SEED = 42


def vector_blob(positions: BitMap64) -> bytes:
    """Returns the blob of these positions."""
    body = VECTOR_MAGIC + positions.serialize()
    return len(body).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


def puffin_file(vectors: Sequence[tuple[str, BitMap64]]) -> tuple[list[bytes], list[tuple[int, int]]]:
    """Returns the content of a Puffin file in parts, and where it has each vector: (start, length). `vectors`: a data
    file's name, and its deleted positions."""
    parts, places, described, at = [MAGIC_BYTES], list[tuple[int, int]](), [], len(MAGIC_BYTES)
    for data_file, positions in vectors:
        blob = vector_blob(positions)
        facts = NOT_COMMITTED | {
            "type": "deletion-vector-v1",
            "fields": [ROW_POSITION_ID],
            "offset": at,
            "length": len(blob),
            "properties": {"referenced-data-file": data_file, "cardinality": str(len(positions))},
        }
        described.append(PuffinBlobMetadata.model_validate(facts))
        parts.append(blob)
        places.append((at, len(blob)))
        at += len(blob)
    footer = Footer(blobs=described, properties={"created-by": "Cleantail"})
    text = footer.model_dump_json(by_alias=True, exclude_none=True).encode()
    parts += [MAGIC_BYTES, text, len(text).to_bytes(4, "little"), bytes(4), MAGIC_BYTES]
    return _in_large_parts(parts), places


def _in_large_parts(parts: Sequence[bytes]) -> list[bytes]:
    """Returns the same bytes in parts of some MiB: each is handed to the store in one call."""
    large, waiting, size = list[bytes](), list[bytes](), 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= PART_BYTES:
            large.append(b"".join(waiting))
            waiting, size = [], 0
    return [*large, b"".join(waiting)]


def file_hash(path: str) -> int:
    """Returns what Spark's xxhash64 makes of a file's name, a signed 64-bit number."""
    return int.from_bytes(xxhash.xxh64_digest(path.encode(), seed=SPARK_SEED), "big", signed=True)
